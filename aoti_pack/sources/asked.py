"""What a user adds to a source that is no Recipe. It travels among the settings, so that `verify` finds it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aoti_pack.errors import UserError
from aoti_pack.sources.dynamic import parse_dynamic

# The dashes keep them apart from a recipe's own settings, which are names of Python's.
INPUTS, DYNAMIC, OUTPUTS = "--inputs", "--dynamic", "--outputs"


@dataclass(frozen=True)
class Asked:
    """The options of `compile` that stand for what a Recipe would say.

    inputs: `FILE.npz`, `module:function` or `FILE.py:function` with the example inputs.
    dynamic: `PATH:AXIS=NAME` or `PATH:AXIS=NAME[LOWEST..HIGHEST]`.
    outputs: names of the outputs, in the model's own order.
    """

    inputs: str | None = None
    dynamic: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_dynamic(self.dynamic)  # a slip is told before anything is loaded

    def settings(self) -> dict[str, Any]:
        """What is said here, as entries of a recipe's settings."""
        found: dict[str, Any] = {} if self.inputs is None else {INPUTS: self.inputs}
        if self.dynamic:
            found[DYNAMIC] = list(self.dynamic)
        if self.outputs:
            found[OUTPUTS] = list(self.outputs)
        return found

    def first(self) -> str | None:
        """The first option that is given, or None."""
        return next(iter(self.settings()), None)


def split_settings(settings: Mapping[str, Any]) -> tuple[Asked, dict[str, Any]]:
    """The options among `settings`, and the recipe's own settings."""
    own = {key: value for key, value in settings.items() if not key.startswith("--")}
    inputs = settings.get(INPUTS)
    if unknown := sorted(set(settings) - set(own) - {INPUTS, DYNAMIC, OUTPUTS}):
        raise UserError(
            f"the setting {unknown[0]!r} is not known", mend=f"use {INPUTS}, {DYNAMIC}, {OUTPUTS}"
        )
    if inputs is not None and not isinstance(inputs, str):
        raise UserError(f"{INPUTS} is {inputs!r}, expected FILE.npz or module:function")
    return Asked(inputs, _texts(settings, DYNAMIC), _texts(settings, OUTPUTS)), own


def _texts(settings: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = settings.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{key} is {value!r}, expected a list of texts")
    return tuple(value)


def split_names(text: str | None) -> tuple[str, ...]:
    """`a,b` as names; UserError for an empty one."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(names):
        raise UserError(f"{OUTPUTS} {text!r} holds an empty name", mend="write it as a,b")
    return names
