from __future__ import annotations

from pathlib import Path

import pytest
from server_helpers import FAKE_SERVER, write_program

from aoti_pack.server.find import ServerBinary


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("AOTI_PACK_HOME", str(folder))
    return folder


@pytest.fixture
def fake_server(tmp_path: Path) -> ServerBinary:
    path = write_program(tmp_path / "fake" / "bin" / "tritonserver", FAKE_SERVER)
    return ServerBinary(path, "--tritonserver", None, None, None, ())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "model" / "1").mkdir(parents=True)
    return folder
