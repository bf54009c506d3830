"""Build the C++ backend for the installed torch, once, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aoti_pack.atomic import exclusive, new_directory
from aoti_pack.errors import UserError
from aoti_pack.paths import source_root, user_cache
from aoti_pack.progress import Progress, silent
from aoti_pack.server.find import ServerBinary
from aoti_pack.server.toolchain import (
    BuildTools,
    Compiler,
    Torch,
    find_build_tools,
    find_compiler,
    find_torch,
)

BACKEND_NAME = "aoti"
LIBRARY = f"libtriton_{BACKEND_NAME}.so"
TARGET = f"triton_{BACKEND_NAME}"

BuildType = Literal["Release", "RelWithDebInfo", "Debug"]
Sanitizer = Literal["address", "thread", "undefined"]

_SOURCES = {".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".in", ".cmake", ".map", ".lds", ".txt"}
_KEPT = 4
_FIRST_ERROR = re.compile(r"(?:fatal )?error: |^CMake Error|^ninja: error|undefined reference|: error ")


@dataclass(frozen=True)
class BackendBuild:
    """What decides a build, and so names it."""

    torch: Torch
    sources: str
    build_type: BuildType
    sanitizer: Sanitizer | None

    @property
    def key(self) -> str:
        """Torch's version in clear, the rest as a digest. Torch's folder counts: it becomes the rpath.

        The compiler does not: what one built serves where there is none, as in a slim image.
        """
        parts = (
            str(self.torch.folder),
            self.torch.version,
            f"abi{int(self.torch.cxx11_abi)}",
            self.sources,
            self.build_type,
            self.sanitizer or "",
        )
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"torch-{self.torch.version}-{digest[:16]}"

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return user_cache() / "backend" / self.key

    @property
    def library(self) -> Path:
        """The built library."""
        return self.folder / BACKEND_NAME / LIBRARY


def backend_build(*, build_type: BuildType = "Release", sanitizer: Sanitizer | None = None) -> BackendBuild:
    """The build that fits this environment now. Raises `UserError` if a tool or torch is missing."""
    return BackendBuild(find_torch(), source_digest(source_root()), build_type, sanitizer)


def source_digest(root: Path) -> str:
    """A digest over name and content of `CMakeLists.txt` and everything that is compiled under `cpp/`."""
    compiled = [
        path
        for path in (root / "cpp").rglob("*")
        if path.is_file() and path.suffix in _SOURCES and path.relative_to(root).parts[1] != "tests"
    ]
    digest = hashlib.sha256()
    for path in sorted([root / "CMakeLists.txt", *compiled]):
        if not path.is_file():
            raise UserError(
                f"the backend's sources are not at {root}: no {path.name}", mend="reinstall aoti-pack"
            )
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def build_backend(
    *,
    force: bool = False,
    progress: Progress = silent,
    build_type: BuildType = "Release",
    sanitizer: Sanitizer | None = None,
) -> Path:
    """The path of `libtriton_aoti.so` for the installed torch, built if it is not in the cache.

    Concurrent callers build once. Raises `UserError` if a tool is missing, or with the compiler's first
    error; the whole output stays in a log that the error names.
    """
    build = backend_build(build_type=build_type, sanitizer=sanitizer)
    if not force and build.library.is_file():
        if os.access(build.folder, os.W_OK):  # not where another user built it
            os.utime(build.folder)  # pruning goes by last use
        return build.library
    log = build.folder.parent / f"{build.key}.log"
    with exclusive(build.folder.parent / f".{build.key}.build.lock"):
        if not force and build.library.is_file():  # another process was quicker
            return build.library
        tools, compiler = find_build_tools(), find_compiler()
        progress(f"building the backend for torch {build.torch.version} with {compiler.version}")
        with new_directory(build.folder) as stage:
            _compile(build, compiler, stage, log, tools, progress)
        log.unlink()
    prune(build.folder.parent, never=build.folder)
    progress(f"built {build.library}")
    return build.library


def _compile(
    build: BackendBuild, compiler: Compiler, stage: Path, log: Path, tools: BuildTools, progress: Progress
) -> None:
    work = stage / "build"
    configure = [
        str(tools.cmake),
        *("-S", str(source_root()), "-B", str(work), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={tools.ninja}",
        f"-DCMAKE_CXX_COMPILER={compiler.path}",
        f"-DCMAKE_BUILD_TYPE={build.build_type}",
        f"-DTORCH_DIR={build.torch.folder}",
        f"-DNLOHMANN_JSON_INCLUDE_DIR={tools.nlohmann_include}",
        "-DAOTI_PACK_TESTS=OFF",
    ]
    if build.sanitizer:
        flag = f"-fsanitize={build.sanitizer}"
        configure += [f"-DCMAKE_CXX_FLAGS={flag} -fno-omit-frame-pointer -g"]
        configure += [f"-DCMAKE_{kind}_LINKER_FLAGS={flag}" for kind in ("SHARED", "MODULE")]
    cores = len(os.sched_getaffinity(0))
    make = [str(tools.cmake), "--build", str(work), "--target", TARGET, "-j", str(cores)]
    with log.open("w") as sink:
        for command in (configure, make):
            sink.write(f"$ {' '.join(command)}\n")
            lines: list[str] = []
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            ) as running:
                for line in running.stdout or ():
                    sink.write(line)
                    lines.append(line.rstrip())
                    if line.startswith("["):  # ninja's "[3/12] Building CXX object ..."
                        progress(line.rstrip())
            if running.returncode != 0:
                raise UserError(f"the backend did not build: {first_error(lines)}", mend=f"see {log}")
    target = stage / BACKEND_NAME
    target.mkdir()
    for library in work.glob("*.so"):
        shutil.copy2(library, target / library.name)
    if not (target / LIBRARY).is_file():
        raise UserError(f"the build made no {LIBRARY}", mend=f"see {log}")
    shutil.rmtree(work)


def first_error(lines: Sequence[str]) -> str:
    """The first line of a build's output that tells an error, with the next one for a bare `CMake Error`."""
    for number, line in enumerate(lines):
        if _FIRST_ERROR.search(line):
            told = [line, *lines[number + 1 : number + 2]] if line.endswith(":") else [line]
            return " ".join(part.strip() for part in told)
    return next((line for line in reversed(lines) if line), "no output")


def prune(root: Path, *, never: Path, keep: int = _KEPT) -> None:
    """Delete the folders under `root` but `never` and the last used, `keep` in all, and none in use.

    In use is a folder whose backend a process has loaded.
    """
    folders = [path for path in root.glob("[!.]*") if path.is_dir() and path != never]
    old = sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[keep - 1 :]
    loaded = _mapped_libraries() if old else set()
    for folder in old:
        if not any(name.startswith(f"{folder}/") for name in loaded):
            shutil.rmtree(folder)


def _mapped_libraries() -> set[str]:
    names: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text(errors="replace")
        except OSError:  # the process ended, or is another user's: that one cannot use this user's cache
            continue
        names.update(line.split(maxsplit=5)[5] for line in text.splitlines() if LIBRARY in line)
    return names


def backends_directory(binary: ServerBinary, backend: Path | None = None) -> Path:
    """A folder for `--backend-directory`: the server's own backends and, as `aoti`, ours.

    `backend` is the library that `build_backend` gave. The folder is named by what it holds, so a new build
    or another server gets another folder and running servers keep theirs. The server's backends are links;
    ours is a real copy (a hard link where the file system has them), so that pruning old builds is safe.
    """
    theirs = (
        {path.name: path for path in binary.backends.iterdir() if path.is_dir()} if binary.backends else {}
    )
    if binary.python_backend is not None:
        theirs["python"] = binary.python_backend
    if backend is not None:
        theirs.pop(BACKEND_NAME, None)
    ours = sorted(path for path in backend.parent.iterdir() if path.is_file()) if backend else []
    named = [f"{name}={path.resolve()}" for name, path in sorted(theirs.items())]
    named += [f"{path.resolve()}@{path.stat().st_mtime_ns}" for path in ours]
    key = hashlib.sha256("\0".join(named).encode()).hexdigest()[:16]
    folder = user_cache() / "backends" / key
    if folder.is_dir():
        os.utime(folder)
        return folder
    with exclusive(folder.parent / f".{key}.build.lock"):
        if not folder.is_dir():
            with new_directory(folder) as stage:
                for name, path in theirs.items():
                    (stage / name).symlink_to(path.resolve())
                for path in ours:
                    (stage / BACKEND_NAME).mkdir(exist_ok=True)
                    _link_or_copy(path, stage / BACKEND_NAME / path.name)
    prune(folder.parent, never=folder)
    return folder


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
