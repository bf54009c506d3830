"""Case 17: instances x threads above the cores is slower than one thread, so the budget is told at load."""

from __future__ import annotations

import os

import pytest
from explicit_server import ExplicitServer
from packages import cpp_package

pytestmark = pytest.mark.server


@pytest.mark.parametrize("instances", [1, 2, 64])
def test_the_default_shares_the_cores(explicit: ExplicitServer, instances: int) -> None:
    name = f"budget_{instances}"
    explicit.write(cpp_package("scale"), name, instances=instances, threads=None)
    assert explicit.load(name) == ""
    cores = len(os.sched_getaffinity(explicit.server.pid))
    threads = max(1, cores // instances)
    assert explicit.logged(rf"{name}: .* core\(s\)") == [
        f"{name}: {instances} instance(s) x {threads} thread(s) on {cores} core(s)"
    ]
    explicit.unload(name)


def test_what_is_asked_for_is_kept(explicit: ExplicitServer) -> None:
    explicit.write(cpp_package("scale"), "budget_asked", instances=2, threads=3)
    assert explicit.load("budget_asked") == ""
    assert len(explicit.logged(r"budget_asked: 2 instance\(s\) x 3 thread\(s\) on")) == 1
    explicit.unload("budget_asked")
