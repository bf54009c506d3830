"""What the demo makes once and keeps: the trained model and its package, named by what they were made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_pack.compiler.build import Compiled, compile_recipe
from aoti_pack.compiler.target import cpu_features
from aoti_pack.manifest import Manifest
from aoti_pack.progress import Progress

if TYPE_CHECKING:
    from aoti_pack.models.ratings import Ratings

_PACKAGE = Path(__file__).resolve().parent.parent
_KEPT = 3


@dataclass(frozen=True)
class Trained:
    """A trained checkpoint with its quality beside the popularity baseline."""

    folder: Path
    hr10: float
    ndcg10: float
    popularity_hr10: float
    popularity_ndcg10: float
    seconds: float
    cached: bool


def train_once(ratings: Ratings, work: Path, seed: int, progress: Progress) -> Trained:
    """Train HSTU on `ratings`, or find the checkpoint of the same ratings, seed and sources in `work`."""
    import torch

    from aoti_pack.models.train_hstu import train

    digest = hashlib.sha256()
    for part in (ratings.user, ratings.item, ratings.rating, ratings.timestamp):
        digest.update(part.tobytes())
    key = _key(_sources("models"), [digest.hexdigest(), str(seed), torch.__version__])
    folder = work / f"trained-{key}"
    cached = (folder / "metrics.json").is_file()
    if not cached:
        train(
            ratings,
            folder,
            seed=seed,
            progress=lambda stage, done, total: progress(f"{stage} {5 * (20 * done // max(total, 1))}%"),
        )
        _prune(work, "trained-")
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return Trained(
        folder,
        metrics["model"]["hr10"],
        metrics["model"]["ndcg10"],
        metrics["popularity"]["hr10"],
        metrics["popularity"]["ndcg10"],
        metrics["train_seconds"] + metrics["evaluate_seconds"],
        cached,
    )


def compile_once(trained: Trained, work: Path, progress: Progress) -> Compiled:
    """Compile the trained model, or find the package of the same weights, sources and torch in `work`."""
    import torch

    from aoti_pack.compiler.archive import sha256_of

    weights = sha256_of(trained.folder / "checkpoint.pt")
    sources = _sources("models", "compiler", ".")
    folder = work / f"package-{_key(sources, [weights, torch.__version__, *cpu_features()])}"
    if (folder / "manifest.json").is_file():
        return Compiled(folder, Manifest.load(folder))
    settings = {"checkpoint": str(trained.folder)}
    compiled = compile_recipe("aoti_pack.models.hstu:recipe", folder, settings=settings, progress=progress)
    _prune(work, "package-")
    return compiled


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (_PACKAGE / folder).glob("*.py"))


def _key(files: Iterable[Path], parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    for part in parts:
        digest.update(part.encode())
    return digest.hexdigest()[:16]


def _prune(work: Path, prefix: str) -> None:
    """Keep the newest few artifacts of a kind."""
    import shutil

    found = sorted(work.glob(f"{prefix}*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        shutil.rmtree(old)
