"""What `models.yaml` says, every key checked. Options are the fields of CompileOptions and Serving, and no others."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoti_pack.compiler.options import CompileOptions
from aoti_pack.errors import UserError
from aoti_pack.project.yaml_lines import Located, read_yaml
from aoti_pack.repository.config import Serving
from aoti_pack.sources.asked import Asked

BACKENDS = ("aoti", "python")


@dataclass(frozen=True)
class ModelEntry:
    """One model: what is compiled, how, and how it is served. `folder` is where its package lies."""

    label: str
    folder: Path
    source: str
    settings: Mapping[str, Any]
    options: CompileOptions
    serving: Serving
    name: str | None
    version: int
    backend: str
    compile_twin: bool

    def request(self) -> dict[str, Any]:
        """What decides about the package: the same request is the same package."""
        return {
            "source": self.source,
            "settings": dict(self.settings),
            "options": dataclasses.asdict(self.options),
        }


@dataclass(frozen=True)
class Project:
    """A whole `models.yaml`. `repo` is None where it is left to the command line."""

    models: tuple[ModelEntry, ...]
    repo: Path | None


@dataclass(frozen=True)
class _Own:
    """The keys of a model that are neither compile nor serving options."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None
    dynamic: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    name: str | None = None
    version: int = 1
    backend: str = "aoti"
    compile: bool = False


@dataclass(frozen=True)
class _Top:
    """The keys of the file."""

    models: list[Any]
    repo: str | None = None
    out: str = "build"


def read_project(file: Path) -> Project:
    """Read and check `file`; paths in it are relative to its folder. UserError by line, path and what was expected."""
    root = read_yaml(file)
    top: _Top = _record(root, (_Top,))[0]
    base = file.parent
    found: list[ModelEntry] = []
    for item in root.value["models"].value:
        entry = _entry(item, base, base / top.out)
        _check_against(item, entry, found)
        entry = _sharing(entry, found)
        for number, other in enumerate(found):
            if other.folder == entry.folder and other.request() != entry.request():
                raise _clash(item, number)
        found.append(entry)
    if not found:
        raise root.value["models"].fault("expected one model or more, got none")
    return Project(tuple(found), None if top.repo is None else _relative(base / top.repo))


def _clash(item: Located, other: int) -> UserError:
    return item.fault(f"it has the name and version of models[{other}]", "give it another `name`")


def _entry(item: Located, base: Path, out: Path) -> ModelEntry:
    own, options, serving = _record(item, (_Own, CompileOptions, Serving))
    where = item.value
    if own.backend not in BACKENDS:
        raise where["backend"].fault(f"expected one of {', '.join(BACKENDS)}, got {own.backend!r}")
    if own.compile and own.backend != "python":
        raise where["compile"].fault("only for `backend: python`", "the aoti backend's model is compiled")
    if own.version < 1:
        raise where["version"].fault(f"expected 1 or more, got {own.version}")
    if own.name is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", own.name):
        raise where["name"].fault(f"{own.name!r} cannot be a model's name", "use letters, digits, _ - and .")
    for key in own.settings:
        if not key.isidentifier():
            raise where["settings"].value[key].fault("a setting is named as in Python")
    source = _source(own.recipe, base)
    asked = Asked(None if own.inputs is None else _source(own.inputs, base), own.dynamic, own.outputs)
    label = own.name or re.sub(
        r"\W+", "_", Path(own.recipe.replace(":", "_").replace(".py_", "_")).name
    ).strip("_")
    return ModelEntry(
        label=label,
        folder=_relative(out / f"{label}-{own.version}"),
        source=source,
        settings=dict(own.settings) | asked.settings(),
        options=options,
        serving=serving,
        name=own.name,
        version=own.version,
        backend=own.backend,
        compile_twin=own.compile,
    )


def _sharing(entry: ModelEntry, before: list[ModelEntry]) -> ModelEntry:
    """`entry` with the package of an earlier one that asks for the same."""
    same = next((one for one in before if one.request() == entry.request()), None)
    return entry if same is None else dataclasses.replace(entry, folder=same.folder)


def _check_against(item: Located, entry: ModelEntry, before: list[ModelEntry]) -> None:
    for number, other in enumerate(before):
        if entry.name is None or other.name != entry.name:
            continue
        if other.version == entry.version:
            raise _clash(item, number)
        if (other.serving, other.backend, other.compile_twin) != (
            entry.serving,
            entry.backend,
            entry.compile_twin,
        ):
            raise item.fault(
                f"it is served otherwise than models[{number}], another version of {entry.name!r}",
                "all versions share one config.pbtxt: give both the same serving options",
            )


def _source(text: str, base: Path) -> str:
    """A file is looked for beside models.yaml; a module is Python's to find."""
    where, colon, attribute = text.partition(":")
    if not where.endswith((".py", ".pt2", ".npz")):
        return text
    return f"{_relative(base / where)}{colon}{attribute}"


def _relative(path: Path) -> Path:
    return Path(os.path.relpath(path)) if not path.is_absolute() else path


def _record(item: Located, kinds: tuple[type[Any], ...]) -> list[Any]:
    """One instance of each of `kinds`, dataclasses whose fields are the keys that `item` may have."""
    if not isinstance(item.value, dict):
        raise item.fault(f"expected keys and values, got {_shown(item)}")
    known = {
        f.name: (kind, typing.get_type_hints(kind)[f.name])
        for kind in kinds
        for f in dataclasses.fields(kind)
    }
    values: dict[type[Any], dict[str, Any]] = {kind: {} for kind in kinds}
    for key, value in item.value.items():
        if key not in known:
            raise value.fault("there is no such key", f"the keys are {', '.join(sorted(known))}")
        kind, expected = known[key]
        values[kind][key] = _checked(value, expected)
    for kind in kinds:
        for one in dataclasses.fields(kind):
            no_default = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            if no_default and one.name not in values[kind]:
                raise item.fault(f"the key {one.name!r} is missing")
    try:
        return [kind(**values[kind]) for kind in kinds]
    except UserError as error:
        raise item.fault(str(error)) from None


def _checked(item: Located, expected: Any) -> Any:
    if typing.get_origin(expected) in (tuple, list):
        if not isinstance(item.value, list):
            raise item.fault(f"expected a list, got {_shown(item)}")
        inner = typing.get_args(expected)[0]
        found = [one if inner is Any else _checked(one, inner) for one in item.value]
        return found if typing.get_origin(expected) is list else tuple(found)
    if typing.get_origin(expected) is not None and not isinstance(expected, types.UnionType):
        if not isinstance(item.value, dict):
            raise item.fault(f"expected keys and values, got {_shown(item)}")
        for value in item.value.values():
            _checked(value, int | float | bool | str | None)
        return item.plain()
    allowed = typing.get_args(expected) or (expected,)
    # A bool is an int to Python and not to the one who wrote `instances: yes`.
    fits = isinstance(item.value, allowed) and (not isinstance(item.value, bool) or bool in allowed)
    if not fits:
        names = {
            str: "a text",
            int: "a whole number",
            float: "a number",
            bool: "true or false",
            type(None): "nothing",
        }
        raise item.fault(f"expected {' or '.join(names[kind] for kind in allowed)}, got {_shown(item)}")
    return item.value


def _shown(item: Located) -> str:
    text = json.dumps(item.plain(), default=str)
    return text if len(text) <= 60 else text[:57] + "..."
