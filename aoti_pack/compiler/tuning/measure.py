"""Rates of compiled packages, taken side by side: every candidate sees the same noise of the machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aoti_pack.errors import UserError

if TYPE_CHECKING:
    import torch

_ROUNDS = 3


@dataclass(frozen=True)
class Split:
    """`instances` copies that run at the same time, each on `threads` threads."""

    instances: int
    threads: int


@dataclass(frozen=True)
class Load:
    """What one measurement runs: an unpacked package on inputs of `rows` rows (1 where nothing is joined)."""

    package: Path
    inputs: Path
    rows: int
    split: Split


@dataclass(frozen=True)
class Rate:
    """Rows a second over all instances, and the median time of one run in milliseconds."""

    rows_per_s: float
    p50_ms: float


class Workers:
    """Processes that run packages, one for each instance that may run at the same time. A context manager."""

    def __init__(self, count: int, device: str) -> None:
        self.count = count
        self._device = device
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        for _ in range(self.count):
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "aoti_pack.compiler.tuning.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._running:
            worker.kill()
        for worker in self._running:
            worker.communicate()

    def rate(self, load: Load, seconds: float) -> Rate:
        """The rate of `load` over about `seconds`. UserError when a worker dies of it."""
        busy = self._running[: load.split.instances]
        self._ask(
            busy,
            {
                "do": "load",
                "package": str(load.package),
                "inputs": str(load.inputs),
                "threads": load.split.threads,
                "device": self._device,
            },
        )
        found = self._ask(busy, {"do": "run", "seconds": seconds})
        rows = sum(load.rows * one["runs"] / one["seconds"] for one in found)
        return Rate(rows, 1e3 * statistics.median(one["p50_s"] for one in found))

    def compare(self, loads: Sequence[Load], seconds: float) -> list[Rate]:
        """The rate of each of `loads`: medians of rounds in which all take turns."""
        rounds = [[self.rate(load, seconds / _ROUNDS) for load in loads] for _ in range(_ROUNDS)]
        return [
            Rate(
                statistics.median(one.rows_per_s for one in column),
                statistics.median(one.p50_ms for one in column),
            )
            for column in zip(*rounds, strict=True)
        ]

    def _ask(self, workers: Sequence[subprocess.Popen[str]], request: Mapping[str, Any]) -> list[Any]:
        for worker in workers:
            if worker.stdin is None:
                raise AssertionError("a worker without input")
            try:
                worker.stdin.write(json.dumps(request) + "\n")
                worker.stdin.flush()
            except BrokenPipeError:
                raise _died(worker) from None
        return [self._answer(worker) for worker in workers]

    @staticmethod
    def _answer(worker: subprocess.Popen[str]) -> Any:
        line = worker.stdout.readline() if worker.stdout is not None else ""
        if not line:
            raise _died(worker)
        return json.loads(line)


def _died(worker: subprocess.Popen[str]) -> UserError:
    return UserError(
        f"a process that measures ended with {worker.wait()}",
        mend="its own words stand above; try without --tune",
    )


def saved(inputs: Sequence[torch.Tensor], file: Path) -> None:
    """Write `inputs` to `file` for the workers."""
    import torch

    torch.save(list(inputs), file)
