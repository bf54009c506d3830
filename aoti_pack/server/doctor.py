"""What this machine has of what compiling and serving need: one line each, with the mend."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aoti_pack.errors import UserError
from aoti_pack.paths import user_cache
from aoti_pack.server.build import backend_build
from aoti_pack.server.find import ServerBinary, find_server, interpreter_libraries, stub_python
from aoti_pack.server.install import RELEASE, glibc_version, running_python
from aoti_pack.server.toolchain import find_build_tools, find_compiler, find_torch

Level = Literal["ok", "warn", "fail"]

# The server, a built backend and a few compiled packages.
_DISK_WANTED_GIB = 2.0
_DISK_NEEDED_GIB = 0.5
_CPU_LEVELS = {"AVX2": "avx2", "AVX-512": "avx512f", "AMX": "amx_tile"}


@dataclass(frozen=True)
class Check:
    """One finding. `mend` says what to do unless all is well."""

    name: str
    level: Level
    detail: str
    mend: str | None = None


def examine() -> list[Check]:
    """All checks, in the order in which a user would mend them. Installs and builds nothing."""
    checks: list[Callable[[], Check]] = [
        check_torch,
        check_compiler,
        check_build_tools,
        check_backend,
        check_glibc,
        check_server,
        check_python_backend,
        check_temp_folder,
        check_disk,
        check_cpu,
        check_gpu,
    ]
    return [check() for check in checks]


def _told(name: str, level: Level, error: UserError) -> Check:
    return Check(name, level, error.problem, error.mend)


def check_torch() -> Check:
    """Torch is there and new enough."""
    try:
        torch = find_torch()
    except UserError as error:
        return _told("torch", "fail", error)
    return Check("torch", "ok", f"{torch.version} in {torch.folder}")


def check_compiler() -> Check:
    """A C++ compiler, for compiling models and the backend."""
    try:
        compiler = find_compiler()
    except UserError as error:
        return _told("C++ compiler", "fail", error)
    return Check("C++ compiler", "ok", f"{compiler.version} at {compiler.path}")


def check_build_tools() -> Check:
    """Cmake, ninja and the JSON header, for building the backend."""
    try:
        tools = find_build_tools()
    except UserError as error:
        return _told("build tools", "fail", error)
    return Check("build tools", "ok", f"{tools.cmake}, {tools.ninja}")


def check_backend() -> Check:
    """The backend is built for this torch and these sources."""
    try:
        build = backend_build()
    except UserError as error:
        return _told("backend", "fail", error)
    if build.library.is_file():
        return Check("backend", "ok", str(build.library))
    mend = "run `aoti-pack build-backend`, or let the first serve build it"
    return Check("backend", "warn", f"not built yet for torch {build.torch.version}", mend)


def check_glibc() -> Check:
    """The C library is new enough for the server of the pip wheel."""
    have = glibc_version()
    if have is not None and have >= RELEASE.glibc:
        return Check("glibc", "ok", f"{have[0]}.{have[1]}")
    wanted = ".".join(map(str, RELEASE.glibc))
    found = "not glibc" if have is None else f"{have[0]}.{have[1]}"
    return Check(
        "glibc", "warn", f"{found}; the pip wheel of the server needs {wanted}", "serve in a Triton container"
    )


def _server() -> ServerBinary:
    return find_server(install=False)


def check_server() -> Check:
    """A server binary, and that it starts far enough to print its options."""
    try:
        binary = _server()
    except UserError as error:
        return _told("Triton server", "warn", error)
    where = f"{binary.version or 'unknown version'} at {binary.path} ({binary.source})"
    try:
        done = subprocess.run(
            [str(binary.path), "--help"],
            env=binary.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Triton server", "fail", f"{where} does not run: {error}", "check it with ldd")
    if "--model-repository" not in done.stdout + done.stderr:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        return Check("Triton server", "fail", f"{where} does not run: {said[-1]}", f"see `ldd {binary.path}`")
    return Check("Triton server", "ok", where)


def check_python_backend() -> Check:
    """The Python backend's stub for this Python; only Python twins and baselines need it."""
    name = "Python backend"
    try:
        binary = _server()
    except UserError:
        return Check(name, "warn", "no server yet", "run `aoti-pack server install`")
    if binary.python_backend is None:
        mend = "models compiled by aoti-pack run without it; for Python models use another Python version"
        return Check(name, "warn", f"none for Python {running_python()} beside {binary.path}", mend)
    linked = stub_python(binary.python_backend)
    if linked not in (None, running_python()):
        detail = f"{binary.python_backend} is for Python {linked}, this is {running_python()}"
        return Check(name, "warn", detail, f"serve Python models from a Python {linked} environment")
    if not interpreter_libraries() and not _system_has_libpython():
        mend = f"apt-get install libpython{running_python()}, or a Python built with --enable-shared"
        return Check(name, "warn", "the interpreter has no shared libpython, which the stub needs", mend)
    return Check(name, "ok", f"{binary.python_backend} for Python {running_python()}")


def _system_has_libpython() -> bool:
    """Whether the dynamic loader's own folders hold it."""
    loader = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if loader is None:
        return False
    known = subprocess.run([loader, "-p"], capture_output=True, text=True, check=False).stdout
    return f"libpython{running_python()}.so" in known


def check_temp_folder() -> Check:
    """A package is unpacked into the temp folder and loaded from there: write it, then map it executable."""
    name = "temp folder"
    mend = "set TMPDIR to a folder that can be written and executed from"
    try:
        folder = tempfile.gettempdir()
        with tempfile.NamedTemporaryFile(dir=folder, prefix="aoti-pack-") as file:
            file.write(b"\0" * mmap.PAGESIZE)
            file.flush()
            # What the dynamic loader does with a library; a noexec mount refuses it with EPERM.
            mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    except PermissionError as error:
        if error.filename is None:
            return Check(
                name, "fail", f"{folder} is mounted noexec: libraries cannot be loaded from it", mend
            )
        return Check(name, "fail", f"cannot write into {folder}: {error.strerror}", mend)
    except OSError as error:
        return Check(name, "fail", f"no usable temp folder: {error.strerror}", mend)
    free = shutil.disk_usage(folder).free / 2**30
    return Check(name, "ok", f"{folder} can be written and executed from, {free:.1f} GiB free")


def check_disk() -> Check:
    """Free space where servers, backends and packages are kept, and the right to write there."""
    name = "cache folder"
    cache = user_cache()
    present = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    if not os.access(present, os.W_OK):
        return Check(name, "fail", f"cannot write into {present}", "set AOTI_PACK_HOME to a folder you own")
    free = shutil.disk_usage(present).free / 2**30
    detail = f"{cache}, {free:.1f} GiB free"
    if free < _DISK_WANTED_GIB:
        level: Level = "fail" if free < _DISK_NEEDED_GIB else "warn"
        return Check(name, level, detail, "free some space, or set AOTI_PACK_HOME to another disk")
    return Check(name, "ok", detail)


def check_cpu() -> Check:
    """What the CPU can do: information, since a package is compiled for it."""
    cores = len(os.sched_getaffinity(0))
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    levels = ", ".join(f"{name} {'yes' if flag in flags else 'no'}" for name, flag in _CPU_LEVELS.items())
    detail = f"{fields.get('model name', 'unknown model')}, {cores} cores, {levels}"
    if flags and "avx2" not in flags:
        return Check("CPU", "warn", detail, "packages compiled on newer machines will be refused here")
    return Check("CPU", "ok", detail)


def check_gpu() -> Check:
    """The GPUs that the driver reports: information, since all works without."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("GPU", "ok", "none (no nvidia-smi); models compile and serve on the CPU")
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        return Check("GPU", "warn", f"nvidia-smi fails: {said[0]}", "check the driver")
    return Check("GPU", "ok", "; ".join(done.stdout.strip().splitlines()))
