"""Wrong requests to a real server: refused by name, alone, and nothing else is harmed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from stand import Stand
from tritonclient import grpc

pytestmark = pytest.mark.server

GOOD = np.ones((2, 16), np.float32)


def ask(stand: Stand, model: str, **inputs: np.ndarray | tuple[list[int], str, bytes]) -> grpc.InferResult:
    client = grpc.InferenceServerClient(stand.server.grpc_url)
    wire = []
    for name, value in inputs.items():
        if isinstance(value, tuple):
            shape, datatype, raw = value
            wire.append(grpc.InferInput(name, shape, datatype))
            wire[-1]._raw_content = raw
        else:
            datatype = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "float16": "FP16"}[
                value.dtype.name
            ]
            wire.append(grpc.InferInput(name, list(value.shape), datatype))
            wire[-1].set_data_from_numpy(value)
    try:
        return client.infer(model, wire)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"x": GOOD.astype(np.float64), "y": GOOD}, ["'x'", "FP32", "FP64"]),
        ({"x": GOOD.astype(np.int64), "y": GOOD}, ["'x'", "FP32", "INT64"]),
        ({"x": GOOD.astype(np.float16), "y": GOOD}, ["'x'", "FP32", "FP16"]),
        ({"x": GOOD[:, :8], "y": GOOD}, ["'x'", "16", "8"]),
        ({"x": np.ones((2, 32), np.float32), "y": GOOD}, ["'x'", "16", "32"]),
        ({"x": np.ones((2, 16, 1), np.float32), "y": GOOD}, ["x", "16"]),
        ({"x": np.ones((3, 16), np.float32), "y": GOOD}, ["'x'", "batch size"]),
        ({"x": GOOD}, ["y"]),
        ({"x": GOOD, "z": GOOD}, ["z"]),
        ({"x": ([1 << 62, 4], "FP32", b""), "y": GOOD}, ["x"]),
    ],
    ids=["float64", "int64", "float16", "narrow", "wide", "rank", "rows", "missing", "unknown", "overflow"],
)
def test_wrong_requests_are_refused_by_name(
    stand: Stand, inputs: dict[str, np.ndarray], told: list[str]
) -> None:
    with pytest.raises(grpc.InferenceServerException) as caught:
        ask(stand, "arith", **inputs)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    for word in told:
        assert word in caught.value.message()


def test_sizes_outside_the_range_are_refused(stand: Stand) -> None:
    ids = np.zeros((1, 33), np.int64)
    with pytest.raises(grpc.InferenceServerException) as caught:
        ask(stand, "lookup", ids=ids, lengths=np.ones((1, 1), np.int64))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "'ids'" in caught.value.message()
    assert "1..32" in caught.value.message()


def test_a_bad_request_does_not_harm_good_ones(stand: Stand) -> None:
    """Good and bad requests at the same time: each good one is answered right, each bad one refused."""
    model = stand.models["arith"]

    def good(seed: int) -> bool:
        client = stand.client("arith")
        inputs = model.draw(seed, b=2)
        got = client.infer(inputs)["out"]
        client.close()
        return torch.allclose(got, model.expected(inputs)["out"], rtol=1e-4, atol=1e-5)

    def bad(_: int) -> bool:
        with pytest.raises(grpc.InferenceServerException):
            ask(stand, "arith", x=GOOD[:, :8], y=GOOD)
        return True

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(good if number % 2 else bad, number) for number in range(80)]
        assert [job.result() for job in jobs] == [True] * 80


def test_a_run_that_throws_fails_alone(stand: Stand) -> None:
    """An id past the table throws inside the compiled model; the next request is served."""
    wrong = np.full((1, 4), 1000, np.int64)
    with pytest.raises(grpc.InferenceServerException) as caught:
        ask(stand, "lookup", ids=wrong, lengths=np.full((1, 1), 4, np.int64))
    assert "lookup" in caught.value.message()
    right = np.array([[1, 2, 3, 99]], np.int64)
    got = ask(stand, "lookup", ids=right, lengths=np.full((1, 1), 3, np.int64)).as_numpy("scores")
    # Row r of the table is 8r … 8r + 7, so its sum is 64 r + 28; nothing from `lengths` on.
    np.testing.assert_array_equal(got, [[92.0, 156.0, 220.0, 0.0]])
