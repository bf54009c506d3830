from __future__ import annotations

from pathlib import Path

import portable as portable_runs
import pytest
from packages import RECIPES, CompiledPackage, compiled_package


@pytest.fixture(scope="session", name="compiled_package")
def _compiled_package() -> CompiledPackage:
    return compiled_package


@pytest.fixture(scope="session")
def recipes() -> Path:
    return RECIPES


@pytest.fixture(scope="session")
def portable(tmp_path_factory) -> portable_runs.Run:
    """A small package that the command line compiled for x86-64-v3, alone on the machine."""
    run = portable_runs.start(tmp_path_factory.mktemp("alone"), "alone", "--target-cpu", portable_runs.TARGET)
    run.done()
    return run
