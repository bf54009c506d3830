from __future__ import annotations

import pytest
from structures import Structures, structures


@pytest.fixture(scope="session", name="structures")
def _structures() -> Structures:
    return structures()
