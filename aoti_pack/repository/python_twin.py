"""The same model for Triton's Python backend: same weights, same names, same batching. The baseline."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

from aoti_pack.compiler.build import describe_file
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.package_files import EAGER_FILE, SAMPLE_FILE, SOURCE_FOLDER, STRUCTURE_FILE


def twin_parameters(*, compiled: bool) -> Mapping[str, str]:
    """The `parameters` of the twin's config.pbtxt: whether it runs the eager model or compiles it first."""
    return {"mode": "compile" if compiled else "eager"}


def add_twin(folder: Path, manifest: Manifest, target: Path) -> Manifest:
    """Write the twin of the package in `folder` into the version folder `target`.

    Returns the manifest of what was written. UserError when the eager model could not be pickled at compile time.
    """
    if not (folder / EAGER_FILE).is_file():
        raise UserError(
            f"{folder} holds no {EAGER_FILE}: the model of {manifest.name} could not be pickled",
            mend="define its classes at the top of a module and compile it again",
        )
    for name in (EAGER_FILE, STRUCTURE_FILE, SAMPLE_FILE):
        shutil.copyfile(folder / name, target / name)
    shutil.copyfile(Path(__file__).with_name("twin_model.py"), target / "model.py")
    if (folder / SOURCE_FOLDER).is_dir():
        shutil.copytree(folder / SOURCE_FOLDER, target / SOURCE_FOLDER)
    files = tuple(describe_file(target, path) for path in sorted(target.rglob("*")) if path.is_file())
    return dataclasses.replace(manifest, files=files)
