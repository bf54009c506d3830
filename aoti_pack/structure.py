"""Nested arguments: the path of every leaf, and how a model is called with them.

An input's name is its path: keys of dicts, fields of NamedTuples and dataclasses, places in tuples and lists.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError

if TYPE_CHECKING:
    from torch import nn

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def children(value: Any) -> list[tuple[str, Any]] | None:
    """(key, child) of a dict, tuple, list, NamedTuple or dataclass in its own order; None for a leaf."""
    if isinstance(value, Mapping):
        return [(str(key), child) for key, child in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, tuple | list):
        return [(str(index), child) for index, child in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def leaves(inputs: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of nested dicts, tuples, lists, NamedTuples and dataclasses, in their own order."""
    inner = children(inputs)
    if inner is None:
        yield prefix, inputs
        return
    for key, value in inner:
        yield from leaves(value, f"{prefix}.{key}" if prefix else key)


def map_leaves(inputs: Any, change: Callable[[str, Any], Any], prefix: str = "") -> Any:
    """`inputs` with each leaf replaced by `change(path, leaf)`, in the same structure."""
    inner = children(inputs)
    if inner is None:
        return change(prefix, inputs)
    changed = [map_leaves(value, change, f"{prefix}.{key}" if prefix else key) for key, value in inner]
    if isinstance(inputs, Mapping):
        return dict(zip(inputs, changed, strict=True))
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*changed)
    if isinstance(inputs, tuple | list):
        return type(inputs)(changed)
    return dataclasses.replace(inputs, **{key: value for (key, _), value in zip(inner, changed, strict=True)})


def signature_of(model: nn.Module) -> inspect.Signature:
    """The signature of what `model` runs, seen through our own wrappers."""
    if (wrapped := getattr(model, "aoti_pack_wrapped", None)) is not None:
        return signature_of(wrapped)
    own: inspect.Signature | None = getattr(model, "aoti_pack_signature", None)
    return own or inspect.signature(model.forward)


def bind(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`inputs`, named by the parameters of `forward`, as the arguments of a call.

    Positional-only parameters go by position, and with `*args` (whose value is a tuple under that name) all
    before it; the rest goes by keyword. UserError when a parameter before `*args` is missing.
    """
    parameters = signature_of(model).parameters.values()
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    rest = dict(inputs)
    spread = rest.pop(star, ()) if star is not None else ()
    if not isinstance(spread, tuple | list):
        raise UserError(
            f"the input {star!r} is a {type(spread).__name__}, expected a tuple: forward takes *{star}"
        )
    args: list[Any] = []
    for parameter in parameters:
        if parameter.kind not in (_POSITIONAL if spread else _POSITIONAL[:1]):
            continue
        if parameter.name in rest:
            args.append(rest.pop(parameter.name))
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(f"the input {parameter.name!r} of forward is missing")
        elif spread:
            args.append(parameter.default)
        else:
            break
    return (*args, *spread), rest


def unbind(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The way back from `bind`: a call's arguments, each under its parameter's name."""
    named: dict[str, Any] = {}
    left = list(args)
    for parameter in signature_of(model).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            if left:
                named[parameter.name] = tuple(left)
            break
        if parameter.kind in _POSITIONAL and left:
            named[parameter.name] = left.pop(0)
    return named | dict(kwargs)


def call(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """What `model` answers to `inputs`, named by the parameters of its `forward`."""
    args, kwargs = bind(model, inputs)
    return model(*args, **kwargs)
