"""Which Python files a source consists of: its own, and those that it imported from its own folder or package."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoti_pack.recipe import file_module_name
from aoti_pack.sources.asked import split_settings

_FOREIGN = ("site-packages", "dist-packages")


def own_modules(source: str) -> dict[str, Path]:
    """Module name -> file of what `source` (`FILE.py:…` or `module:…`), which is loaded, consists of.

    For a file that is itself (under the name that pickles know) and the modules found under its folder; for a module
    those of its top package, or of its folder where it stands alone. Empty for what is not Python.
    """
    where = source.partition(":")[0]
    path = Path(where)
    if path.suffix == ".py":
        folder, own = path.resolve().parent, {file_module_name(path): path.resolve()}
        return own | _below(folder, prefix="")
    module = sys.modules.get(where)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return {}
    top = where.partition(".")[0]
    root = getattr(sys.modules.get(top), "__file__", None)
    if root is None or Path(root).name != "__init__.py":
        return {where: Path(file).resolve()} | (
            {} if _is_foreign(Path(file)) else _below(Path(file).resolve().parent, "")
        )
    return _below(Path(root).resolve().parent.parent, prefix=top)


def _below(folder: Path, prefix: str) -> dict[str, Path]:
    """The loaded modules that are found from `folder` under the names that they have; of the package `prefix` alone."""
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or (prefix and name.partition(".")[0] != prefix):
            continue
        path = Path(file).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            continue
        inside = path.relative_to(folder)
        parts = inside.with_suffix("").parts
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if dotted == name and path.suffix == ".py" and not _is_foreign(inside):
            found[name] = path
    return dict(sorted(found.items()))


def _is_foreign(path: Path) -> bool:
    return any(part in _FOREIGN for part in path.parts)


def source_files(source: str, settings: Mapping[str, Any]) -> list[str]:
    """The files that the model at `source`, which is loaded, and its example inputs consist of; files that a setting
    names, such as a checkpoint, are among them."""
    asked, own = split_settings(settings)
    files = {
        Path(value).resolve() for value in own.values() if isinstance(value, str) and Path(value).is_file()
    }
    for one in (source, asked.inputs):
        if one is None:
            continue
        path = Path(one.partition(":")[0])
        files |= {path.resolve()} if path.suffix in (".pt2", ".npz") else set(own_modules(one).values())
    return sorted(map(str, files))
