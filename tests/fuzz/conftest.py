"""Hypothesis's profiles, and the driver that `scripts/cpp_tests.sh` has built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import Driver
from hypothesis import HealthCheck, settings

_ROOT = Path(__file__).parents[2]
_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
# `quick` gives the same examples in each run, so that a change is what makes a test fail.
settings.register_profile(
    "quick", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "long", max_examples=800, deadline=None, print_blob=True, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("FUZZ_PROFILE", "quick"))


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    build = Path(os.environ.get("AOTI_FUZZ_BUILD", _ROOT / "build" / "cpp-none"))
    program = build / "cpp" / "tests" / "aoti_fuzz"
    if not program.is_file():
        pytest.fail(f"{program} is not built; mend: scripts/cpp_tests.sh none", pytrace=False)
    suppressions = _ROOT / "cpp" / "tests" / "suppressions" / "leak.txt"
    environment = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:allocator_may_return_null=0",
        "LSAN_OPTIONS": f"suppressions={suppressions}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    found = Driver(program, environment)
    yield found
    found.close()
