"""Sending the requests of `malformed` and judging the answers."""

from __future__ import annotations

import http.client
import json

import grpc
import numpy as np
from malformed import Case, as_the_core_reads, expected, fits, grpc_message, http_message
from tritonclient.grpc import service_pb2

from aoti_pack.server.launch import TritonServer

Answer = dict[str, np.ndarray] | str  # the outputs, or the error's text


class Connections:
    """One thread's connections, kept from request to request."""

    def __init__(self, server: TritonServer) -> None:
        self._http_url = server.http_url
        self._http = http.client.HTTPConnection(self._http_url, timeout=60)
        self._channel = grpc.insecure_channel(server.grpc_url, [("grpc.use_local_subchannel_pool", 1)])
        self._call = self._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def close(self) -> None:
        self._http.close()
        self._channel.close()

    def send(self, case: Case) -> Answer:
        return self._send_grpc(case) if case.send == "grpc" else self._send_http(case)

    def _send_grpc(self, case: Case) -> Answer:
        try:
            raw = self._call(grpc_message(case), timeout=60)
        except grpc.RpcError as error:
            assert error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
            return error.details() or error.code().name
        response = service_pb2.ModelInferResponse.FromString(raw)
        pairs = zip(response.outputs, response.raw_output_contents, strict=True)
        return {o.name: np.frombuffer(data, np.float32).reshape(o.shape) for o, data in pairs}

    def _send_http(self, case: Case) -> Answer:
        path, body, headers = http_message(case)
        self._http.request("POST", path, body, headers)
        answer = self._http.getresponse()
        raw = answer.read()
        if answer.status != http.client.OK:
            # A model's name that is no part of a path is refused before the protocol begins.
            # An error may quote what came, byte for byte.
            return (
                json.loads(raw.decode(errors="replace"))["error"]
                if raw.startswith(b"{")
                else f"HTTP {answer.status}"
            )
        length = int(answer.getheader("Inference-Header-Content-Length") or len(raw))
        found: dict[str, np.ndarray] = {}
        tail = raw[length:]
        for output in json.loads(raw[:length].decode(errors="replace"))["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                numbers = np.array([np.nan if v is None else v for v in output["data"]], np.float32)
            else:
                numbers, tail = np.frombuffer(tail[:size], np.float32), tail[size:]
            found[output["name"]] = numbers.reshape(output["shape"])
        return found


def judge(case: Case, answer: Answer) -> str | None:  # noqa: PLR0911  a way out for each fault
    """What is wrong with `answer` to `case`, if anything."""
    told = answer if isinstance(answer, str) else None
    if told == "":
        return "an error that says nothing"
    if case.must == "any":
        return None
    if told is not None:
        return None if case.must in ("error", "either") else f"refused: {told}"
    if case.must == "error":
        return "accepted"
    assert isinstance(answer, dict)
    case = as_the_core_reads(case)
    if not fits(case):
        return "accepted"
    wanted = expected(case)
    if answer.keys() != wanted.keys():
        return f"gave {list(answer)}"
    for name, value in wanted.items():
        got = answer[name].reshape(value.shape)
        if not np.allclose(got, value, rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"a wrong {name!r}"
    return None
