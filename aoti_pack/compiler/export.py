"""A recipe becomes an ExportedProgram whose every name, shape and symbol is known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.fill_value import fill_fault
from aoti_pack.manifest import WIRE_DATATYPES, BakedScalar, Symbol, TensorSpec
from aoti_pack.recipe import Inputs, Recipe, dim_name, leaves, map_leaves

if TYPE_CHECKING:
    import torch
    from torch import nn

# What torch gives an open upper bound; nothing that a server could honour.
_UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class Exported:
    """An exported model with its contract; `inputs` are in the order of the package's tensor arguments."""

    program: torch.export.ExportedProgram
    model: nn.Module
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    baked: tuple[BakedScalar, ...]

    def flatten(self, inputs: Inputs) -> list[torch.Tensor]:
        """The tensors of `inputs` in the order in which the compiled package takes them."""
        found = dict(leaves(inputs))
        return [found[spec.name] for spec in self.inputs]


def place(inputs: Inputs, dtype: torch.dtype, device: str) -> Inputs:
    """`inputs` on `device`, contiguous, floating ones in `dtype`."""
    import torch

    def one(_path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        kind = dtype if leaf.dtype.is_floating_point else leaf.dtype
        return leaf.to(device=device, dtype=kind).contiguous()

    placed: Inputs = map_leaves(inputs, one)
    return placed


def export(recipe: Recipe, dtype: torch.dtype, device: str) -> Exported:
    """Export `recipe` in `dtype` on `device`.

    UserError when the model cannot be exported, makes a dynamic size static, mutates its inputs or buffers,
    or gives something else than the named tensors.
    """
    import torch

    model = recipe.build().to(dtype=dtype, device=device)
    inputs = place(recipe.inputs, dtype, device)
    dynamic = map_leaves(inputs, lambda path, _leaf: dict(recipe.dynamic.get(path, {})) or None)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, (), dict(inputs), dynamic_shapes=dict(dynamic))
    except Exception as error:
        raise UserError(
            f"recipe {recipe.name!r} cannot be exported: {_first_lines(error)}",
            mend="`--debug` shows the whole trace",
        ) from error
    _refuse_mutation(recipe, program)
    return _describe(recipe, program, model)


def _first_lines(error: Exception, count: int = 3) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + " ".join(lines[:count])


def _refuse_mutation(recipe: Recipe, program: torch.export.ExportedProgram) -> None:
    if not any(_writes(node) for node in program.graph.nodes):
        return
    # The exported graph still writes in place, into temporaries or into what outlives a run: only the
    # functional form says which, in its signature.
    signature = program.run_decompositions({}).graph_signature
    for kind, found in (
        ("buffer", signature.buffers_to_mutate),
        ("input", signature.user_inputs_to_mutate),
    ):
        if found:
            raise UserError(
                f"recipe {recipe.name!r}: the model changes its {kind} {next(iter(found.values()))!r} in place",
                mend="return the new value as an output instead: a served model keeps no state between requests",
            )


def _writes(node: torch.fx.Node) -> bool:
    """Whether the operator of `node` changes one of its arguments; True for what has no schema to tell."""
    import torch

    if node.op != "call_function" or not hasattr(node.target, "__module__"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _describe(recipe: Recipe, program: torch.export.ExportedProgram, model: nn.Module) -> Exported:
    import torch
    from torch.utils import _pytree as pytree

    names = list(program.graph_signature.user_inputs)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        raise UserError(f"recipe {recipe.name!r}: the exported program has no call specification")
    _args, kwargs = pytree.tree_unflatten(list(range(len(names))), in_spec)
    paths = {index: path for path, index in leaves(kwargs)}

    fakes: dict[str, Any] = {}
    baked: list[BakedScalar] = []
    for index, name in enumerate(names):
        value = values.get(name) if isinstance(name, str) else name
        if isinstance(value, torch.Tensor):
            fakes[paths[index]] = value
        else:
            baked.append(BakedScalar(paths[index], value))
    found = {path: leaf for path, leaf in leaves(recipe.inputs) if not isinstance(leaf, torch.Tensor)}
    baked = [BakedScalar(scalar.name, found.get(scalar.name, scalar.value)) for scalar in baked]
    for scalar in baked:
        _check_baked(recipe, scalar)

    naming, symbols = _symbols(recipe, fakes)
    inputs = tuple(_spec(recipe, path, fake, naming, is_input=True) for path, fake in fakes.items())
    for spec in inputs:
        for dim in spec.shape:
            if isinstance(dim, str) and dim not in {symbol.name for symbol in symbols}:
                raise UserError(
                    f"recipe {recipe.name!r}: the size {dim!r} of input {spec.name!r} is not a symbol of its own",
                    mend="give each dynamic axis one `torch.export.Dim`, equal names for equal sizes",
                )
    output_node = next(node for node in program.graph.nodes if node.op == "output")
    given = {n.name: n.meta.get("val") for n in output_node.all_input_nodes}
    outputs = _outputs(recipe, program.graph_signature.user_outputs, given, naming)
    return Exported(program, model, symbols, inputs, outputs, tuple(baked))


def _check_baked(recipe: Recipe, scalar: BakedScalar) -> None:
    value: object = scalar.value
    if not isinstance(value, int | float | str | None) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise UserError(
            f"recipe {recipe.name!r}: the input {scalar.name!r} is {value!r}, which a manifest cannot hold",
            mend="give a tensor, a finite number, a bool, a text or None, or set it inside the model",
        )


def _symbols(recipe: Recipe, fakes: Mapping[str, Any]) -> tuple[dict[Any, str], tuple[Symbol, ...]]:
    """sympy symbol -> name, and the Symbols, from the axes that the recipe declares dynamic."""
    import torch

    naming: dict[Any, str] = {}
    symbols: dict[str, Symbol] = {}
    for path, dims in recipe.dynamic.items():
        for axis, dim in dims.items():
            name, size = dim_name(dim), fakes[path].shape[axis]
            if not isinstance(size, torch.SymInt):
                raise UserError(
                    f"recipe {recipe.name!r}: the model makes {name} (axis {axis} of {path!r}) static at {size}",
                    mend="look for a Python `if` or a reshape that depends on the size, or make it static",
                )
            if dim.max > _UNBOUNDED:
                raise UserError(
                    f"recipe {recipe.name!r}: Dim {name!r} has no upper bound",
                    mend=f"write torch.export.Dim({name!r}, min=1, max=…): the server enforces the range",
                )
            naming[size.node.expr] = name
            symbols[name] = Symbol(name, int(dim.min), int(dim.max))
    return naming, tuple(symbols.values())


def _spec(recipe: Recipe, name: str, fake: Any, naming: Mapping[Any, str], *, is_input: bool) -> TensorSpec:
    import sympy
    import torch

    dtype = str(fake.dtype).removeprefix("torch.")
    if dtype not in WIRE_DATATYPES:
        raise UserError(
            f"recipe {recipe.name!r}: {name!r} has dtype {dtype}, which the KServe protocol cannot carry",
            mend=f"use one of {', '.join(WIRE_DATATYPES)}",
        )
    shape: list[int | str] = []
    for axis, size in enumerate(fake.shape):
        if not isinstance(size, torch.SymInt):
            shape.append(int(size))
            continue
        expression = size.node.expr
        if unknown := [s for s in expression.free_symbols if s not in naming]:
            raise UserError(
                f"recipe {recipe.name!r}: axis {axis} of {name!r} has a size ({unknown[0]}) that depends on the "
                "data",
                mend="pad to a size that the inputs' sizes tell",
            )
        named = {s: sympy.Symbol(n, integer=True, nonnegative=True) for s, n in naming.items()}
        shape.append(str(expression.subs(named, simultaneous=True)))
    default = recipe.optional.get(name) if is_input else None
    if default is not None and (expected := fill_fault(dtype, default)):
        raise UserError(f"recipe {recipe.name!r}: optional[{name!r}] is {default!r}, expected {expected}")
    return TensorSpec(name, dtype, WIRE_DATATYPES[dtype], tuple(shape), default=default)


def _outputs(
    recipe: Recipe, names: Sequence[Any], given: Mapping[str, Any], naming: Mapping[Any, str]
) -> tuple[TensorSpec, ...]:
    import torch

    if len(names) != len(recipe.outputs):
        raise UserError(
            f"recipe {recipe.name!r}: the model gives {len(names)} outputs, the recipe names "
            f"{len(recipe.outputs)} ({', '.join(recipe.outputs)})"
        )
    specs = []
    for wanted, name in zip(recipe.outputs, names, strict=True):
        value = given.get(name) if isinstance(name, str) else name
        if not isinstance(value, torch.Tensor):
            raise UserError(f"recipe {recipe.name!r}: output {wanted!r} is {value!r}, expected a tensor")
        specs.append(_spec(recipe, wanted, value, naming, is_input=False))
    return tuple(specs)
