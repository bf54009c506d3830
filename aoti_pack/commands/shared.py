"""What several commands take: folders, `--json`, `--set`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import click

from aoti_pack.errors import UserError

FOLDER = click.Path(path_type=Path, file_okay=False)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")


def parse_seconds(_ctx: click.Context | None, _param: click.Parameter | None, text: str) -> float:
    """The callback of an option that takes a time: `90`, `90s` or `5m`, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([sm]?)", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time such as 300s or 5m")
    return float(found[1]) * (60 if found[2] == "m" else 1)


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`KEY=VALUE` pairs; a value that reads as a Python number, bool or None becomes one."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--set {pair!r} is not KEY=VALUE")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        settings[key] = value if isinstance(value, int | float | bool | None) else text
    return settings
