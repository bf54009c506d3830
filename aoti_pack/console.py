"""What users see: one live line for long work, tables for results, nothing of it on stdout with `--json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aoti_pack.manifest import Manifest, TensorSpec

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """A callback that shows the step at work: a spinner in a terminal, one line a step elsewhere.

    What a recipe prints in the meantime goes to stderr: stdout holds the result and nothing else.
    """
    with redirect_stdout(sys.stderr):
        if not err.is_terminal:
            yield _lines(title)
            return
        with err.status(Text(title)) as status:
            yield lambda step: status.update(Text(f"{title}: {step}"))


def _lines(title: str) -> Callable[[str], None]:
    """One line a step; a step that is told again, such as a percentage that did not move, is not printed."""
    last = ""

    def show_step(step: str) -> None:
        nonlocal last
        if step != last:
            err.print(f"{title}: {step}", markup=False, soft_wrap=True)
        last = step

    return show_step


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table; every cell as the text that it is: `[b, 16]` is a shape, not rich's markup."""
    made = Table(title=Text(title), title_justify="left", show_edge=False, show_header=any(columns))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def show(made: Table) -> None:
    """Print a table on stdout."""
    out.print(made)


def pairs(title: str, values: Mapping[str, Any]) -> Table:
    """A two-column table of names and values."""
    return table(title, ("", ""), list(values.items()))


def tensor_rows(specs: Sequence[TensorSpec]) -> list[tuple[str, str, str]]:
    """(name, dtype, shape) of each tensor."""
    return [(spec.name, spec.dtype, "[" + ", ".join(map(str, spec.shape)) + "]") for spec in specs]


def show_manifest(manifest: Manifest) -> None:
    """The whole contract as tables."""
    target, batching = manifest.target, manifest.batching
    show(
        pairs(
            f"{manifest.name}",
            {
                "recipe": manifest.recipe.source,
                "settings": " ".join(f"{k}={v}" for k, v in manifest.recipe.settings.items()) or "-",
                "executor": manifest.executor,
                "wire form": manifest.wire,
                "dtype": manifest.dtype,
                "torch": manifest.torch,
                "target": f"{target.device} {target.arch} march={target.march} {target.simd}".rstrip(),
                "cpu features": " ".join(target.cpu_features) or "-",
                "package": f"{manifest.package.path} sha256 {manifest.package.sha256[:16]}…",
                "constants": f"{len(manifest.constants)}, {sum(c.updatable for c in manifest.constants)} updatable",
                "batching": f"proved up to {batching.max} rows"
                if batching.proved
                else f"no: {batching.reason}",
            },
        )
    )
    show(table("inputs", ("name", "dtype", "shape"), tensor_rows(manifest.inputs)))
    show(table("outputs", ("name", "dtype", "shape"), tensor_rows(manifest.outputs)))
    show(table("symbols", ("name", "min", "max"), [(s.name, s.min, s.max) for s in manifest.symbols]))
    if manifest.baked:
        show(table("baked in", ("name", "value"), [(b.name, repr(b.value)) for b in manifest.baked]))
    show_proof(manifest)
    show_tuning(manifest)


def show_tuning(manifest: Manifest) -> None:
    """What was tried, if the package was tuned: one row a trial."""
    tuning = manifest.tuning
    if tuning is None:
        return
    rows = [
        (
            str(trial.options.get("dtype")),
            " ".join(name for name, value in trial.options.items() if value is True) or "-",
            f"{trial.instances} x {trial.threads}",
            trial.rows,
            "-" if trial.rows_per_s is None else f"{trial.rows_per_s:.0f}",
            "-" if trial.p50_ms is None else f"{trial.p50_ms:.2f}",
            trial.verdict,
        )
        for trial in tuning.trials
    ]
    columns = ("dtype", "options", "instances x threads", "rows a run", "rows/s", "p50 ms", "")
    show(table(f"tuning on {tuning.cores} cores", columns, rows))
    for left_out in tuning.skipped:
        out.print(f"  not tried: {left_out}", markup=False)


def show_proof(manifest: Manifest) -> None:
    """The proof: one row for each case and output."""
    proof = manifest.proof
    rows = [
        (
            " ".join(f"{k}={v}" for k, v in case.sizes.items()) or "fixed",
            output.name,
            f"{output.compiled_eager:.2e}",
            _number(output.compiled_float64),
            _number(output.eager_float64),
        )
        for case in proof.cases
        for output in case.outputs
    ]
    columns = ("sizes", "output", "compiled - eager", "compiled - float64", "eager - float64")
    show(table(f"proof: max |difference|, allowed {proof.atol:g} + {proof.rtol:g} |expected|", columns, rows))
    for left_out in proof.skipped:
        out.print(f"  {left_out}", markup=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
