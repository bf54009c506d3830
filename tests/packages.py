"""Compiled packages, kept by content between runs of the suite: a second run compiles nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aoti_pack
from aoti_pack.atomic import exclusive
from aoti_pack.paths import user_cache
from aoti_pack.progress import silent

_HERE = Path(__file__).resolve().parent
RECIPES = _HERE / "recipes"
CPP_RECIPES = _HERE.parent / "cpp" / "tests" / "recipes.py"
CPP_MODELS = ("arith", "select", "half", "lookup", "scale", "contract", "dtypes", "tower")
UPDATABLE = ("tower",)
# Read before any test points AOTI_PACK_HOME elsewhere.
_CACHE = user_cache() / "test-packages"

CompiledPackage = Callable[..., Path]


def compiled_package(
    recipe: str, settings: Mapping[str, Any] | None = None, dtype: str = "float32", *, updatable: bool = False
) -> Path:
    """The folder of a package that is compiled at most once; never written to by a test.

    `recipe` is `module:attribute` or `FILE.py:attribute`, or the bare name of a file in tests/recipes.
    """
    from aoti_pack.compiler.build import compile_recipe
    from aoti_pack.compiler.options import CompileOptions

    source = recipe if ":" in recipe else f"{RECIPES / recipe}.py:recipe"
    key = _digest(source, settings or {}, dtype, updatable)
    folder = _CACHE / f"{source.rpartition(':')[2]}-{key}"
    with exclusive(_CACHE / f"{folder.name}.lock"):
        if not (folder / "manifest.json").is_file():
            options = CompileOptions(dtype=dtype, updatable=updatable)
            compile_recipe(source, folder, options=options, settings=settings or {}, progress=silent)
    return folder


def cpp_package(name: str) -> Path:
    """The package of one of `CPP_MODELS`, which the C++ tests and the server tests share."""
    return compiled_package(
        f"{CPP_RECIPES}:{name}",
        dtype="bfloat16" if name == "half" else "float32",
        updatable=name in UPDATABLE,
    )


def _compilers(root: Path) -> list[Path]:
    return sorted(path for path in (root / "compiler" / "cxx").iterdir() if path.suffix != ".md")


def _digest(source: str, settings: Mapping[str, Any], dtype: str, updatable: bool) -> str:
    import torch

    root = Path(aoti_pack.__file__).parent
    file = Path(source.rpartition(":")[0])
    # A recipe's neighbours bear its name: `structure_parts.py` is `structure.py`'s.
    beside, models = file.parent.glob(f"{file.stem}*.py"), (root / "models").glob("*.py")
    own = sorted(beside if file.suffix == ".py" else models)
    content = hashlib.sha256()
    code = [*root.glob("*.py"), *(root / "compiler").glob("*.py"), *(root / "sources").glob("*.py")]
    for path in [*own, *sorted(code), *_compilers(root)]:
        if path.name not in ("cli.py", "console.py"):
            content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    # The source counts as it is written: the manifest carries it.
    key = [source, dict(settings), dtype, updatable, torch.__version__]
    content.update(json.dumps(key, sort_keys=True).encode())
    return content.hexdigest()[:24]
