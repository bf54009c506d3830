"""aoti-pack: from a PyTorch model to a Python-free Triton server, proved right at every step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_pack.compiler.loaded import LoadedPackage

__version__ = "0.1.0"


def load(folder: str | Path, device: str | None = None, *, runners: int = 1) -> LoadedPackage:
    """A package that can be called from Python, every input checked: see `aoti_pack.compiler.loaded.load`.

    `aoti_pack.load("build/scorer")(features=x, weight=w)["score"]`
    """
    from aoti_pack.compiler.loaded import load as load_package  # torch is imported here, and not before

    return load_package(folder, device, runners=runners)
