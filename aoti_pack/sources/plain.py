"""A function or a module, with example inputs, in place of a Recipe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from aoti_pack.errors import UserError
from aoti_pack.recipe import Recipe
from aoti_pack.sources.asked import Asked
from aoti_pack.sources.dynamic import batch_symbol, parse_dynamic, to_dims
from aoti_pack.sources.example import read_example


class FunctionModel(nn.Module):
    """A function as a module: its `forward` is the function, with the function's own signature.

    It pickles by the function's name, as a class does.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["forward"] = function


def plain_recipe(source: str, found: object, settings: Mapping[str, Any], asked: Asked) -> Recipe:
    """A Recipe for `found`, the object at `source`: a function, a module, or a class or function that makes a module.

    `settings` go to what makes a module. UserError when it is none of them.
    """
    if asked.inputs is None:
        raise AssertionError("a plain model without example inputs")
    model = _model(source, found, settings, asked)
    dynamic = to_dims(parse_dynamic(asked.dynamic))
    return Recipe(
        name=re.sub(r"\W", "_", source.rpartition(":")[2]) or "model",
        model=model,
        inputs=read_example(asked.inputs, model, source),
        outputs=asked.outputs,
        dynamic=dynamic,
        batch=batch_symbol(dynamic),
    )


def _model(source: str, found: object, settings: Mapping[str, Any], asked: Asked) -> nn.Module:
    if isinstance(found, Recipe):
        raise UserError(
            f"{source} is a Recipe, which says its inputs itself", mend=f"leave out {asked.first()}"
        )
    if isinstance(found, type) and issubclass(found, nn.Module):
        return _made(source, found, settings)
    if isinstance(found, nn.Module):
        model: nn.Module = found
    elif callable(found):
        if not inspect.signature(found).parameters or settings:
            return _made(source, found, settings)
        model = FunctionModel(found)
    else:
        raise UserError(
            f"{source} is a {type(found).__name__}, expected a Recipe, a function or an nn.Module"
        )
    if settings:
        raise UserError(
            f"{source} is a module and takes no settings, got --set {next(iter(settings))}",
            mend="name its class, or a function that makes it",
        )
    return model


def _made(source: str, maker: Callable[..., Any], settings: Mapping[str, Any]) -> nn.Module:
    try:
        made = maker(**settings)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{source} raised {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise UserError(
            f"{source}() returned a {type(made).__name__}, expected an nn.Module",
            mend="a function that takes no inputs, or is given --set, must make the module",
        )
    return made
