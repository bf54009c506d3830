"""What a model writes into: found in its exported form, allowed only by name, and never kept.

A served model keeps no state. What it writes into an input is lost: whoever runs the package hands it a copy. A
buffer that it may write into is copied inside the graph at the beginning of each run: every run starts from the
value that was compiled, so that runs on several threads and instances do not see each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from aoti_pack.errors import UserError
from aoti_pack.recipe import Recipe

if TYPE_CHECKING:
    from torch.export import ExportedProgram


# Their schemas do not say that they write into running statistics.
_NORMS = ("aten::batch_norm", "aten::instance_norm")


@dataclass(frozen=True)
class Mutation:
    """Names of the buffers and parameters, and of the placeholders of the inputs, that a program writes into."""

    buffers: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()


class FreshBuffers(nn.Module):
    """Runs `model` with a copy of each buffer in `names`: what it writes there is gone after the call."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.aoti_pack_wrapped = model
        self.names = tuple(names)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `model` gives for the same arguments."""
        model = self.aoti_pack_wrapped
        copies = {name: model.get_buffer(name).clone() for name in self.names}
        return torch.func.functional_call(model, copies, args, kwargs)


def find_mutation(recipe: Recipe, program: ExportedProgram) -> Mutation:
    """What `program` writes into that outlives a run. UserError where that is a tensor that is no buffer."""
    signature = program.graph_signature
    if any(_writes(node) for node in program.graph.nodes):
        # The exported graph still writes in place, into temporaries or into what outlives a run: only the
        # functional form says which, in its signature.
        try:
            signature = program.run_decompositions({}).graph_signature
        except Exception as error:
            raise UserError(
                f"recipe {recipe.name!r}: what the model writes in place cannot be told: {error}",
                mend="make a tensor that it writes into a buffer (`register_buffer`), or a new tensor of each call",
            ) from error
    return Mutation(
        tuple(dict.fromkeys(signature.buffers_to_mutate.values())),
        tuple(dict.fromkeys(signature.user_inputs_to_mutate.values())),
        tuple(dict.fromkeys(getattr(signature, "parameters_to_mutate", {}).values())),  # not in every torch
    )


def _writes(node: torch.fx.Node) -> bool:
    """Whether the operator of `node` changes one of its arguments; True for what has no schema to tell."""
    if node.op != "call_function" or not hasattr(node.target, "__module__"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable) or node.target._schema.name in _NORMS
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def check_mutation(
    recipe: Recipe, mutation: Mutation, paths: Mapping[str, str], model: nn.Module
) -> set[str]:
    """The paths of the inputs that are written into. `paths` names the input of each placeholder.

    UserError when something is written into that `recipe.mutates` does not name, or named that is not.
    """
    for name in mutation.parameters:
        raise UserError(
            f"recipe {recipe.name!r}: the model changes its weight {name!r} in place",
            mend="do that before it is compiled (an Embedding's max_norm is one who does)",
        )
    inputs = {paths[name] for name in mutation.placeholders}
    for kind, found in (("buffer", mutation.buffers), ("input", sorted(inputs))):
        for name in found:
            if name not in recipe.mutates:
                raise UserError(
                    f"recipe {recipe.name!r}: the model changes its {kind} {name!r} in place",
                    mend="return the new value as an output (a served model keeps no state between requests), or "
                    f"name it in the Recipe's `mutates=[{name!r}]`: what is written there is then lost",
                )
    written = {*mutation.buffers, *inputs}
    known = {*paths.values(), *(name for name, _ in model.named_buffers())}
    for name in recipe.mutates:
        if name not in written:
            fault = "does not write into it" if name in known else "has no input and no buffer of that name"
            raise UserError(
                f"recipe {recipe.name!r}: mutates names {name!r}, and the model {fault}",
                mend=f"it writes into {', '.join(sorted(written)) or 'nothing'}",
            )
    return inputs


def with_fresh_buffers(program: ExportedProgram, names: Sequence[str]) -> None:
    """Let `program` write into a copy of each buffer in `names`, made at the beginning of the run."""
    graph = program.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    buffers = program.graph_signature.inputs_to_buffers
    with graph.inserting_after(placeholders[-1]):
        for node in placeholders:
            if buffers.get(node.name) in names:
                copy = graph.call_function(torch.ops.aten.clone.default, (node,))
                copy.meta.update({key: node.meta[key] for key in ("val", "tensor_meta") if key in node.meta})
                node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
    graph.lint()
    program.graph_module.recompile()
