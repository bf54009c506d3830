"""Giving a served model new weights."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aoti_pack.atomic import exclusive, sync_directory
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import Progress
from aoti_pack.repository.layout import model_lock, newest_version
from aoti_pack.weights.answer import await_answer, read_metrics
from aoti_pack.weights.check import check_weights
from aoti_pack.weights.files import FOLDER, POINTER_FILE, SUFFIX, Pointer, ServerStatus

_PIECE = 1 << 20
_COPYING = ".push-"  # how the name of a file that is being copied begins


@dataclass(frozen=True)
class Pushed:
    """What became of a push. `weights_version` is its number; `state` as in `answer.Answer`."""

    name: str
    version: int
    weights_version: int
    sha256: str
    state: str
    message: str


@dataclass(frozen=True)
class WeightsState:
    """What is to serve, and what the server last said; None where there is nothing yet."""

    name: str
    version: int
    pointer: Pointer | None
    status: ServerStatus | None


def find_version(repo: Path, name: str, version: int | None) -> tuple[Path, int]:
    """The folder of NAME's `version` (default: its highest) in `repo`, and its number. UserError without one."""
    model = repo / name
    number = newest_version(model) if version is None else version
    if number is None or not (model / str(number)).is_dir():
        what = "no version" if number is None else f"no version {number}"
        raise UserError(f"{model} has {what}", mend="write the model with `aoti-pack package` first")
    return model / str(number), number


def push_weights(
    repo: Path,
    name: str,
    file: Path,
    *,
    version: int | None = None,
    timeout_s: float,
    metrics_url: str | None = None,
    progress: Progress,
) -> Pushed:
    """Make the weights in `file` those of NAME in `repo`, and wait up to `timeout_s` seconds for its server's answer.

    `file` is checked first: UserError when it is not one for this package; nothing has moved then. A push that the
    server refuses is taken back. One that no server answers stays: a server that starts later serves it.
    """
    folder, number = find_version(repo, name, version)
    manifest = Manifest.load(folder)
    if not (folder / manifest.package.path).exists():
        raise UserError(
            f"{folder} holds no package: the model serves as its Python twin, which reads no pushed weights",
            mend="push to the model that `aoti-pack package --backend aoti` wrote",
        )
    progress("checking the file")
    check_weights(file, manifest)
    metrics = None if metrics_url is None else functools.partial(read_metrics, metrics_url, name, number)
    with exclusive(model_lock(repo, name)):
        before = metrics() if metrics else None
        weights = folder / FOLDER
        weights.mkdir(exist_ok=True)
        progress("copying")
        digest, size = _copy(file, weights)
        old = Pointer.load(weights)
        pointer = Pointer(_next_number(weights, old), digest, size, manifest.package.sha256)
        pointer.save(weights)
        progress(f"waiting for the server, at most {timeout_s:g} s")
        answer = await_answer(weights, pointer, metrics, before, timeout_s)
        if answer.state == "refused":
            _put_back(weights, old)
        kept = {p.sha256 for p in (old, None if answer.state == "refused" else pointer) if p is not None}
        _prune(weights, kept)
    return Pushed(name, number, pointer.version, digest, answer.state, answer.message)


def weights_state(repo: Path, name: str, version: int | None) -> WeightsState:
    """What the pointer and the status file of NAME in `repo` say."""
    folder, number = find_version(repo, name, version)
    weights = folder / FOLDER
    return WeightsState(name, number, Pointer.load(weights), ServerStatus.load(weights))


def _copy(file: Path, weights: Path) -> tuple[str, int]:
    """Copy `file` to its name by content, whole or not at all; the digest and the size of what was copied."""
    handle, name = tempfile.mkstemp(dir=weights, prefix=_COPYING)
    beside = Path(name)
    try:
        digest = hashlib.sha256()
        with file.open("rb") as source, os.fdopen(handle, "wb") as target:
            while piece := source.read(_PIECE):
                digest.update(piece)
                target.write(piece)
            size = target.tell()
            target.flush()
            os.fchmod(target.fileno(), 0o644)
            os.fsync(target.fileno())
        beside.replace(weights / (digest.hexdigest() + SUFFIX))
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(weights)
    return digest.hexdigest(), size


def _next_number(weights: Path, old: Pointer | None) -> int:
    """One that no push had: a refused one is taken back and lives on in the status alone."""
    status = ServerStatus.load(weights)
    return 1 + max(old.version if old else 0, status.version if status else 0)


def _put_back(weights: Path, old: Pointer | None) -> None:
    if old is not None:
        old.save(weights)
        return
    (weights / POINTER_FILE).unlink()
    sync_directory(weights)


def _prune(weights: Path, kept: set[str]) -> None:
    """Remove the weights that neither serve nor served last, and what a killed push left half copied."""
    for path in weights.iterdir():
        old = path.name.endswith(SUFFIX) and path.name.removesuffix(SUFFIX) not in kept
        if old or path.name.startswith(_COPYING):
            path.unlink()
