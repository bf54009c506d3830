"""The files of a model's `weights` folder; `cpp/src/weights_files.h` is the other side.

    NAME/VERSION/weights/<sha256>.safetensors   the weights, named after their content
    NAME/VERSION/weights/current.json           the pointer: which of them are to serve
    NAME/VERSION/weights/status.json            the server's answer to the last pointer it saw

The pointer is a small file that is renamed into place, not a link: a reader on another host opens it anew each time
and gets the old one or the new one whole, where the target of a link may be cached.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from aoti_pack.atomic import write_text
from aoti_pack.errors import UserError

FOLDER = "weights"
POINTER_FILE = "current.json"
STATUS_FILE = "status.json"
SUFFIX = ".safetensors"
_SCHEMA = 1


@dataclass(frozen=True)
class Pointer:
    """Which weights are to serve. `version` counts the pushes to this version of the model, from 1."""

    version: int
    sha256: str
    bytes: int
    package_sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file of weights, in the same folder."""
        return self.sha256 + SUFFIX

    def save(self, folder: Path) -> None:
        """Move the pointer of `folder` here, in one step."""
        write_text(folder / POINTER_FILE, json.dumps({"schema": _SCHEMA} | asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The pointer of `folder`, None without one. UserError when it is damaged."""
        raw = _read(folder / POINTER_FILE)
        return None if raw is None else _build(cls, raw, folder / POINTER_FILE)


@dataclass(frozen=True)
class ServerStatus:
    """The server's answer to a push. `state` is `swapped` or `refused`; `serving` is the version that answers now, 0
    for the package's own weights; `when` is in UTC."""

    version: int
    sha256: str
    state: str
    message: str
    serving: int
    when: str

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The status in `folder`, None without one. UserError when it is damaged."""
        raw = _read(folder / STATUS_FILE)
        return None if raw is None else _build(cls, raw, folder / STATUS_FILE)


def _read(path: Path) -> object | None:
    try:
        parsed: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}", mend="remove it and push the weights again") from None
    return parsed


def _build(cls: type[Any], raw: object, path: Path) -> Any:
    kinds = {"int": int, "str": str}
    fields = {name: kinds[field.type] for name, field in cls.__dataclass_fields__.items()}
    if not isinstance(raw, dict) or raw.get("schema") != _SCHEMA:
        raise UserError(f"{path} is not of schema {_SCHEMA}", mend="remove it and push the weights again")
    for name, kind in fields.items():
        if not isinstance(raw.get(name), kind):
            raise UserError(
                f"{path}: {name}: expected {kind.__name__}, got {raw.get(name)!r}",
                mend="remove it and push the weights again",
            )
    return cls(**{name: raw[name] for name in fields})
