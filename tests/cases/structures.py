"""The package of tests/recipes/structure.py beside its eager model, for the cases that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from packages import RECIPES, compiled_package

import aoti_pack
from aoti_pack.compiler.loaded import LoadedPackage
from aoti_pack.package_files import EAGER_FILE
from aoti_pack.recipe import Recipe, load_recipe
from aoti_pack.structure import call, leaves, map_leaves


@dataclass(frozen=True)
class Structures:
    folder: Path
    recipe: Recipe
    package: LoadedPackage
    eager: torch.nn.Module

    def draw(self, seed: int, **sizes: int) -> dict[str, Any]:
        return dict(self.recipe.draw(seed, sizes))

    def expected(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What eager says in float64, by path; its inputs are copies."""

        def double(_path: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return leaf.double() if leaf.is_floating_point() else leaf.clone()

        with torch.no_grad():
            return dict(leaves(call(self.eager, map_leaves(inputs, double))))


def structures() -> Structures:
    folder = compiled_package("structure")
    recipe = load_recipe(f"{RECIPES / 'structure'}.py:recipe", {})
    eager = torch.load(folder / EAGER_FILE, weights_only=False).double()
    return Structures(folder, recipe, aoti_pack.load(folder), eager)


def assert_equal(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert list(got) == list(wanted)
    for name, tensor in got.items():
        torch.testing.assert_close(tensor.double(), wanted[name].double(), rtol=1e-5, atol=1e-4, msg=name)
