"""A package as AOTInductor wrote it becomes one with the same bytes on every run, and no path of this machine."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

from aoti_pack.compiler.archive import unpack
from aoti_pack.errors import UserError

_SOURCES = {".cpp", ".cc", ".cu", ".h", ".hpp", ".S", ".s"}
_ZIP_VERSION = 6  # what torch's own writer of packages asks for: the version file lies in `.data`


def repack(raw: Path, package: Path, *, build: Path, keep_sources: bool) -> None:
    """Write the package `raw`, which was compiled in the folder `build`, anew into `package`.

    Entries are sorted, stored and aligned as torch does it, without times. Generated sources are emptied unless
    `keep_sources` (a loader may look for their names); kept, they lose the lines that only tell of this machine.
    """
    work = build / "repack"
    work.mkdir()
    for path in unpack(raw, work):
        file = work / path
        if path.suffix in _SOURCES:
            text = file.read_text(encoding="utf-8") if keep_sources else ""
            file.write_text(_without_machine(text, build), encoding="utf-8")
        elif path.name.endswith("_metadata.json"):
            found = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps(found, sort_keys=True), encoding="utf-8")
        _blank_out(file, str(build).encode())
    _write(work, package)


def _without_machine(text: str, build: Path) -> str:
    """`text` without the comments that name `build` (inductor's commands), and elsewhere without its path."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not (line.startswith("//") and str(build) in line)]
    return "".join(kept).replace(f"{build}/", "")


def _blank_out(file: Path, path: bytes) -> None:
    """Replace `path` in `file` by as many slashes: where the code of GPU kernels finds its files, only the last part
    of a path counts."""
    if not file.stat().st_size:
        return
    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as data:
        at = data.find(path)
        while at >= 0:
            data[at : at + len(path)] = b"/" * len(path)
            at = data.find(path, at)


def _write(folder: Path, package: Path) -> None:
    """Write the files under `folder` into the archive `package`, whose name becomes that of its top folder."""
    import torch

    files = sorted(
        (path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file()
    )
    # PyTorchFileWriter writes the entries of its own.
    files = [(name, path) for name, path in files if not name.startswith(".data/")]
    beside = package.with_name(".partial") / package.name
    beside.parent.mkdir()
    try:
        writer: Any = torch._C.PyTorchFileWriter(str(beside))
        writer.set_min_version(_ZIP_VERSION)
        for name, path in files:
            if size := path.stat().st_size:
                # Mapped, so that weights of many GiB are not read into memory.
                writer.write_record(name, torch.UntypedStorage.from_file(str(path), False, size), size)
            else:
                writer.write_record(name, b"", 0)
        writer.write_end_of_file()
        beside.replace(package)
    except RuntimeError as error:
        raise UserError(f"{package} cannot be written: {error}") from error
    finally:
        beside.unlink(missing_ok=True)
        beside.parent.rmdir()
