from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from server_helpers import write_program

from aoti_pack.server import doctor, find
from aoti_pack.server.doctor import Check, examine
from aoti_pack.server.install import STUB, running_python


def test_every_check_says_one_line_and_mends_what_is_not_well(home: Path) -> None:
    checks = examine()
    assert [check.name for check in checks] == [
        "torch",
        "C++ compiler",
        "build tools",
        "backend",
        "glibc",
        "Triton server",
        "Python backend",
        "temp folder",
        "cache folder",
        "CPU",
        "GPU",
    ]
    assert all("\n" not in check.detail and check.detail for check in checks)
    assert all(check.mend for check in checks if check.level != "ok")
    assert not home.exists(), "examining makes nothing"


def test_temp_folder_that_is_well() -> None:
    check = doctor.check_temp_folder()
    assert check.level == "ok"
    assert check.detail.startswith(f"{tempfile.gettempdir()} can be written and executed from")


def test_temp_folder_on_a_noexec_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(doctor.mmap, "mmap", refused)
    check = doctor.check_temp_folder()
    assert check.level == "fail"
    assert check.detail == f"{tempfile.gettempdir()} is mounted noexec: libraries cannot be loaded from it"
    assert "TMPDIR" in (check.mend or "")


def test_temp_folder_that_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/tmp/x")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refused)
    check = doctor.check_temp_folder()
    assert (check.level, check.detail) == (
        "fail",
        f"cannot write into {tempfile.gettempdir()}: Permission denied",
    )


def test_no_temp_folder_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(doctor.tempfile, "gettempdir", none)
    check = doctor.check_temp_folder()
    assert check.level == "fail"
    assert "No usable temporary directory" in check.detail


@pytest.mark.parametrize(("gib", "level"), [(0.2, "fail"), (1.0, "warn"), (50.0, "ok")])
def test_disk(home: Path, monkeypatch: pytest.MonkeyPatch, gib: float, level: str) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=int(gib * 2**30)))
    check = doctor.check_disk()
    assert (check.level, check.detail) == (level, f"{home}, {gib:.1f} GiB free")


@pytest.mark.parametrize(("have", "level"), [((2, 31), "warn"), ((2, 35), "ok"), (None, "warn")])
def test_glibc(monkeypatch: pytest.MonkeyPatch, have: tuple[int, int] | None, level: str) -> None:
    monkeypatch.setattr(doctor, "glibc_version", lambda: have)
    assert doctor.check_glibc().level == level


def on_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("PATH", str(program.parent))
    return doctor.check_server()


def test_a_server_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_program(tmp_path / "bin" / "tritonserver", "print('--model-repository <string>')")
    check = on_path(program, monkeypatch)
    assert (check.level, check.detail) == ("ok", f"unknown version at {program} (PATH)")
    assert doctor.check_python_backend().level == "warn"


def test_a_python_backend_of_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_program(tmp_path / "bin" / "tritonserver", "")
    folder = tmp_path / "backends" / "python"
    folder.mkdir(parents=True)
    (folder / STUB).write_bytes(b"\x7fELF..libpython3.99.so.1.0..")
    monkeypatch.setenv("PATH", str(program.parent))
    check = doctor.check_python_backend()
    assert (check.level, check.detail) == ("warn", f"{folder} is for Python 3.99, this is {running_python()}")
    (folder / STUB).write_bytes(f"..libpython{running_python()}.so.1.0..".encode())
    assert doctor.check_python_backend().level == "ok"


def test_a_server_that_lacks_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "import sys; sys.exit('tritonserver: libx.so: cannot open shared object file')"
    check = on_path(write_program(tmp_path / "bin" / "tritonserver", body), monkeypatch)
    assert check.level == "fail"
    assert check.detail.endswith("does not run: tritonserver: libx.so: cannot open shared object file")


def test_no_server(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "CONTAINER_ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_server()
    assert (check.level, check.mend) == (
        "warn",
        "run `aoti-pack server install`, or name one with --tritonserver",
    )


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_compiler()
    assert (check.level, check.mend) == ("fail", "apt-get install g++, or set CXX")


def test_backend_is_ok_once_built(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libtriton_aoti.so"
    made = SimpleNamespace(library=library, torch=SimpleNamespace(version="2.13.0"))
    monkeypatch.setattr(doctor, "backend_build", lambda: made)
    assert doctor.check_backend().level == "warn"
    library.touch()
    assert doctor.check_backend() == Check("backend", "ok", str(library))
