"""Names for an exported program's flat inputs and outputs: the paths of the nested ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.structure import children, unbind

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

LONE_OUTPUT = "output"
"""The name of an output that stands alone, and the first part of those in a bare tuple: `output.0`."""


@dataclass(frozen=True)
class _Slot:
    """Stands at a leaf's place in a nested structure."""

    index: int


@dataclass(frozen=True)
class FlatArgument:
    """One flat input: its path, and its placeholder in the graph or, without one, the constant passed there."""

    path: str
    placeholder: str | None
    constant: Any


def flat_inputs(program: ExportedProgram, model: nn.Module) -> list[FlatArgument]:
    """The user's inputs in the program's own order, which is not that of the recipe's example."""
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
    from torch.utils import _pytree as pytree

    arguments = [s.arg for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        raise AssertionError("an exported program without a call specification")
    args, kwargs = pytree.tree_unflatten([_Slot(i) for i in range(len(arguments))], in_spec)
    paths = {slot.index: path for path, slot in _slots(unbind(model, args, kwargs))}
    flat = []
    for index, argument in enumerate(arguments):
        if isinstance(argument, TensorArgument):
            flat.append(FlatArgument(paths[index], argument.name, None))
        elif isinstance(argument, ConstantArgument):
            flat.append(FlatArgument(paths[index], None, argument.value))
        else:
            raise UserError(
                f"the input {paths[index]!r} is a {type(argument).__name__.removesuffix('Argument')} that varies",
                mend="pass it as a tensor, or as a fixed value, which is compiled in",
            )
    return flat


def output_paths(program: ExportedProgram) -> list[str]:
    """A name for each flat output, from the structure that the model returns.

    `logits` and `aux.0` where it is a dict (or a NamedTuple or dataclass), `output.0` where it is a bare tuple or
    list, `output` where it is one tensor. UserError when its structure does not tell names.
    """
    from torch.utils import _pytree as pytree

    out_spec = program.call_spec.out_spec
    if out_spec is None:
        raise AssertionError("an exported program without a call specification")
    slots = [_Slot(i) for i in range(out_spec.num_leaves)]
    try:
        tree = pytree.tree_unflatten(slots, out_spec)
        named = {slot.index: path for path, slot in _slots(tree, prefix=_prefix(tree))}
        return [named[slot.index] for slot in slots]
    except Exception as error:
        raise UserError(
            f"the names of the outputs cannot be told from what the model returns ({type(error).__name__}: {error})",
            mend="give them: `outputs=[…]` in the Recipe, or --outputs",
        ) from error


def _prefix(tree: Any) -> str:
    is_bare = isinstance(tree, tuple | list) and not hasattr(tree, "_fields")
    return LONE_OUTPUT if is_bare or children(tree) is None or isinstance(tree, _Slot) else ""


def _slots(tree: Any, prefix: str = "") -> list[tuple[str, _Slot]]:
    """The slots in `tree` with their paths; a _Slot is a leaf here, though it is a dataclass."""
    if isinstance(tree, _Slot):
        return [(prefix, tree)]
    inner = children(tree)
    if inner is None:
        return []
    return [found for key, value in inner for found in _slots(value, f"{prefix}.{key}" if prefix else key)]


def flatten_specs(program: ExportedProgram) -> None:
    """Let `program` take its inputs as positional arguments, one by one, and give a bare tuple.

    A package carries the nested structure as text, which types of the user's own cannot be written as.
    """
    from torch.utils import _pytree as pytree

    signature, example = program.module_call_graph[0].signature, program.example_inputs
    if signature is None or signature.out_spec is None or example is None:
        raise AssertionError("an exported program without a call signature or example inputs")
    inputs = tuple(pytree.tree_leaves(example))
    names = [argument.name for argument in signature.inputs]
    signature.in_spec = pytree.tree_structure((inputs, {}))
    signature.out_spec = pytree.tree_structure((0,) * signature.out_spec.num_leaves)
    if hasattr(signature, "forward_arg_names"):
        signature.forward_arg_names = names
    program.example_inputs = (inputs, {})
