"""`--dynamic x:0=b[1..256]`: which sizes vary, under which name, between which bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoti_pack.errors import UserError

DEFAULT_RANGE = (1, 1024)
"""The bounds of a size that is given a name and no bounds."""

UNBOUNDED = 1 << 40
"""What torch gives an open upper bound lies above; nothing that a server could honour."""

_ENTRY = re.compile(
    r"(?P<path>.+):(?P<axis>\d{1,3})=(?P<name>[^\[\]=]+)(?:\[(?P<low>\d{1,18})\.\.(?P<high>\d{1,18})\])?"
)


@dataclass(frozen=True)
class DynamicAxis:
    """One entry: the axis of the input at `path`, and its size's name; `range` is None where it is not said."""

    path: str
    axis: int
    name: str
    range: tuple[int, int] | None


def parse_dynamic(texts: Sequence[str]) -> tuple[DynamicAxis, ...]:
    """The entries of `--dynamic`; a range that is said once holds for every axis of the same name.

    UserError naming the entry that is not one, or that contradicts another.
    """
    entries = [_parse(text) for text in texts]
    ranges: dict[str, tuple[int, int]] = {}
    places: set[tuple[str, int]] = set()
    for entry in entries:
        if (entry.path, entry.axis) in places:
            raise UserError(f"--dynamic names {entry.path}:{entry.axis} twice")
        places.add((entry.path, entry.axis))
        if entry.range is not None and ranges.setdefault(entry.name, entry.range) != entry.range:
            low, high = ranges[entry.name]
            raise UserError(
                f"--dynamic gives {entry.name!r} the range {entry.range[0]}..{entry.range[1]} and {low}..{high}",
                mend="equal names are equal sizes: give one range, or two names",
            )
    return tuple(DynamicAxis(e.path, e.axis, e.name, ranges.get(e.name)) for e in entries)


def _parse(text: str) -> DynamicAxis:
    match = _ENTRY.fullmatch(text)
    if match is None or not match["name"].isidentifier() or not match["name"].isascii():
        raise UserError(
            f"--dynamic {text!r} is not PATH:AXIS=NAME or PATH:AXIS=NAME[LOWEST..HIGHEST]",
            mend="write it as x:0=b[1..256]",
        )
    bounds = None if match["low"] is None else (int(match["low"]), int(match["high"]))
    if bounds is not None and not bounds[0] <= bounds[1]:
        raise UserError(f"--dynamic {text!r}: expected LOWEST <= HIGHEST, got {bounds[0]}..{bounds[1]}")
    return DynamicAxis(match["path"], int(match["axis"]), match["name"], bounds)


def to_dims(axes: Sequence[DynamicAxis]) -> Mapping[str, Mapping[int, Any]]:
    """`Recipe.dynamic` from entries; DEFAULT_RANGE where no range is said."""
    from torch.export import Dim

    ranges = {entry.name: entry.range or DEFAULT_RANGE for entry in axes}
    dims = {name: Dim(name, min=low, max=high) for name, (low, high) in ranges.items()}
    found: dict[str, dict[int, Any]] = {}
    for entry in axes:
        found.setdefault(entry.path, {})[entry.axis] = dims[entry.name]
    return found


def batch_symbol(dynamic: Mapping[str, Mapping[int, Any]]) -> str:
    """The symbol to try as the batch: `b` if there is one, else what the first dynamic axis 0 counts."""
    names = [str(dims[0].__name__) for dims in dynamic.values() if 0 in dims]
    return "b" if "b" in names or not names else names[0]
