"""The proof that rows do not see each other, without which no two requests are ever joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aoti_pack.compiler.export import Exported
from aoti_pack.compiler.prove import Reference, compare, sizes_text
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.sizes import Sizes, example_sizes, graph_cost, largest_affordable
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import Batching, Symbol, size_names
from aoti_pack.progress import Progress
from aoti_pack.recipe import Inputs, Tolerance, leaves, map_leaves

if TYPE_CHECKING:
    import torch

# In float64 a row that sees its neighbours cannot hide behind rounding.
_STRICT = Tolerance(1e-7, 1e-9)
_ROWS = 5
# NaN spreads through arithmetic but not through comparisons; large values of both signs do.
_POISONS = (math.nan, math.inf, 1e4, -1e4)
_SAMPLED_ROWS = 4


def prove_batching(reference: Reference, compiled: CompiledModel, seed: int, progress: Progress) -> Batching:
    """Whether requests may be joined along the recipe's batch symbol, and up to how many rows.

    Shown on the compiled package within the tolerance and on the eager model in float64 nearly exactly: each
    row alone equals that row in a batch, a permuted batch gives permuted answers, and neighbours that are
    poisoned (NaN, infinite or large floating inputs, other draws in integer ones) change nothing. A model that
    fails is still
    packaged, with `proved` false and the reason.
    """
    exported, recipe = reference.exported, reference.recipe
    if recipe.batch is None:
        return Batching(False, None, 0, "the recipe names no batch symbol")
    symbol = next((s for s in exported.symbols if s.name == recipe.batch), None)
    if symbol is None:
        return Batching(False, None, 0, f"no input has a dynamic axis called {recipe.batch!r}")
    if reason := _shape_reason(exported, symbol):
        return Batching(False, symbol.name, 0, reason)
    small = {s.name: s.min for s in exported.symbols}
    largest = largest_affordable(symbol, small, graph_cost(recipe, exported))
    few = example_sizes(recipe) | {symbol.name: min(_ROWS, largest)}
    try:
        for sizes in (few, small | {symbol.name: largest}):
            progress(f"batching proof {sizes_text(sizes)}")
            _rows_are_independent(reference, compiled, seed, sizes, symbol.name)
    except ProofError as error:
        return Batching(False, symbol.name, 0, str(error))
    return Batching(True, symbol.name, largest)


def _shape_reason(exported: Exported, symbol: Symbol) -> str | None:
    """What in the shapes alone forbids joining requests along `symbol`, or None."""
    for kind, specs in (("input", exported.inputs), ("output", exported.outputs)):
        for spec in specs:
            if spec.leading_symbol != symbol.name:
                return f"axis 0 of {kind} {spec.name!r} does not count {symbol.name!r}"
            if any(symbol.name in size_names(dim) for dim in spec.shape[1:]):
                return f"{kind} {spec.name!r} has {symbol.name!r} on a later axis too"
    if symbol.min > 1:
        return f"{symbol.name!r} begins at {symbol.min}, so no row can be tried alone"
    return None


def _rows_are_independent(
    reference: Reference, compiled: CompiledModel, seed: int, sizes: Sizes, symbol: str
) -> None:
    import torch

    inputs = reference.draw(seed, sizes)
    rows = sizes[symbol]
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    variants = {"with its neighbours permuted": (_rows(inputs, order), order)}
    for row in _sampled(rows):
        variants[f"alone (row {row})"] = (_rows(inputs, torch.tensor([row])), torch.tensor([row]))
    if rows > 1:
        other = reference.draw(seed + 1, sizes)
        keep = rows // 2
        for poison in _POISONS:
            given = _poison(inputs, other, keep, poison)
            if _is_taken(reference, given):
                how = f"with its neighbours poisoned ({poison:g})"
                variants[how] = (given, torch.tensor([keep]))

    def compiled_run(given: Inputs) -> list[torch.Tensor]:
        return reference.compiled(compiled, given, sizes_text(sizes))

    _compare_variants(reference, compiled_run(inputs), variants, compiled_run, None)
    exact = reference.float64(inputs)
    if exact is not None:
        _compare_variants(reference, exact, variants, lambda given: reference.float64(given) or [], _STRICT)


def _compare_variants(
    reference: Reference,
    whole: list[torch.Tensor],
    variants: Mapping[str, tuple[Inputs, torch.Tensor]],
    run: Callable[[Inputs], list[torch.Tensor]],
    tolerance: Tolerance | None,
) -> None:
    for how, (given, kept) in variants.items():
        found = run(given)
        for spec, full, part in zip(reference.exported.outputs, whole, found, strict=True):
            # A poisoned batch has all its rows; only the kept one is promised.
            mine = part if part.shape[0] == len(kept) else part[kept]
            allowed = tolerance or reference.tolerance(spec)
            where = f"rows see each other: output {spec.name!r} of a row {how}"
            compare(where, mine, full[kept], allowed)


def _sampled(rows: int) -> list[int]:
    step = max(1, (rows - 1) // (_SAMPLED_ROWS - 1))
    return sorted({*range(0, rows, step), rows - 1})


def _rows(inputs: Inputs, index: torch.Tensor) -> Inputs:
    import torch

    def pick(_path: str, leaf: object) -> object:
        return leaf[index.to(leaf.device)].contiguous() if isinstance(leaf, torch.Tensor) else leaf

    picked: Inputs = map_leaves(inputs, pick)
    return picked


def _is_taken(reference: Reference, inputs: Inputs) -> bool:
    """Whether eager takes `inputs` at all: ids that travel as floats, say, are no ids when they are NaN."""
    try:
        reference.eager(inputs)
    except UserError:
        return False
    return True


def _poison(inputs: Inputs, other: Inputs, keep: int, value: float) -> Inputs:
    """`inputs` where every row but `keep` is `value` (floating) or taken from another draw."""
    import torch

    others = dict(leaves(other))

    def spoil(path: str, leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        spoiled = torch.full_like(leaf, value) if leaf.is_floating_point() else others[path].clone()
        spoiled[keep] = leaf[keep]
        return spoiled

    poisoned: Inputs = map_leaves(inputs, spoil)
    return poisoned
