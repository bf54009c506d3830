"""Two or more served models under the same load, interleaved: A B A B, medians over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoti_pack.bench.load import Endpoint, Measured, closed_loop

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Row:
    """One model at one concurrency: medians over the rounds.

    speedup: this model's throughput over the baseline's, as the median of the ratios within each round;
    `lowest` and `highest` are the smallest and the largest of these ratios.
    """

    model: str
    concurrency: int
    p50_ms: float
    p99_ms: float
    throughput: float
    speedup: float
    lowest: float
    highest: float


def compare(
    endpoints: Mapping[str, Endpoint],
    inputs: Sequence[Mapping[str, torch.Tensor]],
    *,
    baseline: str,
    concurrencies: Sequence[int],
    rounds: int,
    seconds: float,
    progress: Callable[[str], None],
) -> list[Row]:
    """Measure every endpoint at every concurrency; all rows of a round see the same moments of the machine."""
    rows: list[Row] = []
    for concurrency in concurrencies:
        runs: dict[str, list[Measured]] = {name: [] for name in endpoints}
        for number in range(rounds):
            # Every other round the other way round: who runs first gains nothing by it.
            order = list(endpoints.items())
            for name, endpoint in order if number % 2 == 0 else reversed(order):
                progress(f"concurrency {concurrency}, round {number + 1}/{rounds}: {name}")
                runs[name].append(closed_loop(endpoint, inputs, concurrency=concurrency, seconds=seconds))
        rows += [_row(name, concurrency, measured, runs[baseline]) for name, measured in runs.items()]
    return rows


def _row(name: str, concurrency: int, runs: Sequence[Measured], baseline: Sequence[Measured]) -> Row:
    ratios = [mine.throughput / theirs.throughput for mine, theirs in zip(runs, baseline, strict=True)]
    return Row(
        name,
        concurrency,
        statistics.median(run.p50_ms for run in runs),
        statistics.median(run.p99_ms for run in runs),
        statistics.median(run.throughput for run in runs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )
