"""What a build of the C++ backend is made with: compiler, cmake, ninja, torch, headers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aoti_pack.errors import UserError

OLDEST_TORCH = (2, 11)
_OLDEST_GCC = 11  # the first whose -std=c++20 has what the backend uses


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler and the first line that it says of itself."""

    path: Path
    version: str


@dataclass(frozen=True)
class Torch:
    """The installed torch, known without importing it."""

    folder: Path
    version: str
    cxx11_abi: bool


@dataclass(frozen=True)
class BuildTools:
    """What a build takes from pip packages: two programs and the JSON library's include folder."""

    cmake: Path
    ninja: Path
    nlohmann_include: Path


def find_compiler() -> Compiler:
    """`$CXX` if set, else `g++`, else `c++`. Raises `UserError` if none works or it is too old."""
    asked = os.environ.get("CXX")
    names = [shlex.split(asked)[0]] if asked else ["g++", "c++"]
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        raise UserError(
            f"no C++ compiler: {' or '.join(names)} is not on PATH", mend="apt-get install g++, or set CXX"
        )
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise UserError(
            f"{path} --version failed: {told.stderr.strip()}", mend="apt-get install g++, or set CXX"
        )
    version = told.stdout.splitlines()[0].strip()
    gcc = re.search(r"\) (\d+)\.\d+", version)  # "g++ (Debian 12.2.0-14) 12.2.0"; clang says it otherwise
    if gcc and int(gcc[1]) < _OLDEST_GCC:
        raise UserError(f"{version} is too old", mend=f"install g++-{_OLDEST_GCC} or newer and set CXX to it")
    return Compiler(Path(path), version)


def find_torch() -> Torch:
    """The torch of this environment. Raises `UserError` if it is missing or older than what is supported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise UserError("torch is not installed", mend=f"pip install 'torch>={_dotted(OLDEST_TORCH)}'")
    folder = Path(spec.origin).parent
    version = importlib.metadata.version("torch")
    if version_pair(version) < OLDEST_TORCH:
        raise UserError(
            f"torch {version} is too old, expected {_dotted(OLDEST_TORCH)} or newer",
            mend=f"pip install -U 'torch>={_dotted(OLDEST_TORCH)}'",
        )
    config = folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    if not config.is_file():
        raise UserError(
            f"{folder} has no {config.relative_to(folder)}, so nothing can be compiled against this torch",
            mend="reinstall torch from its wheel",
        )
    return Torch(folder, version, "_GLIBCXX_USE_CXX11_ABI=0" not in config.read_text())


def version_pair(version: str) -> tuple[int, int]:
    """The first two numbers of a version such as `2.13.0+cpu`."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UserError(f"cannot read the version {version!r}", mend="expected something like 2.13.0")
    return int(found[1]), int(found[2])


def find_build_tools() -> BuildTools:
    """All of them. Raises `UserError` naming the first that is missing."""
    return BuildTools(find_tool("cmake"), find_tool("ninja"), nlohmann_include())


def find_tool(name: str) -> Path:
    """The program `cmake` or `ninja`: of this environment's package, else of PATH."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    packaged = (Path(str(file.locate())) for file in files if file.name == name and "bin" in file.parts)
    path = next((path.resolve() for path in packaged if os.access(path, os.X_OK)), None) or shutil.which(name)
    if path is None:
        raise UserError(f"{name} is not installed", mend=f"pip install {name}")
    return Path(path)


def nlohmann_include() -> Path:
    """The include folder of nlohmann-json's package, else of the system."""
    header = Path("nlohmann") / "json.hpp"
    candidates = [Path("/usr/include"), Path("/usr/local/include")]
    try:
        files = importlib.metadata.files("nlohmann-json") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    packaged = [Path(str(file.locate())) for file in files if file.as_posix().endswith(header.as_posix())]
    for include in [*(path.parent.parent for path in packaged), *candidates]:
        if (include / header).is_file():
            return include.resolve()
    raise UserError(f"the header {header} is missing", mend="pip install nlohmann-json")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
