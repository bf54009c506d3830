"""A saved ExportedProgram (`torch.export.save`) in place of a Recipe."""

from __future__ import annotations

import copy
import inspect
import io
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aoti_pack.errors import UserError
from aoti_pack.recipe import Recipe
from aoti_pack.sources.asked import Asked
from aoti_pack.sources.dynamic import (
    DEFAULT_RANGE,
    UNBOUNDED,
    DynamicAxis,
    batch_symbol,
    parse_dynamic,
    to_dims,
)
from aoti_pack.sources.example import read_example
from aoti_pack.sources.naming import flat_inputs
from aoti_pack.structure import leaves, unbind


class ProgramModel(nn.Module):
    """An exported program that is called with its inputs by name. It pickles as `torch.export.save` writes it."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.program = program
        self.runs = program.module()
        self.aoti_pack_signature = _signature(program, self.runs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the program gives; its parameters are those of the model that was exported."""
        return self.runs(*args, **kwargs)

    def program_on(self, dtype: torch.dtype, device: str) -> torch.export.ExportedProgram:
        """The program on `device`. UserError when it is not in `dtype`: it cannot be converted."""
        tensors = [*self.program.state_dict.values(), *self.program.constants.values()]
        own = {t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point}
        if own - {dtype}:
            raise UserError(
                f"the exported program is in {', '.join(sorted(map(str, own)))}, and {dtype} was asked for",
                mend="leave out --dtype, or convert the model and export it again",
            )
        where = {t.device.type for t in tensors if isinstance(t, torch.Tensor)}
        if where <= {torch.device(device).type} and where:
            return self.program
        from torch.export.passes import move_to_device_pass

        return move_to_device_pass(self.program, device)

    def train(self, mode: bool = True) -> ProgramModel:
        """An exported program has no training mode to change."""
        self.training = mode
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramModel:
        # The program itself is never changed; what `.to()` and `.double()` change is the module.
        made = ProgramModel.__new__(ProgramModel)
        nn.Module.__init__(made)
        made.program, made.aoti_pack_signature = self.program, self.aoti_pack_signature
        made.runs = copy.deepcopy(self.runs, memo)
        made.training = self.training
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        saved = io.BytesIO()
        torch.export.save(self.program, saved)
        return _load_bytes, (saved.getvalue(),)


def _signature(program: torch.export.ExportedProgram, module: nn.Module) -> inspect.Signature:
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        raise UserError("the exported program has no call specification")
    args, kwargs = pytree.tree_unflatten([None] * in_spec.num_leaves, in_spec)
    known = getattr(program.module_call_graph[0].signature, "forward_arg_names", None)
    names = list(known or inspect.signature(module.forward).parameters)[: len(args)]
    positional = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    keyword = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs]
    return inspect.Signature([*positional, *keyword])


def _load_bytes(data: bytes) -> ProgramModel:
    return ProgramModel(torch.export.load(io.BytesIO(data)))


def load_program(path: Path) -> torch.export.ExportedProgram:
    """The ExportedProgram in `path`; UserError when it is something else, an AOTInductor package among it."""
    if not path.is_file():
        raise UserError(f"{path} does not exist", mend="give a file that torch.export.save wrote")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        raise UserError(f"{path} is no archive", mend="give a file that torch.export.save wrote") from None
    if not any(
        re.search(r"(^|/)models/[^/]+\.json$|serialized_exported_program\.json$", name) for name in names
    ):
        if any("aotinductor" in name for name in names):
            raise UserError(
                f"{path} is an AOTInductor package, compiled already",
                mend="give the exported program it was compiled from, as torch.export.save writes it",
            )
        raise UserError(f"{path} holds no exported program", mend="give a file that torch.export.save wrote")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(path)
    except Exception as error:
        raise UserError(
            f"{path} cannot be loaded as an exported program: {type(error).__name__}: {str(error)[:300]}",
            mend="save it with this torch, and import the module that registers its own input types",
        ) from error


def program_recipe(source: str, asked: Asked) -> Recipe:
    """A Recipe for the program saved in the file `source`: names and ranges are its own where `asked` says no others.

    UserError when a size has no bound, or when there are no example inputs.
    """
    path = Path(source)
    model = ProgramModel(load_program(path))
    if asked.inputs is not None:
        inputs = read_example(asked.inputs, model, source)
    elif model.program.example_inputs is not None:
        inputs = unbind(model, *model.program.example_inputs)
    else:
        raise UserError(
            f"{path} holds no example inputs", mend="give them with --inputs FILE.npz or module:function"
        )
    _check_dtype(path, model, inputs)
    dynamic = to_dims(_axes(path, model, parse_dynamic(asked.dynamic)))
    return Recipe(
        name=re.sub(r"\W", "_", path.stem),
        model=model,
        inputs=inputs,
        outputs=asked.outputs,
        dynamic=dynamic,
        batch=batch_symbol(dynamic),
    )


def _check_dtype(path: Path, model: ProgramModel, inputs: Mapping[str, Any]) -> None:
    """A package has one floating dtype, and an exported program cannot be converted to it."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [leaf for _, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)]
    found = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype.is_floating_point})
    if len(found) > 1 or (found and found[0] not in ("float32", "bfloat16")):
        raise UserError(
            f"{path} is in {' and '.join(found)}; a package is in float32 or in bfloat16",
            mend="convert the model and export it again: an exported program keeps its dtypes",
        )


def _axes(path: Path, model: ProgramModel, asked: tuple[DynamicAxis, ...]) -> list[DynamicAxis]:
    """Every dynamic axis of the program, under the names and ranges asked for, else its own."""
    program = model.program
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    places: list[tuple[str, int, Any]] = []
    for one in flat_inputs(program, model):
        value = values.get(one.placeholder) if one.placeholder is not None else None
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                places.append((one.path, axis, size.node.expr))
    chosen: dict[Any, DynamicAxis] = {}
    for entry in asked:
        symbol = next((s for p, axis, s in places if (p, axis) == (entry.path, entry.axis)), None)
        if symbol is None:
            dynamic = ", ".join(f"{p}:{axis}" for p, axis, _ in places) or "nothing"
            raise UserError(
                f"--dynamic names {entry.path}:{entry.axis}, which is fixed in {path}",
                mend=f"dynamic there is {dynamic}; export it again with another dynamic axis",
            )
        if chosen.setdefault(symbol, entry).name != entry.name:
            raise UserError(f"--dynamic gives one size two names, {chosen[symbol].name!r} and {entry.name!r}")
    found: list[DynamicAxis] = []
    names: dict[Any, DynamicAxis] = {}
    for input_path, axis, symbol in places:
        if symbol not in names:
            names[symbol] = _named(path, program, input_path, axis, symbol, chosen.get(symbol), names)
        found.append(DynamicAxis(input_path, axis, names[symbol].name, names[symbol].range))
    return found


def _named(
    path: Path,
    program: torch.export.ExportedProgram,
    input_path: str,
    axis: int,
    symbol: Any,
    asked: DynamicAxis | None,
    taken: Mapping[Any, DynamicAxis],
) -> DynamicAxis:
    """The name and range of `symbol`, which first counts `axis` of `input_path`."""
    if symbol not in program.range_constraints:
        raise UserError(
            f"{path}: axis {axis} of {input_path!r} has the size {symbol}, which is not a size of its own",
            mend="export it with one Dim for each dynamic axis",
        )
    bounds = program.range_constraints[symbol]
    # An open end is one of two kinds of infinity: torch's own, and sympy's where the program was saved.
    low = int(bounds.lower) if bounds.lower.is_Integer else 0
    high = int(bounds.upper) if bounds.upper.is_Integer and int(bounds.upper) < UNBOUNDED else None
    used = {entry.name for entry in taken.values()}
    if asked is not None:
        name = asked.name
        wanted = asked.range or (max(low, DEFAULT_RANGE[0]), DEFAULT_RANGE[1] if high is None else high)
    else:
        name = "b" if axis == 0 and "b" not in used else f"{re.sub(r'[^A-Za-z0-9_]', '_', input_path)}_{axis}"
        if high is None:
            raise UserError(
                f"{path}: axis {axis} of {input_path!r} has no upper bound, and a server enforces one",
                mend=f"give it: --dynamic '{input_path}:{axis}={name}[{max(low, 1)}..{DEFAULT_RANGE[1]}]'",
            )
        wanted = (low, high)
    if name in used:
        raise UserError(
            f"{path}: two sizes are called {name!r}", mend="name them with --dynamic PATH:AXIS=NAME"
        )
    if wanted[0] < low or (high is not None and wanted[1] > high):
        raise UserError(
            f"--dynamic gives {name!r} the range {wanted[0]}..{wanted[1]}, and {path} was exported for "
            f"{low}..{'any' if high is None else high}",
            mend="stay within it, or export again with a wider range",
        )
    return DynamicAxis(input_path, axis, name, wanted)
