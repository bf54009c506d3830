"""Compiled packages are kept by content between runs of the suite: a second run compiles nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import aoti_pack
from aoti_pack.atomic import exclusive
from aoti_pack.paths import user_cache
from aoti_pack.progress import silent

RECIPES = Path(__file__).parent / "recipes"
# Read before any test points AOTI_PACK_HOME elsewhere.
_CACHE = user_cache() / "test-packages"

CompiledPackage = Callable[..., Path]


def _digest(recipe: Path, settings: Mapping[str, Any], dtype: str) -> str:
    import torch

    root = Path(aoti_pack.__file__).parent
    sources = [
        recipe,
        *sorted(root.glob("*.py")),
        *sorted((root / "compiler").glob("*.py")),
    ]
    content = hashlib.sha256()
    for source in sources:
        if source.name not in ("cli.py", "console.py"):
            content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    content.update(
        json.dumps([str(recipe), dict(settings), dtype, torch.__version__], sort_keys=True).encode()
    )
    return content.hexdigest()[:24]


def compiled_package(
    recipe: str, settings: Mapping[str, Any] | None = None, dtype: str = "float32", attribute: str = "recipe"
) -> Path:
    """The folder of the package of tests/recipes/RECIPE.py, compiled at most once; never written to by a test."""
    from aoti_pack.compiler.build import compile_recipe

    file = RECIPES / f"{recipe}.py"
    folder = _CACHE / f"{recipe}-{_digest(file, settings or {}, dtype + attribute)}"
    with exclusive(_CACHE / f"{folder.name}.lock"):
        if not (folder / "manifest.json").is_file():
            compile_recipe(
                f"{file}:{attribute}", folder, dtype=dtype, settings=settings or {}, progress=silent
            )
    return folder


@pytest.fixture(scope="session", name="compiled_package")
def _compiled_package() -> CompiledPackage:
    return compiled_package


@pytest.fixture(scope="session")
def recipes() -> Path:
    return RECIPES
