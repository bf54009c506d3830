"""What a package, and a model in the repository, was made from: whether anything of it changed since."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aoti_pack
from aoti_pack.atomic import write_text
from aoti_pack.compiler.archive import sha256_of
from aoti_pack.compiler.target import cpu_features
from aoti_pack.manifest import FILE_NAME, Manifest
from aoti_pack.project.entries import ModelEntry
from aoti_pack.repository.layout import CONFIG_FILE

_CODE = Path(aoti_pack.__file__).parent


@dataclass(frozen=True)
class Stamp:
    """Lies beside a package's folder.

    compiled: digest of the request, torch and the compiler. sources: file -> sha256 of what the model consists of.
    manifest: sha256 of the package's manifest. repository: path of a written version -> digest of what it was written
    from.
    """

    compiled: str
    sources: Mapping[str, str]
    manifest: str
    repository: Mapping[str, str] = field(default_factory=dict)


def stamp_file(folder: Path) -> Path:
    """Where the stamp of the package in `folder` lies."""
    return folder.with_name(f"{folder.name}.stamp.json")


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of `folder`; None where there is none, or one that another version wrote."""
    try:
        raw = json.loads(stamp_file(folder).read_text(encoding="utf-8"))
        stamp = Stamp(**raw)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    maps = (stamp.sources, stamp.repository)
    return stamp if all(isinstance(one, dict) for one in maps) else None


def save_stamp(folder: Path, stamp: Stamp) -> None:
    """Write the stamp of `folder`."""
    write_text(stamp_file(folder), json.dumps(dataclasses.asdict(stamp), indent=2) + "\n")


def is_compiled(entry: ModelEntry, stamp: Stamp | None) -> bool:
    """Whether the package of `entry` is there and would be the same if it were compiled again."""
    folder = entry.folder
    if stamp is None or stamp.compiled != compile_digest(entry) or not stamp.sources:
        return False
    if not (folder / FILE_NAME).is_file() or sha256_of(folder / FILE_NAME) != stamp.manifest:
        return False
    files = [(folder / file.path, file.bytes) for file in Manifest.load(folder).files]
    if not all(path.is_file() and path.stat().st_size == size for path, size in files):
        return False
    return source_digests(stamp.sources) == stamp.sources


def is_written(entry: ModelEntry, stamp: Stamp, model: Path) -> bool:
    """Whether `model`/VERSION in the repository was written from this package with these options."""
    version = model / str(entry.version)
    if not (version / FILE_NAME).is_file() or not (model / CONFIG_FILE).is_file():
        return False
    return stamp.repository.get(str(version.resolve())) == write_digest(entry, stamp, version)


def compile_digest(entry: ModelEntry) -> str:
    """Digest of what shapes a package beside its sources: the request, torch, the compiler and (`native`) the CPU."""
    native = list(cpu_features()) if entry.options.target_cpu == "native" else []
    said = [entry.request(), importlib.metadata.version("torch"), native]
    return _digest(
        said, [*_CODE.glob("*.py"), *(_CODE / "compiler").glob("*.py"), *(_CODE / "sources").glob("*.py")]
    )


def write_digest(entry: ModelEntry, stamp: Stamp, version: Path) -> str:
    """Digest of what decides about a written version, and of the manifest that lies there now."""
    said: list[Any] = [stamp.manifest, dataclasses.asdict(entry.serving), entry.version, entry.backend]
    said += [entry.compile_twin, sha256_of(version / FILE_NAME)]
    return _digest(said, (_CODE / "repository").glob("*.py"))


def source_digests(files: Iterable[str], *, until: float = math.inf) -> dict[str, str]:
    """File -> sha256; empty for a file that is gone, or that was changed after the time `until`."""
    found = {file: Path(file) for file in files}
    is_known = {file: path.is_file() and path.stat().st_mtime <= until for file, path in found.items()}
    return {file: sha256_of(path) if is_known[file] else "" for file, path in found.items()}


def _digest(said: list[Any], code: Iterable[Path]) -> str:
    content = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for path in sorted(code):
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()
