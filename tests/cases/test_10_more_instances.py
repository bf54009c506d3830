"""Case 10: one runner and four callers, after a reload that raised the instances from 1 to 4."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from explicit_server import ExplicitServer
from packages import cpp_package

pytestmark = pytest.mark.server
CALLERS, ROUNDS = 4, 50


def call(explicit: ExplicitServer, caller: int) -> int:
    """Ask ROUNDS times and return how many answers were right."""
    client = explicit.client("grows")
    right = 0
    for round_ in range(ROUNDS):
        x = torch.full((1 + caller, 16), caller + round_ / 7)
        got = client.infer({"x": x, "y": x})["out"]
        right += torch.allclose(got, torch.sin(x.double()).float() * 2 + x, rtol=1e-5, atol=1e-5)
    client.close()
    return right


def test_every_caller_is_answered(explicit: ExplicitServer) -> None:
    explicit.write(cpp_package("arith"), "grows")
    with explicit.one_core():
        assert explicit.load("grows") == ""
    with ThreadPoolExecutor(CALLERS) as pool:
        before = [pool.submit(call, explicit, caller) for caller in range(CALLERS)]
        explicit.edit_config("grows", "count: 1", "count: 4")
        assert explicit.load("grows") == ""
        after = [pool.submit(call, explicit, caller) for caller in range(CALLERS)]
        assert [future.result() for future in before + after] == [ROUNDS] * (2 * CALLERS)
    # The core added instances to the model that was there, whose one runner they share.
    assert explicit.logged(r"grows: \d+ instance\(s\).*core\(s\)") == [
        "grows: 1 instance(s) x 1 thread(s) on 1 core(s)"
    ]
    explicit.unload("grows")
