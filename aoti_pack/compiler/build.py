"""The whole way from a recipe to a folder with `model.pt2`, `manifest.json` and the eager twin's weights."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.atomic import new_directory
from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.compiler.binary import find_objdump
from aoti_pack.compiler.cpu_target import cpu_target
from aoti_pack.compiler.export import export, place
from aoti_pack.compiler.lower import lower
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.prove import make_reference, prove
from aoti_pack.compiler.prove_batching import prove_batching
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.stable_pickle import save
from aoti_pack.compiler.target import check_device, describe_target, own_dtype, parse_dtype, torch_range
from aoti_pack.compiler.tuning.search import TuneRequest, tune
from aoti_pack.compiler.updatable import describe_constants, prove_updatable
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME as MANIFEST_FILE
from aoti_pack.manifest import (
    FileSpec,
    Manifest,
    PackageSpec,
    RecipeRef,
)
from aoti_pack.package_files import EAGER_FILE, PACKAGE_FILE, SAMPLE_FILE, SOURCE_FOLDER, STRUCTURE_FILE
from aoti_pack.progress import Progress
from aoti_pack.recipe import Inputs, load_recipe
from aoti_pack.sources.neighbours import own_modules
from aoti_pack.structure import leaves, map_leaves

if TYPE_CHECKING:
    from torch import nn

_SEED = 20_24


@dataclass(frozen=True)
class Compiled:
    """Where a package lies, and its contract."""

    folder: Path
    manifest: Manifest


def compile_recipe(
    source: str,
    out: Path,
    *,
    options: CompileOptions | None = None,
    settings: Mapping[str, Any] | None = None,
    tune_request: TuneRequest | None = None,
    progress: Progress,
) -> Compiled:
    """Compile the recipe at `source` into the folder `out` and prove it equal to eager.

    With a `tune_request`, other options are measured first and the fastest that pass the proof are taken.
    `out` is written in one step at the end: it is replaced if it holds a package already, refused if it holds
    something else. ProofError when the proof fails, UserError on wrong use; nothing is written then.
    """
    import torch

    options = options or CompileOptions()
    device, dtype = options.device, options.dtype
    if dtype is not None:
        parse_dtype(dtype)  # what is wrong with it is told before a recipe is loaded
    _check_settings(settings or {})
    check_device(device)
    cpu_target(options.target_cpu)
    find_objdump()
    check_output_folder(out)
    progress("loading the recipe")
    recipe = load_recipe(source, settings or {})
    options = replace(options, dtype=dtype or own_dtype(recipe))
    tuning = None
    if tune_request is not None:
        options, tuning = tune(recipe, options, tune_request, progress)
    dtype = str(options.dtype)
    chosen = parse_dtype(dtype)
    progress("exporting")
    exported = export(recipe, chosen, device)
    with new_directory(out) as beside:
        package = beside / PACKAGE_FILE
        reference = make_reference(recipe, exported, chosen, device)
        progress("compiling with AOTInductor")
        lower(exported, package, options)
        with tempfile.TemporaryDirectory(prefix="aoti-pack-proof-") as folder:
            unpack(package, Path(folder))
            target = describe_target(options, Path(folder))
            compiled = CompiledModel(Path(folder), device)
            proof = prove(reference, compiled, _SEED, progress)
            batching = prove_batching(reference, compiled, _SEED, progress)
            constants, unread = describe_constants(exported, compiled, options.updatable)
            if options.updatable:
                progress("proof with other weights")
                prove_updatable(reference, compiled, constants, _SEED)
        progress("writing")
        example = place(recipe.inputs, chosen, "cpu")
        _save_eager(exported.model, example, source, beside)
        save(dict(leaves(example)), beside / SAMPLE_FILE)
        manifest = Manifest(
            name=recipe.name,
            executor="plain",
            wire="rows" if batching.proved else "single",
            recipe=RecipeRef(source, dict(settings or {})),
            package=PackageSpec(PACKAGE_FILE, sha256_of(package)),
            files=tuple(describe_file(beside, path) for path in sorted(beside.rglob("*")) if path.is_file()),
            torch=torch.__version__,
            torch_range=torch_range(torch.__version__),
            options=options.record(),
            target=target,
            dtype=dtype,
            symbols=exported.symbols,
            inputs=exported.inputs,
            outputs=exported.outputs,
            baked=exported.baked,
            constants=constants,
            unread=unread,
            batching=batching,
            proof=proof,
            tuning=tuning,
        )
        manifest.save(beside)
    return Compiled(out, manifest)


def _check_settings(settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise UserError(f"the setting {key}={value!r} is not a value that a manifest can hold") from None


def check_output_folder(out: Path) -> None:
    """UserError when `out` exists and is not something that this tool wrote, or is where the user stands."""
    if Path.cwd().is_relative_to(out.resolve()):
        raise UserError(
            f"{out} is the current folder or one above it, and it would be replaced",
            mend="give a folder of its own",
        )
    ours = {PACKAGE_FILE, EAGER_FILE, STRUCTURE_FILE, SAMPLE_FILE, SOURCE_FOLDER, MANIFEST_FILE}
    found = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if found and MANIFEST_FILE not in found:
        raise UserError(
            f"{out} exists and holds no {MANIFEST_FILE}", mend="give a new folder, or one to replace"
        )
    if foreign := sorted(found - ours):
        raise UserError(
            f"{out} holds {foreign[0]!r}, which is no part of a package, and it would be replaced",
            mend="give a folder of its own",
        )
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, expected a folder")


def _save_eager(model: nn.Module, example: Inputs, source: str, folder: Path) -> None:
    """Pickle the eager module for `verify` and the Python twin, with the structure of its inputs and the Python files
    that its classes are in; no file where it cannot be pickled."""
    try:
        save(model, folder / EAGER_FILE)
        save(map_leaves(example, lambda path, _leaf: path), folder / STRUCTURE_FILE)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):
        # Lambdas, local classes and handles do not pickle. The package serves without; the twin says why it cannot.
        for name in (EAGER_FILE, STRUCTURE_FILE):
            (folder / name).unlink(missing_ok=True)
        return
    if source.partition(":")[0].endswith(".py"):
        for module, file in own_modules(source).items():
            name = "/".join(module.split("."))
            target = (
                folder
                / SOURCE_FOLDER
                / (f"{name}/__init__.py" if file.name == "__init__.py" else f"{name}.py")
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def describe_file(folder: Path, path: Path) -> FileSpec:
    """The manifest's record of the file `path`, relative to `folder`."""
    return FileSpec(path.relative_to(folder).as_posix(), sha256_of(path), path.stat().st_size)
