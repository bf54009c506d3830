"""Case 1: one runner, a bad and a good request from two threads. Elsewhere the good one never returns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from explicit_server import ExplicitServer
from packages import cpp_package
from tritonclient import grpc

pytestmark = pytest.mark.server
ROUNDS = 100


def ask(explicit: ExplicitServer, ids: list[list[int]], lengths: list[int]) -> list[list[float]] | str:
    """The scores of `lookup`, or the server's words."""
    values = {"ids": np.array(ids, np.int64), "lengths": np.array([lengths], np.int64).T}
    inputs = [grpc.InferInput(name, value.shape, "INT64") for name, value in values.items()]
    for item, value in zip(inputs, values.values(), strict=True):
        item.set_data_from_numpy(value)
    with grpc.InferenceServerClient(explicit.server.grpc_url) as client:
        try:
            return client.infer("one_runner", inputs, client_timeout=60).as_numpy("scores").tolist()
        except grpc.InferenceServerException as refusal:
            return refusal.message()


@pytest.mark.parametrize("bad", [([[1] * 33], [2]), ([[1000, 0]], [2])], ids=["shape", "id past its table"])
def test_the_good_one_is_answered(explicit: ExplicitServer, bad: tuple[list[list[int]], list[int]]) -> None:
    explicit.write(cpp_package("lookup"), "one_runner")
    with explicit.one_core():
        assert explicit.load("one_runner") == ""
    assert "one_runner: 1 instance(s) x 1 thread(s) on 1 core(s)" in explicit.server.log.read_text()
    # A second instance on the same package: two executing threads, one runner.
    explicit.edit_config("one_runner", "count: 1", "count: 2")
    assert explicit.load("one_runner") == ""
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(lambda: [ask(explicit, [[2, 1]], [2]) for _ in range(ROUNDS)])
        refused = pool.submit(lambda: [ask(explicit, *bad) for _ in range(ROUNDS)])
        # Row r of the table is 8 r … 8 r + 7, whose sum is 64 r + 28.
        assert good.result() == [[[156.0, 92.0]]] * ROUNDS
        assert all(isinstance(words, str) and "one_runner" in words for words in refused.result())
    explicit.unload("one_runner")
