"""Which Triton server to run, and the environment that it needs."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aoti_pack.errors import UserError
from aoti_pack.progress import Progress, silent
from aoti_pack.server.install import STUB, ServerInstall, current_install, install_server, running_python

Source = Literal["--tritonserver", "PATH", "container", "install"]

CONTAINER_ROOT = Path("/opt/tritonserver")


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started.

    `backends` is the folder of the backends that came with it; `python_backend` the folder that holds
    `libtriton_python.so`, its utilities and a stub side by side, or None where there is none (then models of
    the Python backend cannot run). `version` is None where no `TRITON_VERSION` file tells it.
    """

    path: Path
    source: Source
    version: str | None
    backends: Path | None
    python_backend: Path | None
    libraries: tuple[Path, ...]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`base` (default: this process's environment) with what the server needs.

        The interpreter's own folder comes first on `PATH` because the Python backend's stub takes the
        `python3` it finds there, and so the packages of this virtual environment.
        """
        environment = dict(os.environ if base is None else base)
        _prepend(environment, "PATH", [Path(sys.executable).parent])
        _prepend(environment, "LD_LIBRARY_PATH", [*self.libraries, *interpreter_libraries()])
        return environment


def find_server(
    explicit: Path | None = None, *, install: bool = True, progress: Progress = silent
) -> ServerBinary:
    """The first of: `explicit` (`--tritonserver`), PATH, the container's place, the per-user install.

    With `install`, the per-user install is made if it is needed and missing. Raises `UserError` if `explicit`
    is not a program, if no server is found, or as `install_server` does.
    """
    if explicit is not None:
        return _described(_checked(explicit), "--tritonserver")
    if on_path := shutil.which("tritonserver"):
        return _described(Path(on_path), "PATH")
    contained = CONTAINER_ROOT / "bin" / "tritonserver"
    if os.access(contained, os.X_OK):
        return _described(contained, "container")
    here = current_install()
    if install:
        here = install_server(progress=progress)
    elif not here.intact():
        raise UserError(
            f"no Triton server: not on PATH, not at {contained}, not installed at {here.root}",
            mend="run `aoti-pack server install`, or name one with --tritonserver",
        )
    return _installed(here, "install")


def interpreter_libraries() -> list[Path]:
    """The folder of the running interpreter's `libpython`, which the Python backend's stub links to."""
    folder = sysconfig.get_config_var("LIBDIR")
    return [Path(folder)] if folder and any(Path(folder).glob("libpython3*.so*")) else []


def stub_python(python_backend: Path) -> str | None:
    """The Python version that a Python backend's stub is linked to, such as `3.12`; None if it does not tell."""
    found = re.search(rb"libpython(3\.\d+)\.so", (python_backend / STUB).read_bytes())
    return found[1].decode() if found else None


def _checked(path: Path) -> Path:
    path = path.expanduser()
    if path.is_dir():
        raise UserError(
            f"--tritonserver {path} is a folder, expected the program",
            mend=f"try {path / 'bin' / 'tritonserver'}",
        )
    if not path.exists():
        raise UserError(f"--tritonserver {path} does not exist", mend="check the path")
    if not os.access(path, os.X_OK):
        raise UserError(f"--tritonserver {path} is not executable", mend=f"chmod +x {path}")
    return path.absolute()


def _described(path: Path, source: Source) -> ServerBinary:
    """What lies around a program: `ROOT/bin/tritonserver`, `ROOT/lib`, `ROOT/backends`."""
    root = path.resolve().parent.parent
    here = current_install()
    if root == here.root.resolve():
        return _installed(here, source)
    told = root / "TRITON_VERSION"
    backends = root / "backends"
    python_backend = backends / "python"
    libraries = root / "lib"
    return ServerBinary(
        path=path,
        source=source,
        version=told.read_text().strip() if told.is_file() else None,
        backends=backends if backends.is_dir() else None,
        python_backend=python_backend if (python_backend / STUB).is_file() else None,
        libraries=(libraries,) if libraries.is_dir() else (),
    )


def _installed(install: ServerInstall, source: Source) -> ServerBinary:
    backends = install.backends() if running_python() in install.pythons() else None
    return ServerBinary(
        path=install.binary,
        source=source,
        version=install.release.server_version,
        backends=backends,
        python_backend=backends / "python" if backends else None,
        libraries=(install.libraries,),
    )


def _prepend(environment: dict[str, str], name: str, folders: list[Path]) -> None:
    rest = [part for part in environment.get(name, "").split(os.pathsep) if part]
    front = [str(folder) for folder in folders]
    joined = [*front, *(part for part in rest if part not in front)]
    if joined:
        environment[name] = os.pathsep.join(joined)
