"""What a recipe may say: a slip is told by the recipe's own names, before anything is exported."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from aoti_pack.errors import UserError
from aoti_pack.fill_value import fill_fault
from aoti_pack.manifest import WIRE_DATATYPES
from aoti_pack.recipe import Recipe, dim_name
from aoti_pack.structure import children, leaves


def check_recipe(recipe: Recipe) -> None:
    """UserError naming the first field of `recipe` that is wrong, what was expected and what came."""
    if not isinstance(recipe.name, str) or not recipe.name.strip():
        raise UserError(f"a recipe's name must be a text that is not empty, got {recipe.name!r}")
    inputs = _check_inputs(recipe)
    for path, dims in recipe.dynamic.items():
        _check_dims(recipe, path, dims, inputs)
    _check_ranges(recipe, inputs)
    _check_optional(recipe, inputs)
    _check_constant_examples(recipe, inputs)
    _check_tolerance(recipe)
    _check_outputs(recipe)


def _fault(recipe: Recipe, problem: str, mend: str | None = None) -> UserError:
    return UserError(f"recipe {recipe.name!r}: {problem}", mend=mend)


def _check_inputs(recipe: Recipe) -> dict[str, Any]:
    import torch

    if not isinstance(recipe.inputs, Mapping):
        raise _fault(
            recipe, f"inputs must be a dict of forward's arguments, got {type(recipe.inputs).__name__}"
        )
    paths = [path for path, _ in leaves(recipe.inputs)]
    for path in paths:
        if paths.count(path) > 1:
            raise _fault(recipe, f"two inputs have the path {path!r}", "use keys without dots")
        if not path or not path.isprintable():
            raise _fault(recipe, f"the input path {path!r} is empty or cannot be printed")
    found = dict(leaves(recipe.inputs))
    for path, leaf in found.items():
        _check_leaf(recipe, path, leaf)
    _check_dataclasses(recipe)
    if not any(isinstance(leaf, torch.Tensor) for leaf in found.values()):
        raise _fault(recipe, "it has no tensor inputs")
    return found


def _check_leaf(recipe: Recipe, path: str, leaf: Any) -> None:
    import torch

    plain = isinstance(leaf, int | float | str | None) and not isinstance(leaf, enum.Enum)
    if not plain and not isinstance(leaf, torch.Tensor):
        raise _fault(
            recipe,
            f"the input {path!r} is a {type(leaf).__name__}, expected a tensor, a number, a bool, a text or None",
            "set it inside the model",
        )


def _check_dataclasses(recipe: Recipe) -> None:
    from torch.utils import _pytree as pytree

    found: list[tuple[str, Any]] = list(recipe.inputs.items())
    while found:
        path, value = found.pop()
        inner = children(value)
        if (
            inner is not None
            and dataclasses.is_dataclass(value)
            and type(value) not in pytree.SUPPORTED_NODES
        ):
            raise _fault(
                recipe,
                f"the input {path!r} is a dataclass {type(value).__name__} that torch.export does not know",
                f"call torch.export.register_dataclass({type(value).__name__})",
            )
        found += [(f"{path}.{key}", child) for key, child in inner or ()]


def _check_dims(recipe: Recipe, path: str, dims: Mapping[int, Any], inputs: Mapping[str, Any]) -> None:
    import torch

    leaf = inputs.get(path)
    if not isinstance(leaf, torch.Tensor):
        raise _fault(
            recipe, f"dynamic names {path!r}, which is not a tensor input; there are {', '.join(inputs)}"
        )
    for axis, dim in dims.items():
        if not 0 <= axis < leaf.dim():
            raise _fault(recipe, f"dynamic[{path!r}] names axis {axis} of a tensor of rank {leaf.dim()}")
        named = hasattr(dim, "min") and hasattr(dim, "max") and hasattr(dim, "__name__")
        if not named or not dim_name(dim).isidentifier():
            raise _fault(
                recipe,
                f"dynamic[{path!r}][{axis}] is {dim!r}, expected a torch.export.Dim with a name and a range",
                'write torch.export.Dim("b", min=1, max=64)',
            )
        size = leaf.shape[axis]
        if size < 2:
            raise _fault(
                recipe,
                f"the example of {path!r} has size {size} on the dynamic axis {axis}",
                "give an example with 2 or more: torch.export makes sizes 0 and 1 static",
            )
        if not dim.min <= size <= dim.max:
            raise _fault(
                recipe,
                f"the example of {path!r} has size {size} on axis {axis}, "
                f"outside {dim_name(dim)} = {dim.min}..{dim.max}",
            )


def _check_constant_examples(recipe: Recipe, inputs: Mapping[str, Any]) -> None:
    """An integer input that is always the same value would make every proof say nothing about it."""
    import torch

    if recipe.sample is not None:
        return
    for path, leaf in inputs.items():
        if not isinstance(leaf, torch.Tensor) or leaf.dtype.is_floating_point or leaf.dtype == torch.bool:
            continue
        if (
            path not in recipe.ranges
            and leaf.numel() > 1
            and int(leaf.long().min()) == int(leaf.long().max())
        ):
            raise _fault(
                recipe,
                f"the example of {path!r} is {int(leaf.long().min())} everywhere, so every input drawn for the "
                "proof would be",
                f"give ranges={{{path!r}: (lowest, highest)}}, a sample function, or an example that varies",
            )


def _check_ranges(recipe: Recipe, inputs: Mapping[str, Any]) -> None:
    import torch

    for path, (low, high) in recipe.ranges.items():
        leaf = inputs.get(path)
        if not isinstance(leaf, torch.Tensor) or leaf.is_floating_point() or leaf.dtype == torch.bool:
            raise _fault(
                recipe, f"ranges names {path!r}, which is not an integer input; there are {', '.join(inputs)}"
            )
        kind = torch.iinfo(leaf.dtype)
        # Sampling wants highest + 1 in int64.
        if not kind.min <= low <= high <= min(kind.max, (1 << 63) - 2):
            raise _fault(
                recipe,
                f"ranges[{path!r}] is {low}..{high}, expected lowest <= highest, both within {leaf.dtype}",
            )


def _check_optional(recipe: Recipe, inputs: Mapping[str, Any]) -> None:
    """An input that a request may leave out: its value fits, and the other inputs tell its sizes."""
    import torch

    told = {
        dim_name(dim)
        for path, dims in recipe.dynamic.items()
        if path not in recipe.optional
        for dim in dims.values()
    }
    for path, value in recipe.optional.items():
        leaf = inputs.get(path)
        if not isinstance(leaf, torch.Tensor):
            raise _fault(
                recipe, f"optional names {path!r}, which is not a tensor input; there are {', '.join(inputs)}"
            )
        dtype = str(leaf.dtype).removeprefix("torch.")
        # Other dtypes are told by the export, which names those that the protocol carries.
        if dtype in WIRE_DATATYPES and (expected := fill_fault(dtype, value)):
            raise _fault(recipe, f"optional[{path!r}] is {value!r}, expected {expected}")
        for axis, dim in recipe.dynamic.get(path, {}).items():
            if dim_name(dim) not in told:
                raise _fault(
                    recipe,
                    f"optional[{path!r}]: axis {axis} has the size {dim_name(dim)!r}, which no required input has",
                    "a request that leaves it out must still tell its size: make that axis fixed, or require "
                    "another input with it",
                )
    tensors = [path for path, leaf in inputs.items() if isinstance(leaf, torch.Tensor)]
    if recipe.optional and all(path in recipe.optional for path in tensors):
        raise _fault(recipe, "every tensor input is optional", "leave one out of `optional`")


def _check_tolerance(recipe: Recipe) -> None:
    for dtype, allowed in recipe.tolerance.items():
        if dtype not in WIRE_DATATYPES:
            raise _fault(
                recipe, f"tolerance names the dtype {dtype!r}", f"use one of {', '.join(WIRE_DATATYPES)}"
            )
        if not (0 <= allowed.rtol < float("inf") and 0 <= allowed.atol < float("inf")):
            raise _fault(recipe, f"tolerance[{dtype!r}] is {allowed}, expected finite numbers of 0 or more")


def _check_outputs(recipe: Recipe) -> None:
    if isinstance(recipe.outputs, str):
        raise _fault(
            recipe, f"outputs must be a list of names, got the text {recipe.outputs!r}", "put it in a list"
        )
    for name in recipe.outputs:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise _fault(recipe, f"outputs must be printable names, got {name!r}")
    if len(set(recipe.outputs)) != len(recipe.outputs):
        raise _fault(recipe, f"outputs must be distinct names, got {list(recipe.outputs)}")
