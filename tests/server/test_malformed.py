"""Ten thousand malformed requests to a real server, with good ones among them: each is answered as it must be, and
the server lives on with no more memory than before."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from malformed import (
    REGION,
    REGION_BYTES,
    Case,
    as_the_core_reads,
    expected,
    fits,
    good,
    grpc_message,
    http_message,
    wrong,
)
from resident import resident_bytes
from stand import Stand
from tritonclient.grpc import InferenceServerClient, service_pb2
from tritonclient.utils import shared_memory as shm

pytestmark = pytest.mark.server

REQUESTS = 10_000
THREADS = 4
# What the heap's arenas still take after the first quarter of the requests. A leak of 1 KiB a request would be 7.5.
ALLOWED_GROWTH = 5 << 20

Answer = dict[str, np.ndarray] | str  # the outputs, or the error's text


class Connections:
    """One thread's connections, kept from request to request."""

    def __init__(self, stand: Stand) -> None:
        self._http_url = stand.server.http_url
        self._http = http.client.HTTPConnection(self._http_url, timeout=60)
        self._channel = grpc.insecure_channel(stand.server.grpc_url, [("grpc.use_local_subchannel_pool", 1)])
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


def test_ten_thousand_malformed_requests(stand: Stand) -> None:
    done = threading.Event()
    seed = int(os.environ.get("MALFORMED_SEED", "20"))

    def attack(part: int) -> Counter[tuple[str, str]]:
        rng = random.Random(f"{seed} {part}")
        connections = Connections(stand)
        counts: Counter[tuple[str, str]] = Counter()
        for _ in range(REQUESTS // 4 // THREADS):
            case = wrong(rng)
            answer = connections.send(case)
            problem = judge(case, answer)
            assert problem is None, f"{problem}: {case}"[:2000]
            counts[case.kinds[0], "refused" if isinstance(answer, str) else "answered"] += 1
        connections.close()
        return counts

    def go_on() -> int:
        rng = random.Random(seed)
        connections = Connections(stand)
        answered = 0
        while not done.is_set():
            case = good(rng)
            problem = judge(case, connections.send(case))
            assert problem is None, f"{problem}: {case}"[:2000]
            answered += 1
        connections.close()
        return answered

    control = InferenceServerClient(stand.server.grpc_url)
    key = f"/aoti_pack_malformed_{os.getpid()}"
    region = shm.create_shared_memory_region(REGION, key, REGION_BYTES)
    pid, memory, counts = stand.server.pid, [], Counter[tuple[str, str]]()
    try:
        control.register_system_shared_memory(REGION, key, REGION_BYTES)
        with ThreadPoolExecutor(THREADS + 1) as pool:
            going_on = pool.submit(go_on)
            try:
                for quarter in range(4):
                    for found in pool.map(attack, range(THREADS * quarter, THREADS * (quarter + 1))):
                        counts += found
                    memory.append(resident_bytes(pid))
            finally:
                done.set()
            answered = going_on.result()
    finally:
        control.unregister_system_shared_memory(REGION)
        shm.destroy_shared_memory_region(region)
        control.close()
    assert sum(counts.values()) == REQUESTS
    assert answered > 100
    assert stand.server.pid == pid
    assert stand.server.wait(0) is None
    # The generator does what it says: of each kind many, and hardly one that was no fault after all.
    refused = Counter({kind: n for (kind, how), n in counts.items() if how == "refused"})
    assert all(
        refused[kind] > 100 for kind in ("datatype", "size", "rank", "bytes", "inputs", "region", "ids")
    )
    assert counts["not_finite", "answered"] > 100
    grown = max(memory[1:]) - memory[0]
    print(f"\nmalformed: {dict(refused)}, {answered} good ones; MiB after each quarter: "
          f"{[round(m / 2**20, 1) for m in memory]}")  # fmt: skip
    assert grown < ALLOWED_GROWTH
