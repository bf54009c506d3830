"""Example inputs for a model without a Recipe: from an npz file, or from a function."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.structure import bind, unbind

if TYPE_CHECKING:
    from torch import nn


def read_example(where: str, model: nn.Module, source: str) -> dict[str, Any]:
    """The inputs at `where`, by the names of `model`'s parameters: `FILE.npz`, `module:function` or `FILE.py:function`.

    `source` is what `model` was loaded from. A function returns a dict of keyword arguments or a tuple of positional
    ones. UserError when it does not.
    """
    if where.endswith(".npz"):
        return read_npz(Path(where))
    function = _function(where, source)
    if not callable(function):
        raise UserError(
            f"--inputs {where} is a {type(function).__name__}, expected a function that returns inputs"
        )
    try:
        found = function()
    except Exception as error:
        raise UserError(f"--inputs {where} raised {type(error).__name__}: {error}") from error
    if isinstance(found, Mapping):
        return {str(key): value for key, value in found.items()}
    if isinstance(found, tuple):
        return positional(where, model, found)
    raise UserError(
        f"--inputs {where} returned a {type(found).__name__}",
        mend="return a dict of keyword arguments or a tuple of positional ones",
    )


def _function(where: str, source: str) -> Any:
    """The function at `where`, found without loading the file of `source` a second time: pickles go by its classes."""
    from aoti_pack.recipe import attribute_of, file_module_name

    file, _, attribute = where.partition(":")
    path = Path(file)
    name = file_module_name(path)
    loaded = sys.modules.get(name)
    if path.suffix != ".py" or loaded is None:
        return attribute_of(where, "inputs")
    of_source = Path(source.partition(":")[0])
    if path.is_file() and of_source.is_file() and path.samefile(of_source):
        if not hasattr(loaded, attribute or "inputs"):
            raise UserError(f"{file} has no attribute {attribute or 'inputs'!r}")
        return getattr(loaded, attribute or "inputs")
    try:
        return attribute_of(where, "inputs")
    finally:
        sys.modules[name] = loaded  # a file of the same name elsewhere


def positional(where: str, model: nn.Module, args: tuple[Any, ...]) -> dict[str, Any]:
    """Positional arguments under the names of `model`'s parameters."""
    named = unbind(model, args, {})
    bound, by_name = bind(model, named)
    if len(bound) + len(by_name) != len(args):
        raise UserError(f"--inputs {where} gives {len(args)} positional inputs, more than the model takes")
    return named


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an npz as tensors. Dotted keys make nested dicts; keys `0`, `1`, … in one place a tuple."""
    import zipfile

    import numpy
    import torch

    try:
        with numpy.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UserError(f"--inputs {path} does not exist", mend="write it with numpy.savez") from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise UserError(f"--inputs {path} is not an npz of plain arrays: {error}") from None
    nested: dict[str, Any] = {}
    for name, array in arrays.items():
        try:
            tensor = torch.from_numpy(numpy.array(array))
        except TypeError:
            raise UserError(
                f"--inputs {path}: {name!r} has dtype {array.dtype}, which no tensor can have",
                mend="a value that is no tensor comes from a function: --inputs FILE.py:function",
            ) from None
        _put(path, nested, name, tensor)
    return {key: _tuples(value) for key, value in nested.items()}


def _put(path: Path, nested: dict[str, Any], name: str, tensor: Any) -> None:
    *parents, last = name.split(".")
    place = nested
    for part in parents:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise UserError(f"--inputs {path}: {name!r} lies inside another array, {'.'.join(parents)!r}")
    if last in place:
        raise UserError(f"--inputs {path}: {name!r} is an array and holds others")
    place[last] = tensor


def _tuples(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _tuples(child) for key, child in value.items()}
    numbered = [str(index) for index in range(len(inner))]
    return tuple(inner[key] for key in numbered) if set(inner) == set(numbered) else inner
