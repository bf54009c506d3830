"""Which sizes a proof tries, and which it can afford."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoti_pack.compiler.export import Exported
from aoti_pack.manifest import Symbol
from aoti_pack.recipe import Recipe, dim_name, leaves

Sizes = dict[str, int]

# A proof runs eager in float64 beside the compiled model: these keep a case within seconds and a few GiB.
LARGEST_TENSOR_BYTES = 192 << 20
TOTAL_BYTES = 3 << 30


@dataclass(frozen=True)
class GraphCost:
    """Bytes that the graph's intermediate tensors take at given sizes, read off the exported program."""

    largest: Callable[[Sizes], float]
    total: Callable[[Sizes], float]

    def affordable(self, sizes: Sizes) -> bool:
        """Whether a case of these sizes stays within the proof's budget."""
        return self.largest(sizes) <= LARGEST_TENSOR_BYTES and self.total(sizes) <= TOTAL_BYTES


def graph_cost(recipe: Recipe, exported: Exported) -> GraphCost:
    """Lower every node's shape expression into one function of the symbols' sizes."""
    import sympy
    import torch
    from torch.utils._sympy import functions

    free: list[Any] = []
    names: list[str] = []
    placeholders = {node.name: node for node in exported.program.graph.nodes if node.op == "placeholder"}
    by_path = {
        spec.name: placeholders[name].meta["val"]
        for spec, name in zip(exported.inputs, exported.placeholders, strict=True)
    }
    for path, dims in recipe.dynamic.items():
        for axis, dim in dims.items():
            if dim_name(dim) not in names:
                names.append(dim_name(dim))
                free.append(by_path[path].shape[axis].node.expr)
    costs: set[Any] = set()
    counts: list[Any] = []
    for node in exported.program.graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        expression = sympy.Integer(value.element_size())
        for size in value.shape:
            expression *= size.node.expr if isinstance(size, torch.SymInt) else size
        if set(expression.free_symbols) <= set(free):
            costs.add(expression)
            counts.append(expression)
    unique = sorted(costs, key=str) or [sympy.Integer(0)]
    weights = [counts.count(expression) for expression in unique]
    # torch writes sizes such as n // 2 with sympy functions of its own, which compute on numbers as they are.
    of_torch = {name: kind for name, kind in vars(functions).items() if isinstance(kind, type)}
    evaluate = sympy.lambdify(free, unique, modules=[of_torch, "math"])

    def values(sizes: Sizes) -> list[float]:
        return [float(value) for value in evaluate(*(sizes[name] for name in names))]

    return GraphCost(
        largest=lambda sizes: max(values(sizes)),
        total=lambda sizes: sum(w * v for w, v in zip(weights, values(sizes), strict=True)),
    )


def example_sizes(recipe: Recipe) -> Sizes:
    """The sizes of the recipe's own example."""
    found = dict(leaves(recipe.inputs))
    return {
        dim_name(dim): int(found[path].shape[axis])
        for path, dims in recipe.dynamic.items()
        for axis, dim in dims.items()
    }


def sweep(
    symbols: Sequence[Symbol], example: Mapping[str, int], cost: GraphCost
) -> tuple[list[Sizes], list[str]]:
    """The cases of a proof, and what was left out of them and why.

    The example; every symbol at its smallest; each symbol alone at its smallest, 2, an odd size in between
    and its largest, others as in the example (or smaller, where the budget asks for it).
    """
    cases: list[Sizes] = [dict(example), {symbol.name: symbol.min for symbol in symbols}]
    skipped: list[str] = []
    for symbol in symbols:
        for size in _interesting(symbol):
            case = dict(example) | {symbol.name: size}
            if not cost.affordable(case):
                case = {other.name: other.min for other in symbols} | {symbol.name: size}
            if not cost.affordable(case):
                case[symbol.name] = largest_affordable(symbol, case, cost)
                skipped.append(
                    f"{symbol.name}={size} needs more memory than a proof may take; "
                    f"tried up to {symbol.name}={case[symbol.name]}"
                )
            cases.append(case)
    return list(_distinct(cases)), skipped


def largest_affordable(symbol: Symbol, sizes: Sizes, cost: GraphCost) -> int:
    """The largest size of `symbol` within the budget, other sizes given; at least its minimum."""
    low, high = symbol.min, symbol.max
    while low < high:
        middle = (low + high + 1) // 2
        if cost.affordable(sizes | {symbol.name: middle}):
            low = middle
        else:
            high = middle - 1
    return low


def _interesting(symbol: Symbol) -> list[int]:
    middle = math.isqrt(max(symbol.min, 1) * symbol.max) | 1
    wanted = (symbol.min, 2, middle, symbol.max)
    return sorted({size for size in wanted if symbol.min <= size <= symbol.max})


def _distinct(cases: Sequence[Sizes]) -> Iterator[Sizes]:
    seen: list[Sizes] = []
    for case in cases:
        if case not in seen:
            seen.append(case)
            yield case
