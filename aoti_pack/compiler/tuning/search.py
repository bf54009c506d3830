"""Which way of compiling and serving is fastest on this machine, among those that pass the proof."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.compiler.archive import unpack
from aoti_pack.compiler.export import export
from aoti_pack.compiler.lower import lower
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.prove import Reference, compare, make_reference, prove
from aoti_pack.compiler.prove_batching import prove_batching
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.sizes import example_sizes
from aoti_pack.compiler.target import parse_dtype
from aoti_pack.compiler.tuning.measure import Load, Rate, Split, Workers, saved
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import Batching, Trial, Tuning
from aoti_pack.progress import Progress
from aoti_pack.recipe import Recipe

if TYPE_CHECKING:
    import torch

_SEED = 7
_MEASURE_S = 1.5  # of one candidate, over all rounds
_FIRST_ROWS = 16  # of a run while compile options are compared
_MOST_ROWS = 256
# A way must be this much faster to be preferred to a simpler one: less is the machine's noise.
_CLEARLY = 1.03


@dataclass(frozen=True)
class TuneRequest:
    """What tuning may do: take about `budget_s` seconds, and try `dtypes` beside the recipe's own.

    Other dtypes are the caller's to allow: clients send and get tensors in them.
    """

    budget_s: float = 300.0
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Built:
    """A variant that passed the proof, unpacked."""

    options: CompileOptions
    folder: Path
    batching: Batching
    reference: Reference

    def rows_allowed(self) -> int:
        return min(self.batching.max, _MOST_ROWS) if self.batching.proved else 1

    def draw(self, rows: int) -> list[torch.Tensor]:
        """Inputs of the recipe's own sampling, with `rows` rows and otherwise the example's sizes."""
        sizes = example_sizes(self.reference.recipe)
        if self.batching.symbol is not None and self.batching.proved:
            sizes[self.batching.symbol] = rows
        exported = self.reference.exported
        return exported.flatten(self.reference.draw(_SEED, sizes))


@dataclass
class _Search:
    recipe: Recipe
    request: TuneRequest
    progress: Progress
    work: Path
    workers: Workers
    cores: int
    started: float = field(default_factory=time.monotonic)
    trials: list[Trial] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    slowest_build_s: float = 0.0

    def left_s(self) -> float:
        return self.request.budget_s - (time.monotonic() - self.started)

    def build(self, options: CompileOptions) -> _Built | None:
        """`options` compiled and proved; None, with the reason among the trials, where the proof fails."""
        start = time.monotonic()
        self.progress(f"tuning: compiling {_text(options)}")
        built = self._build(options, self.work / str(len(list(self.work.iterdir()))))
        self.slowest_build_s = max(self.slowest_build_s, time.monotonic() - start)
        return built

    def _build(self, options: CompileOptions, folder: Path) -> _Built | None:
        folder.mkdir()
        dtype = parse_dtype(options.dtype or "float32")
        try:
            exported = export(self.recipe, dtype, options.device)
            reference = make_reference(self.recipe, exported, dtype, options.device)
            lower(exported, folder / "model.pt2", options)
            unpack(folder / "model.pt2", folder / "package")
            compiled = CompiledModel(folder / "package", options.device)
            prove(reference, compiled, _SEED, self.progress)
            batching = prove_batching(reference, compiled, _SEED, self.progress)
        except (ProofError, UserError) as error:
            self.trials.append(Trial(_varied(options), 1, 1, 1, None, None, f"refused: {error}"))
            return None
        return _Built(options, folder / "package", batching, reference)

    def rates(self, loads: Sequence[tuple[_Built, int, Split]]) -> list[Rate]:
        """Rates of (variant, rows, split), taken in turns."""
        with tempfile.TemporaryDirectory(dir=self.work.parent, prefix="inputs-") as name:
            entries = []
            for number, (built, rows, split) in enumerate(loads):
                file = Path(name) / f"{number}.pt"
                saved(built.draw(rows), file)
                entries.append(Load(built.folder, file, rows, split))
            return self.workers.compare(entries, _MEASURE_S)


def tune(
    recipe: Recipe, options: CompileOptions, request: TuneRequest, progress: Progress
) -> tuple[CompileOptions, Tuning]:
    """The fastest of the options that may follow from `options` (its dtype is set), and how to serve it.

    Compile options are compared first, one change at a time and then those that helped together; then, for the
    winner, instances x threads and the rows of a run. Each is measured on the recipe's own samples, in turns with
    its rivals, as rows a second with all instances busy. UserError when not even `options` themselves pass.
    """
    cores = len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="aoti-pack-tune-") as name,
        Workers(1 if options.device != "cpu" else cores, options.device) as workers,
    ):
        work = Path(name) / "variants"
        work.mkdir()
        search = _Search(recipe, request, progress, work, workers, cores)
        base = search.build(options)
        if base is None:
            raise ProofError(search.trials[-1].verdict.removeprefix("refused: "))
        best = _best_options(search, base)
        split, rows, shapes = _best_shape(search, best)
        trials = (*search.trials, *shapes)
        return best.options, Tuning(
            cores, split.instances, split.threads, rows, trials, tuple(search.skipped)
        )


def _best_options(search: _Search, base: _Built) -> _Built:
    best, helped = base, []
    for change in _changes(base.options, search.request):
        rival = _try(search, base, best, change)
        if rival is not None:
            helped.append(change)
            best = rival
    # What helped alone is tried together; of two dtypes the later, faster one stays.
    together: dict[str, Any] = {}
    for change in helped:
        together |= change
    if len(together) > 1 and replace(base.options, **together) != best.options:
        best = _try(search, base, best, together) or best
    return best


def _try(search: _Search, base: _Built, best: _Built, change: dict[str, Any]) -> _Built | None:
    """The variant of `base` with `change` if it is clearly faster than `best`, else None."""
    options = replace(base.options, **change)
    if search.left_s() < search.slowest_build_s:
        search.skipped.append(f"{_text(options)}: no time left of {search.request.budget_s:g} s")
        return None
    rival = search.build(options)
    if rival is None:
        return None
    if (options.dtype != base.options.dtype) and (reason := _too_far(base, rival)):
        search.trials.append(Trial(_varied(options), 1, 1, 1, None, None, f"refused: {reason}"))
        return None
    search.progress(f"tuning: measuring {_text(options)}")
    rows = min(_FIRST_ROWS, best.rows_allowed(), rival.rows_allowed())
    split = _splits(search)[-1]
    ours, theirs = search.rates([(best, rows, split), (rival, rows, split)])
    faster = theirs.rows_per_s > _CLEARLY * ours.rows_per_s
    verdict = f"{theirs.rows_per_s / ours.rows_per_s:.2f}x of {_text(best.options)}"
    search.trials.append(_trial(options, split, rows, theirs, verdict))
    return rival if faster else None


def _too_far(base: _Built, rival: _Built) -> str | None:
    """Why the answers in another dtype are not those of the recipe's own, or None."""
    reference = base.reference
    sizes = example_sizes(reference.recipe)
    wanted = reference.eager(reference.draw(_SEED, sizes))
    got = rival.reference.eager(rival.reference.draw(_SEED, sizes))
    for spec, mine, theirs in zip(rival.reference.exported.outputs, wanted, got, strict=True):
        try:
            compare(f"output {spec.name!r}", theirs.to(mine.dtype), mine, rival.reference.tolerance(spec))
        except ProofError as error:
            return str(error)
    return None


def _best_shape(search: _Search, best: _Built) -> tuple[Split, int, list[Trial]]:
    """The split and rows of a run with the highest rate; of equals, the fewest rows (the shortest wait)."""
    search.progress("tuning: instances, threads and batch size")
    shapes = [(split, rows) for split in _splits(search) for rows in _row_counts(best.rows_allowed())]
    rates = search.rates([(best, rows, split) for split, rows in shapes])
    enough = max(rate.rows_per_s for rate in rates) / _CLEARLY
    good = [index for index, rate in enumerate(rates) if rate.rows_per_s >= enough]
    chosen = min(good, key=lambda index: (shapes[index][1], -rates[index].rows_per_s))
    trials = [
        _trial(best.options, split, rows, rate, "chosen" if index == chosen else "slower")
        for index, ((split, rows), rate) in enumerate(zip(shapes, rates, strict=True))
    ]
    return *shapes[chosen], trials


def _changes(options: CompileOptions, request: TuneRequest) -> Iterator[dict[str, Any]]:
    if not options.freezing and not options.updatable:
        yield {"freezing": True}
    if not options.max_autotune:
        yield {"max_autotune": True}
    for dtype in request.dtypes:
        if dtype != options.dtype:
            yield {"dtype": dtype}


def _splits(search: _Search) -> list[Split]:
    """Every even way to use all cores, the most instances last."""
    if search.workers.count == 1:
        return [Split(1, search.cores)]
    counts = [count for count in range(1, search.cores + 1) if search.cores % count == 0]
    return [Split(count, search.cores // count) for count in counts]


def _row_counts(most: int) -> list[int]:
    """1, 4, 16, … and `most` itself."""
    steps = itertools.takewhile(lambda rows: rows < most, (4**n for n in itertools.count()))
    return [*steps, most]


def _varied(options: CompileOptions) -> dict[str, int | float | bool | str | None]:
    return {"dtype": options.dtype, "freezing": options.freezing, "max_autotune": options.max_autotune}


def _text(options: CompileOptions) -> str:
    flags = [name for name, value in _varied(options).items() if value is True]
    return " ".join([str(options.dtype), *flags])


def _trial(options: CompileOptions, split: Split, rows: int, rate: Rate, verdict: str) -> Trial:
    return Trial(
        _varied(options), split.instances, split.threads, rows, rate.rows_per_s, rate.p50_ms, verdict
    )
