"""Weights that a running server can replace: which they are, by which names, and the proof that they can be.

The names are those of the model's own `state_dict`. A weight under several names (a tied head) is one constant of
the package: one of the names is the constant's, the others are its aliases. What `state_dict` has and the compiled
code never reads (a counter of batches) is listed too, so that a checkpoint may hold it. Constants outside
`state_dict` (tensors made in the code, buffers that are not persistent) belong to the code and stay as they are.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aoti_pack.compiler.sizes import example_sizes, graph_cost, sweep
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import ConstantSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

    from aoti_pack.compiler.export import Exported
    from aoti_pack.compiler.prove import Reference
    from aoti_pack.compiler.runtime import CompiledModel

# Sizes of the sweep that are tried with other weights: the code is the one that the whole sweep proved.
_CASES = 2


def inductor_settings(updatable: bool) -> dict[str, Any]:
    """What AOTInductor needs to leave every constant replaceable: otherwise small ones end up inside the code."""
    return {"always_keep_tensor_constants": True} if updatable else {}


def describe_constants(
    exported: Exported, compiled: CompiledModel, updatable: bool
) -> tuple[tuple[ConstantSpec, ...], tuple[str, ...]]:
    """The constants of the package, and the names in the model's `state_dict` that it has no use for.

    UserError when `updatable` is asked for and there is nothing to replace, or two weights overlap in memory
    without being the same: replaced one by one they would no longer be what they are in the model.
    """
    inside = compiled.constant_names()
    state = exported.program.state_dict | exported.program.constants
    groups = _same_tensor(exported.model)
    names = set(exported.model.state_dict())
    if updatable:
        _refuse_overlaps(exported.model)
        if not names & {alias for name in inside for alias in groups.get(name, (name,))}:
            raise UserError(
                "--updatable: the model has no weight or persistent buffer that its outputs depend on",
                mend="leave it out",
            )
    constants = []
    for name in inside:
        if name in state:
            dtype = str(state[name].dtype).removeprefix("torch.")
            aliases = tuple(other for other in groups.get(name, ()) if other != name)
            constants.append(
                ConstantSpec(name, dtype, tuple(state[name].shape), updatable and name in names, aliases)
            )
    told = {name for constant in constants for name in (constant.name, *constant.aliases)}
    return tuple(constants), tuple(sorted(names - told))


def _same_tensor(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Each name of a tensor that has several -> all of its names."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in model.state_dict().items():
        if tensor.numel():
            place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            groups.setdefault(place, []).append(name)
    return {name: tuple(names) for names in groups.values() if len(names) > 1 for name in names}


def _refuse_overlaps(model: nn.Module) -> None:
    spans = []
    for name, tensor in model.state_dict().items():
        if tensor.numel():
            last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            start = tensor.data_ptr()
            spans.append((start, start + (last + 1) * tensor.element_size(), name))
            if tensor.numel() > last + 1:
                raise UserError(
                    f"--updatable: {name!r} repeats elements (shape {list(tensor.shape)}, strides "
                    f"{list(tensor.stride())}), so it cannot be replaced element by element",
                    mend="make it contiguous in the model",
                )
    same = _same_tensor(model)
    spans.sort()
    for (_, end, one), (start, _, other) in itertools.pairwise(spans):
        if start < end and other not in same.get(one, ()):
            raise UserError(
                f"--updatable: {one!r} and {other!r} overlap in memory and are not the same tensor",
                mend="make one of them a tensor of its own (clone it) in the model",
            )


def prove_updatable(
    reference: Reference, compiled: CompiledModel, constants: tuple[ConstantSpec, ...], seed: int
) -> None:
    """Replace every updatable constant of `compiled` and compare with eager under the same weights.

    ProofError when they differ: some weight is still what it was when the package was compiled. Afterwards
    `compiled` has its own weights again.
    """
    from aoti_pack.compiler.prove import compare, sizes_text

    updatable = [constant for constant in constants if constant.updatable]
    before = dict(reference.model.state_dict())
    other = copy.deepcopy(reference.model)
    after = _shuffled(other, seed)
    double = None if reference.double is None else copy.deepcopy(other).double()
    changed = dataclasses.replace(reference, model=other, double=double)
    recipe, exported = reference.recipe, reference.exported
    cases, _ = sweep(exported.symbols, example_sizes(recipe), graph_cost(recipe, exported))
    compiled.replace_constants({constant.name: after[constant.name] for constant in updatable})
    try:
        for number, sizes in enumerate(cases[:_CASES]):
            inputs = changed.draw(seed + number, sizes)
            eager = changed.eager(inputs)
            got = changed.compiled(compiled, inputs, f"{sizes_text(sizes)} with other weights")
            for spec, one, wanted in zip(exported.outputs, got, eager, strict=True):
                where = f"output {spec.name!r} at {sizes_text(sizes)} after its weights were replaced (seed {seed})"
                compare(where, one, wanted, changed.tolerance(spec))
    except ProofError as error:
        raise ProofError(f"{error}; the package does not follow its weights, so --updatable fails") from None
    finally:
        compiled.replace_constants({constant.name: before[constant.name] for constant in updatable})


def _shuffled(model: nn.Module, seed: int) -> Mapping[str, torch.Tensor]:
    """Change the floating weights of `model` in place, and return its `state_dict`.

    Elements change places, so that the model stays as well conditioned as it is; a tensor of equal elements is
    scaled or, when it is zero, gets small values. Integers stay: other ones could be no valid index.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if not tensor.is_floating_point() or not tensor.numel() or tensor.data_ptr() in done:
                continue
            done.add(tensor.data_ptr())
            flat = tensor.detach().cpu().reshape(-1)
            if not bool(torch.isfinite(flat).all()):
                continue
            if bool((flat == flat[0]).all()):
                noise = torch.rand(flat.shape, generator=generator)
                changed = flat * (0.75 + 0.5 * noise) if bool(flat[0]) else 0.01 * noise
            else:
                changed = flat[torch.randperm(flat.numel(), generator=generator)]
            tensor.copy_(changed.reshape(tensor.shape).to(tensor))
    return model.state_dict()
