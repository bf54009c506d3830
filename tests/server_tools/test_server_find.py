from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from server_helpers import write_program

from aoti_pack.errors import UserError
from aoti_pack.server import find
from aoti_pack.server.find import find_server
from aoti_pack.server.install import RELEASE, STUB, ServerInstall, running_python


def make_root(root: Path, version: str | None = None, python: str = "backends/python") -> Path:
    program = write_program(root / "bin" / "tritonserver", "")
    (root / "lib").mkdir()
    (root / python).mkdir(parents=True)
    (root / python / STUB).write_bytes(b"stub")
    if version:
        (root / "TRITON_VERSION").write_text(f"{version}\n")
    return program


@pytest.fixture
def places(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A server in each of the four places."""
    installed = home / "server" / RELEASE.version
    programs = {
        "--tritonserver": make_root(tmp_path / "explicit", "2.60.0"),
        "PATH": make_root(tmp_path / "path", "2.61.0"),
        "container": make_root(tmp_path / "opt", "2.62.0"),
        "install": make_root(installed, python=f"backends/{running_python()}/python"),
    }
    (installed / "install.json").write_text(
        json.dumps({"files": {"bin/tritonserver": programs["install"].stat().st_size}})
    )
    monkeypatch.setattr(find, "CONTAINER_ROOT", tmp_path / "opt")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    return programs


def test_order(places: dict[str, Path]) -> None:
    first = find_server(places["--tritonserver"])
    assert (first.source, first.path, first.version) == ("--tritonserver", places["--tritonserver"], "2.60.0")
    for source, version in (("PATH", "2.61.0"), ("container", "2.62.0"), ("install", RELEASE.server_version)):
        found = find_server()
        assert (found.source, found.path, found.version) == (source, places[source], version)
        assert found.libraries == (places[source].parent.parent / "lib",)
        assert found.python_backend is not None
        assert (found.python_backend / STUB).read_bytes() == b"stub"
        places[source].unlink()
    with pytest.raises(UserError, match="no Triton server: not on PATH") as caught:
        find_server(install=False)
    assert "aoti-pack server install" in (caught.value.mend or "")


def test_installs_on_first_need(places: dict[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("PATH", "container"):
        places[source].unlink()
    asked: list[object] = []

    def pretend(*, progress: object) -> ServerInstall:
        asked.append(progress)
        return ServerInstall(home / "server" / RELEASE.version, RELEASE)

    monkeypatch.setattr(find, "install_server", pretend)
    assert find_server(progress=print).source == "install"
    assert asked == [print]


def test_explicit_path_into_the_install_is_known(places: dict[str, Path]) -> None:
    found = find_server(places["install"])
    assert found.source == "--tritonserver"
    assert found.backends == places["install"].parent.parent / "backends" / running_python()


def test_wrong_explicit_paths_are_told(tmp_path: Path, places: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_server(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is a folder, expected the program"):
        find_server(tmp_path)
    (tmp_path / "text").write_text("x")
    with pytest.raises(UserError, match="is not executable"):
        find_server(tmp_path / "text")


def test_environment_puts_ours_first_and_keeps_the_rest(places: dict[str, Path]) -> None:
    found = find_server(places["--tritonserver"])
    base = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/mine", "HOME": "/h"}
    made = found.environment(base)
    assert made["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"
    parts = made["LD_LIBRARY_PATH"].split(os.pathsep)
    assert parts[0] == str(found.libraries[0])
    assert parts[-1] == "/mine"
    assert parts[1:-1] == [str(folder) for folder in find.interpreter_libraries()]
    assert made["HOME"] == "/h"
    assert base["PATH"] == "/usr/bin"
    assert found.environment(made) == made
