"""A recipe becomes an ExportedProgram whose every name, shape and symbol is known."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.fill_value import fill_fault
from aoti_pack.manifest import WIRE_DATATYPES, BakedScalar, Symbol, TensorSpec
from aoti_pack.recipe import Inputs, Recipe, dim_name
from aoti_pack.sources.dynamic import UNBOUNDED
from aoti_pack.sources.naming import FlatArgument, flat_inputs, flatten_specs, output_paths
from aoti_pack.sources.program import ProgramModel
from aoti_pack.structure import bind, children, leaves, map_leaves, unbind

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Exported:
    """An exported model with its contract; `inputs` are in the order of the package's tensor arguments.

    `placeholders` are the graph's own names of `inputs`.
    """

    program: torch.export.ExportedProgram
    model: nn.Module
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    baked: tuple[BakedScalar, ...]
    placeholders: tuple[str, ...]

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

    UserError when the model cannot be exported, makes a dynamic size static, writes into something that the recipe
    does not name in `mutates`, or gives something else than the named tensors.
    """
    from aoti_pack.compiler.mutation import FreshBuffers, check_mutation, find_mutation, with_fresh_buffers

    model = recipe.build()
    if isinstance(model, FreshBuffers):
        model = model.aoti_pack_wrapped
    model = model.to(dtype=dtype, device=device)
    if isinstance(model, ProgramModel):
        program = model.program_on(dtype, device)
    else:
        program = _export(recipe, model, dtype, device)
    flat = flat_inputs(program, model)
    mutation = find_mutation(recipe, program)
    paths = {one.placeholder: one.path for one in flat if one.placeholder is not None}
    mutated = check_mutation(recipe, mutation, paths, model)
    if mutation.buffers:
        with_fresh_buffers(program, mutation.buffers)
        model = FreshBuffers(model, mutation.buffers).eval()
    return _describe(recipe, program, model, flat, mutated)


def _export(
    recipe: Recipe, model: nn.Module, dtype: torch.dtype, device: str
) -> torch.export.ExportedProgram:
    import torch

    # A tensor that stands twice in the example would be one input to torch.export, and the other go unread.
    inputs = map_leaves(
        place(recipe.inputs, dtype, device),
        lambda _path, leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf,
    )
    args, kwargs = bind(model, inputs)
    dynamic = {
        name: _dynamic(value, recipe.dynamic, name) for name, value in unbind(model, args, kwargs).items()
    }
    try:
        with warnings.catch_warnings(record=True) as told, torch.no_grad():
            warnings.simplefilter("always")
            program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic)
    except Exception as error:
        raise UserError(
            f"recipe {recipe.name!r} cannot be exported: {_first_lines(error)}",
            mend="`--debug` shows the whole trace",
        ) from error
    for warning in told:
        # torch.export goes on with the value of the first call: a state that no run would see change.
        if "assigned during export" in str(warning.message):
            raise UserError(
                f"recipe {recipe.name!r}: the model keeps state between calls: {str(warning.message).splitlines()[0]}",
                mend="return the new value as an output instead",
            )
    return program


def _dynamic(value: Any, dynamic: Mapping[str, Mapping[int, Any]], path: str) -> Any:
    """`dynamic` in the structure of `value`, as torch.export wants it: a registered dataclass is a list there."""
    inner = children(value)
    if inner is None:
        return dict(dynamic.get(path, {})) or None
    found = [_dynamic(child, dynamic, f"{path}.{key}") for key, child in inner]
    if isinstance(value, Mapping):
        return dict(zip(value, found, strict=True))
    if isinstance(value, tuple):
        return type(value)(*found) if hasattr(value, "_fields") else tuple(found)
    # torch.export leaves fields that are None out of a dataclass.
    given = [child is not None or isinstance(value, list) for _, child in inner]
    return [one for one, is_given in zip(found, given, strict=True) if is_given]


def _first_lines(error: Exception, count: int = 3) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + " ".join(lines[:count])


def _describe(
    recipe: Recipe,
    program: torch.export.ExportedProgram,
    model: nn.Module,
    flat: Sequence[FlatArgument],
    mutated: set[str],
) -> Exported:
    import torch

    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    fakes: dict[str, Any] = {}
    placeholders: list[str] = []
    baked: list[BakedScalar] = []
    for one in flat:
        value = values.get(one.placeholder) if one.placeholder is not None else one.constant
        if one.placeholder is not None and isinstance(value, torch.Tensor):
            fakes[one.path] = value
            placeholders.append(one.placeholder)
        else:
            baked.append(BakedScalar(one.path, value))
    found = {path: leaf for path, leaf in leaves(recipe.inputs) if not isinstance(leaf, torch.Tensor)}
    baked = [BakedScalar(scalar.name, found.pop(scalar.name, scalar.value)) for scalar in baked]
    # torch.export leaves fields of a dataclass that are None out of the program: they are compiled in as well.
    baked += [BakedScalar(path, leaf) for path, leaf in found.items()]
    for scalar in baked:
        _check_baked(recipe, scalar)

    naming, symbols = _symbols(recipe, fakes)
    inputs = tuple(
        dataclasses.replace(_spec(recipe, path, fake, naming, is_input=True), mutated=path in mutated)
        for path, fake in fakes.items()
    )
    for spec in inputs:
        for dim in spec.shape:
            if isinstance(dim, str) and dim not in {symbol.name for symbol in symbols}:
                raise UserError(
                    f"recipe {recipe.name!r}: the size {dim!r} of input {spec.name!r} is not a symbol of its own",
                    mend="give each dynamic axis one `torch.export.Dim`, equal names for equal sizes",
                )
    outputs = _outputs(recipe, program, naming)
    if not isinstance(model, ProgramModel):
        flatten_specs(program)
    return Exported(program, model, symbols, inputs, outputs, tuple(baked), tuple(placeholders))


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
            if dim.max > UNBOUNDED:
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
    recipe: Recipe, program: torch.export.ExportedProgram, naming: Mapping[Any, str]
) -> tuple[TensorSpec, ...]:
    import torch
    from torch.export.graph_signature import ConstantArgument, OutputKind

    output_node = next(node for node in program.graph.nodes if node.op == "output")
    given = {n.name: n.meta.get("val") for n in output_node.all_input_nodes}
    arguments = [s.arg for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    names = list(recipe.outputs) or output_paths(program)
    if len(arguments) != len(names):
        raise UserError(
            f"recipe {recipe.name!r}: the model gives {len(arguments)} outputs, the recipe names "
            f"{len(names)} ({', '.join(names)})"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(
            f"recipe {recipe.name!r}: two outputs have the name {twice[0]!r}", mend="name the outputs"
        )
    specs = []
    for wanted, argument in zip(names, arguments, strict=True):
        value = argument.value if isinstance(argument, ConstantArgument) else given.get(argument.name)
        if not isinstance(value, torch.Tensor):
            raise UserError(
                f"recipe {recipe.name!r}: output {wanted!r} is {value!r}, expected a tensor",
                mend="return only tensors: what is no tensor does not travel",
            )
        specs.append(_spec(recipe, wanted, value, naming, is_input=False))
    return tuple(specs)
