"""Answers of a real server, over HTTP and gRPC, alone and joined, against eager PyTorch."""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from stand import Stand

pytestmark = pytest.mark.server

TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (0.0, 0.0)}


def assert_equal_eager(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        rtol, atol = TOLERANCE.get(tensor.dtype, (0.0, 0.0))
        torch.testing.assert_close(got[name], tensor, rtol=rtol, atol=atol)


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize("name", ["arith", "arith_python", "select", "half"])
def test_rows_equal_eager(stand: Stand, name: str, rows: int) -> None:
    model, client = stand.models[name], stand.client(name)
    inputs = model.draw(rows, b=rows)
    assert_equal_eager(client.infer(inputs), model.expected(inputs))
    client.close()


@pytest.mark.parametrize("name", ["hstu", "hstu_python"])
@pytest.mark.parametrize(("b", "n", "c"), [(1, 1, 1), (2, 9, 5), (16, 32, 32)])
def test_hstu_equals_eager(stand: Stand, name: str, b: int, n: int, c: int) -> None:
    model, client = stand.models[name], stand.client(name)
    inputs = model.draw(b + n, b=b, n=n, c=c)
    got = client.infer(inputs)
    assert_equal_eager(got, model.expected(inputs))
    assert got["scores"].shape == (b, c)
    client.close()


@pytest.mark.parametrize("name", ["scale", "scale_python"])
def test_no_axes_in_and_out(stand: Stand, name: str) -> None:
    model, client = stand.models[name], stand.client(name)
    assert model.manifest.wire == "single"
    inputs = {"x": torch.arange(5, dtype=torch.float32), "factor": torch.tensor(2.5)}
    got = client.infer(inputs)
    assert got["out"].tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert got["total"].item() == 25.0
    client.close()


@pytest.mark.parametrize("as_bytes", [True, False])
def test_http(stand: Stand, as_bytes: bool) -> None:
    model = stand.models["arith"]
    inputs = model.draw(3, b=3)
    client = tritonclient.http.InferenceServerClient(stand.server.http_url)
    wire = []
    for name, tensor in inputs.items():
        wire.append(tritonclient.http.InferInput(name, list(tensor.shape), "FP32"))
        wire[-1].set_data_from_numpy(tensor.numpy(), binary_data=as_bytes)
    outputs = [tritonclient.http.InferRequestedOutput("total", binary_data=as_bytes)]
    answer = client.infer("arith", wire, outputs=outputs)
    # Only what was asked for is sent, in the wire's [b, 1].
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["total"]
    total = answer.as_numpy("total")
    assert total.shape == (3, 1)
    np.testing.assert_allclose(total[:, 0], model.expected(inputs)["total"].numpy(), rtol=1e-4, atol=1e-5)
    client.close()


def test_a_body_in_many_small_chunks(stand: Stand) -> None:
    """Inputs reach the backend in several buffers, at odd addresses."""
    model = stand.models["arith"]
    inputs = model.draw(9, b=2)
    raw = {name: tensor.numpy().tobytes() for name, tensor in inputs.items()}
    # A header of odd length puts the floats at odd addresses.
    header = json.dumps(
        {
            "id": "odd",
            "inputs": [
                {
                    "name": name,
                    "shape": [2, 16],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": len(data)},
                }
                for name, data in raw.items()
            ],
        }
    )
    header += " " * (len(header) % 2 == 0)
    body = header.encode() + b"".join(raw.values())
    request = urllib.request.Request(
        f"http://{stand.server.http_url}/v2/models/arith/infer",
        data=(body[start : start + 7] for start in range(0, len(body), 7)),
        headers={"Inference-Header-Content-Length": str(len(header)), "Transfer-Encoding": "chunked"},
    )
    with urllib.request.urlopen(request) as answer:
        outputs = {output["name"]: output for output in json.load(answer)["outputs"]}
    wanted = model.expected(inputs)["out"].numpy()
    np.testing.assert_allclose(np.reshape(outputs["out"]["data"], (2, 16)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["arith", "arith_python"])
def test_concurrent_clients_get_their_own_rows(stand: Stand, name: str) -> None:
    """Requests of 1, 3 and 2 rows from eight clients at once: each answer is the sender's own."""
    model = stand.models[name]
    start = threading.Barrier(8)

    def client(index: int) -> int:
        connection = stand.client(name)
        start.wait()
        for turn in range(25):
            inputs = model.draw(1000 * index + turn, b=(1, 3, 2)[(index + turn) % 3])
            assert_equal_eager(connection.infer(inputs), model.expected(inputs))
        connection.close()
        return turn + 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(client, range(8))) == 200


def test_requests_are_joined(stand: Stand) -> None:
    """Eight clients at once need fewer runs than requests, and the statistics say how many of each."""
    model = stand.models["hstu"]
    statistics = tritonclient.grpc.InferenceServerClient(stand.server.grpc_url)

    def counts() -> tuple[int, int, int]:
        found = statistics.get_inference_statistics("hstu").model_stats[0]
        return found.inference_count, found.execution_count, found.inference_stats.success.count

    rows, runs, requests = counts()
    inputs = model.draw(5, b=2, n=16, c=8)
    wanted = model.expected(inputs)

    def client(_: int) -> None:
        connection = stand.client("hstu")
        for _turn in range(10):
            assert_equal_eager(connection.infer(inputs), wanted)
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    after = counts()
    assert after[0] - rows == 2 * 80
    assert after[2] - requests == 80
    assert after[1] - runs < 80
    statistics.close()
