"""The lowerings that replace inductor's: the same results, and inductor's own afterwards."""

from __future__ import annotations

import pytest
import torch
from packages import compiled_package

from aoti_pack.compiler.archive import unpack
from aoti_pack.compiler.cpu_lowerings import cpu_lowerings
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.package_files import EAGER_FILE
from aoti_pack.recipe import load_recipe


def test_inductors_own_lowerings_are_back_afterwards() -> None:
    from torch._inductor.lowering import lowerings

    ops = (torch.ops.aten.addmm.default, torch.ops.aten.index.Tensor, torch.ops.aten.embedding.default)
    before = [lowerings[op] for op in ops]
    with pytest.raises(KeyError), cpu_lowerings("cpu"):
        assert all(lowerings[op] is not old for op, old in zip(ops, before, strict=True))
        raise KeyError
    assert [lowerings[op] for op in ops] == before
    with cpu_lowerings("cuda"):
        assert [lowerings[op] for op in ops] == before


@pytest.fixture(scope="module")
def indexing(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledModel, torch.nn.Module]:
    folder = compiled_package("indexing")
    unpacked = tmp_path_factory.mktemp("indexing")
    unpack(folder / "model.pt2", unpacked)
    return CompiledModel(unpacked, "cpu"), torch.load(folder / EAGER_FILE, weights_only=False)


def test_every_kind_of_look_up_equals_eager(indexing: tuple[CompiledModel, torch.nn.Module], recipes) -> None:
    compiled, eager = indexing
    recipe = load_recipe(f"{recipes}/indexing.py", {})
    for seed, rows in enumerate((1, 2, 7, 16)):
        inputs = recipe.draw(seed, {"b": rows})
        for got, wanted in zip(compiled.run(list(inputs.values())), eager(**inputs), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, wrong) for name in ("ids", "columns", "slots") for wrong in (1000, -1000)),
        ("ids", -1),  # eager refuses it in an embedding; an index would wrap around
        ("divisors", 0),
    ],
)
def test_what_eager_refuses_is_an_exception(
    indexing: tuple[CompiledModel, torch.nn.Module], recipes, name: str, wrong: int
) -> None:
    """Not the end of the process; and the package goes on working."""
    compiled, _ = indexing
    inputs = dict(load_recipe(f"{recipes}/indexing.py", {}).draw(0, {"b": 7}))
    good = compiled.run(list(inputs.values()))
    spoiled = {key: value.clone() for key, value in inputs.items()}
    spoiled[name][3, 1] = wrong
    with pytest.raises(RuntimeError):
        compiled.run(list(spoiled.values()))
    for before, after in zip(good, compiled.run(list(inputs.values())), strict=True):
        assert torch.equal(before, after)
