import torch
from torch import nn

from aoti_pack.compiler import sizes
from aoti_pack.compiler.export import export
from aoti_pack.compiler.sizes import GraphCost, example_sizes, graph_cost, largest_affordable, sweep
from aoti_pack.manifest import Symbol
from aoti_pack.recipe import Recipe

Dim = torch.export.Dim
B, N = Symbol("b", 1, 64), Symbol("n", 1, 8)


def priced(limit: float) -> GraphCost:
    class Priced(GraphCost):
        def affordable(self, sizes) -> bool:
            return self.largest(sizes) <= limit

    return Priced(largest=lambda s: s["b"] * s["n"], total=lambda s: 0.0)


def test_sweep_holds_example_smallest_and_each_symbol_over_its_range() -> None:
    cases, skipped = sweep((B, N), {"b": 3, "n": 5}, priced(1e9))
    assert cases[:2] == [{"b": 3, "n": 5}, {"b": 1, "n": 1}]
    assert {case["b"] for case in cases if case["n"] == 5} == {1, 2, 3, 9, 64}
    assert {case["n"] for case in cases if case["b"] == 3} == {1, 2, 3, 5, 8}
    assert skipped == [] and all(cases.count(case) == 1 for case in cases)


def test_what_the_budget_leaves_out_is_told() -> None:
    cases, skipped = sweep((B, N), {"b": 3, "n": 5}, priced(20))
    assert skipped == ["b=64 needs more memory than a proof may take; tried up to b=20"]
    assert {"b": 20, "n": 1} in cases and {"b": 1, "n": 8} in cases
    assert all(case["b"] * case["n"] <= 20 for case in cases)


def test_fixed_sizes_are_one_case_and_zero_is_tried() -> None:
    assert sweep((), {}, priced(1)) == ([{}], [])
    assert {"b": 0, "n": 5} in sweep((Symbol("b", 0, 4), N), {"b": 3, "n": 5}, priced(1e9))[0]


def test_largest_affordable() -> None:
    assert largest_affordable(B, {"n": 2, "b": 1}, priced(21)) == 10
    assert largest_affordable(B, {"n": 8, "b": 1}, priced(2)) == 1, "at least the minimum"
    assert largest_affordable(B, {"n": 1, "b": 1}, priced(1e9)) == 64


def test_graph_cost_counts_bytes(monkeypatch) -> None:
    class Outer(nn.Module):
        def forward(self, x):
            wide = torch.cat([x, x], 1)  # b x 2n float32
            return (wide.double() + 1)[:, :1]  # twice b x 2n float64, then b x 1

    recipe = Recipe(
        "outer",
        Outer(),
        {"x": torch.ones(3, 5)},
        ["y"],
        {"x": {0: Dim("b", min=1, max=64), 1: Dim("n", min=1, max=8)}},
    )
    cost = graph_cost(recipe, export(recipe, torch.float32, "cpu"))
    assert example_sizes(recipe) == {"b": 3, "n": 5}
    at = {"b": 10, "n": 7}
    assert cost.largest(at) == 10 * 14 * 8
    assert cost.total(at) >= 10 * 14 * 4 + 2 * 10 * 14 * 8
    monkeypatch.setattr(sizes, "LARGEST_TENSOR_BYTES", 10 * 14 * 8)
    assert cost.affordable(at) and not cost.affordable({"b": 11, "n": 7})


def test_graph_cost_of_halved_sizes() -> None:
    """torch writes n // 2 with functions of its own."""

    class Half(nn.Module):
        def forward(self, x):
            return x[:, ::2] + 1

    recipe = Recipe("half", Half(), {"x": torch.ones(3, 9)}, ["y"], {"x": {1: Dim("n", min=4, max=64)}})
    exported = export(recipe, torch.float32, "cpu")
    cost = graph_cost(recipe, exported)
    assert cost.largest({"n": 9}) == 3 * 5 * 4
    assert cost.largest({"n": 64}) == 3 * 32 * 4
