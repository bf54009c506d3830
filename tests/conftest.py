from __future__ import annotations

from pathlib import Path

import pytest
from packages import RECIPES, CompiledPackage, compiled_package


@pytest.fixture(scope="session", name="compiled_package")
def _compiled_package() -> CompiledPackage:
    return compiled_package


@pytest.fixture(scope="session")
def recipes() -> Path:
    return RECIPES
