"""Which Python files a source consists of: its own, and those that it imports from its own folder or package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aoti_pack.recipe import file_module_name
from aoti_pack.sources.asked import split_settings

_FOREIGN = ("site-packages", "dist-packages")


def own_modules(source: str) -> dict[str, Path]:
    """Module name -> file of what `source` (`FILE.py:…` or `module:…`), which is loaded, consists of.

    That is its own file (under the name that pickles know) and what that imports, directly or through others, from
    its folder, or from its top package. Empty for what is not Python.
    """
    where = source.partition(":")[0]
    path = Path(where)
    if path.suffix == ".py":
        own = {file_module_name(path): path.resolve()}
        return own | _reached(where, path.resolve(), _below(path.resolve().parent))
    file = getattr(sys.modules.get(where), "__file__", None)
    if not isinstance(file, str):
        return {}
    top = where.partition(".")[0]
    root = Path(str(getattr(sys.modules.get(top), "__file__", None) or file)).resolve()
    is_package = root.name == "__init__.py"
    found = _below(root.parent.parent if is_package else root.parent)
    if is_package:
        found = {name: path for name, path in found.items() if name.partition(".")[0] == top}
    return {where: Path(file).resolve()} | _reached(where, Path(file).resolve(), found)


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


def _below(folder: Path) -> dict[str, Path]:
    """The loaded modules that are found from `folder` under the names that they have."""
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if isinstance(file, str) else None
        if path is None or not path.is_relative_to(folder) or path.suffix != ".py" or not path.is_file():
            continue
        inside = path.relative_to(folder)
        parts = inside.with_suffix("").parts
        dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if dotted == name and not any(part in _FOREIGN for part in inside.parts):
            found[name] = path
    return found


def _reached(name: str, file: Path, candidates: Mapping[str, Path]) -> dict[str, Path]:
    """Those of `candidates` that the module `name` in `file` imports, and that those import in turn.

    Read off the files' text: another source loaded by the same process leaves its modules there too.
    """
    found: dict[str, Path] = {}
    waiting = [(name, file)]
    while waiting:
        importer, path = waiting.pop()
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        for wanted in _named(path, package):
            parts = wanted.split(".")
            for count in range(1, len(parts) + 1):
                module = ".".join(parts[:count])
                if module in candidates and module not in found:
                    found[module] = candidates[module]
                    waiting.append((module, candidates[module]))
    return dict(sorted(found.items()))


def _named(path: Path, package: str) -> Iterator[str]:
    """The dotted names that the Python file `path` imports, or names in a text, as `import_module` is told them."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
            yield base
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
