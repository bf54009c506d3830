"""Train an HSTU ranker on MovieLens or on a CSV of ratings: `python -m aoti_pack.models.train_hstu`."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aoti_pack.errors import UserError
from aoti_pack.models.checkpoint import Checkpoint
from aoti_pack.models.hstu import HSTU
from aoti_pack.models.hstu_config import HSTUConfig, preset
from aoti_pack.models.hstu_scoring import DemoRequest, demo_request, score_catalogue
from aoti_pack.models.hstu_training import Sampler, Schedule, action_levels, bucketed, fit
from aoti_pack.models.ranking import Quality, evaluate, popularity
from aoti_pack.models.ratings import Ratings, from_csv, leave_last_out, movielens

__all__ = ["DemoRequest", "TrainResult", "demo_request", "from_csv", "movielens", "train"]

Progress = Callable[[str, int, int], None]
"""Called with a stage ("train", "evaluate"), the steps done in it, and its steps in all."""

# More threads than this gain nothing on tensors of these sizes.
_MOST_THREADS = 2


@dataclass(frozen=True)
class TrainResult:
    """What came out: the folder, quality beside the popularity baseline, wall-clock seconds, epoch losses."""

    folder: Path
    model: Quality
    popularity: Quality
    losses: list[float]
    train_seconds: float
    evaluate_seconds: float

    @property
    def lift(self) -> float:
        """HR@10 over that of popularity; infinite when popularity never hits."""
        return self.model.hr10 / self.popularity.hr10 if self.popularity.hr10 else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = dataclasses.asdict(self)
        plain["folder"] = str(self.folder)
        plain["lift"] = self.lift if np.isfinite(self.lift) else None
        return plain


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Run torch on `count` threads for a while; sums, and so weights, are repeatable for equal counts."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _repeatable() -> Iterator[None]:
    """Sums in a fixed order: on several threads, the gradient of a look-up is added up as it comes otherwise."""
    before = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    filling = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = False  # slow, and nothing here reads what it has not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = filling


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def train(
    ratings: Ratings,
    out: Path,
    *,
    seed: int = 0,
    progress: Progress = _silent,
    config: HSTUConfig | None = None,
    schedule: Schedule | None = None,
) -> TrainResult:
    """Train on all but each user's last event, rank that one among all unseen items, save to folder `out`.

    `config` defaults to the `movielens` preset; its `items` and `max_candidates` follow the catalogue. Equal
    ratings, seed and number of cores (up to two) give equal weights. Torch's global generator and thread count
    are left as they were.
    """
    schedule = schedule or Schedule()
    split = leave_last_out(ratings)
    items = len(ratings.items)
    counts = popularity(split, items)
    config = (config or preset("movielens")).replaced(items=items, max_candidates=items)
    seen = np.concatenate([history.rating for history in split.train])
    levels = action_levels(seen, config.actions)
    buckets = [bucketed(history.rating, levels) for history in split.train]
    sampler = Sampler(split.train, buckets, counts, config.max_history, schedule, seed)

    started, steps, done = time.monotonic(), schedule.epochs * sampler.steps, 0

    def step(_: float) -> None:
        nonlocal done
        done += 1
        progress("train", done, steps)

    threads = _threads(min(_cores(), _MOST_THREADS))
    with torch.random.fork_rng(devices=[]), threads, _repeatable():
        torch.manual_seed(seed)
        model = HSTU(config)
        losses = fit(model, sampler, step)
    trained = time.monotonic()

    ranked = 0

    def user() -> None:
        nonlocal ranked
        ranked += 1
        progress("evaluate", ranked, len(split.train))

    # One thread a user: scoring many users at once uses the cores better than splitting an operator.
    with _threads(1):
        quality = evaluate(
            split, lambda history, at: score_catalogue(model, levels, history, at), user, workers=_cores()
        )
    baseline = evaluate(split, lambda history, at: counts.astype(np.float64))
    result = TrainResult(
        folder=out,
        model=quality,
        popularity=baseline,
        losses=losses,
        train_seconds=trained - started,
        evaluate_seconds=time.monotonic() - trained,
    )
    checkpoint = Checkpoint(
        config=config,
        state=model.state_dict(),
        items=ratings.items,
        titles=ratings.titles,
        levels=levels,
        popular=[int(index) + 1 for index in np.argsort(-counts, kind="stable")],
    )
    metrics = {"seed": seed, "events": len(ratings), "schedule": dataclasses.asdict(schedule)}
    checkpoint.save(out, metrics | result.as_dict())
    return result


def main() -> None:
    """The command line."""
    import click
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    @click.command(context_settings={"show_default": True})
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
    @click.option(
        "--ratings", type=click.Path(path_type=Path), help="CSV: user,item,rating,timestamp[,title]."
    )
    @click.option("--epochs", type=click.IntRange(min=1), default=Schedule.epochs, help="Passes.")
    @click.option("--seed", type=int, default=0, help="Of weights, dropout and sampling.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
    def command(out: Path, ratings: Path | None, epochs: int, seed: int, as_json: bool) -> None:
        """Train an HSTU ranker, by default on MovieLens (100,004 ratings)."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        try:
            data = movielens() if ratings is None else from_csv(ratings)
            with Progress(*columns, console=Console(stderr=True)) as bar:
                tasks = {name: bar.add_task(name, total=None) for name in ("train", "evaluate")}
                result = train(
                    data,
                    out,
                    seed=seed,
                    progress=lambda stage, done, total: bar.update(tasks[stage], completed=done, total=total),
                    schedule=Schedule(epochs=epochs),
                )
        except UserError as error:
            raise click.UsageError(str(error)) from error
        if as_json:
            click.echo(json.dumps(result.as_dict()))
            return
        for name, quality in (("HSTU", result.model), ("popularity", result.popularity)):
            click.echo(f"{name:<11} HR@10 {quality.hr10:.4f}  NDCG@10 {quality.ndcg10:.4f}")
        click.echo(
            f"{result.model.users} users, trained in {result.train_seconds:.0f} s, evaluated in "
            f"{result.evaluate_seconds:.0f} s, saved to {out}"
        )

    command()


if __name__ == "__main__":
    main()
