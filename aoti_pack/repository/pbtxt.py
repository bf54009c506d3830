"""Protobuf's text format for `config.pbtxt`, from the same values as protobuf's JSON form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# A statement of the document: its field, and which of that field's items it is.
Statement = tuple[str, int]

_LONGEST = 120  # characters of a message that still stands on one line

# The fields that protobuf declares as maps: an object in JSON, one statement an entry in text.
_MAPS = ("parameters", "inputs")


class Enum(str):
    """A name of one of the format's enumerations: written without quotes."""

    __slots__ = ()


def render(config: Mapping[str, Any], comments: Mapping[Statement, Sequence[str]] | None = None) -> str:
    """The text of `config` (the JSON form of a ModelConfig), one statement a line; the lines of `comments` stand
    above the statement that they belong to."""
    lines: list[str] = []
    for key, value in config.items():
        for index, statement in enumerate(_statements(key, value)):
            for comment in (comments or {}).get((key, index), ()):
                lines += [f"# {line}" for line in comment.splitlines()]
            lines.append(statement)
    return "\n".join(lines) + "\n"


def _statements(key: str, value: Any) -> Iterator[str]:
    if key in _MAPS:
        for name, item in value.items():
            yield f"{key} {_message({'key': name, 'value': item})}"
    elif isinstance(value, Mapping):
        yield f"{key} {_message(value)}"
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for item in value:
            yield f"{key} {_message(item)}"
    else:
        yield f"{key}: {_scalar(value)}"


def _message(value: Mapping[str, Any]) -> str:
    inside = [statement for key, item in value.items() for statement in _statements(key, item)]
    if sum(map(len, inside)) <= _LONGEST:
        return " ".join(["{", *inside, "}"])
    return "\n".join(["{", *(f"  {line}" for statement in inside for line in statement.split("\n")), "}"])


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        inside = ", ".join(_scalar(item) for item in value)
        return f"[ {inside} ]" if inside else "[ ]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum) or not isinstance(value, str):
        return str(value)
    return _quote(value)


def _quote(text: str) -> str:
    # Protobuf's text format reads the escapes of JSON strings for everything printable.
    return json.dumps(text, ensure_ascii=False)
