"""The whole way from a recipe to a folder with `model.pt2`, `manifest.json` and the eager twin's weights."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.atomic import new_directory
from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.compiler.export import Exported, export, place
from aoti_pack.compiler.lower import lower
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.prove import make_reference, prove
from aoti_pack.compiler.prove_batching import prove_batching
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.target import check_device, describe_target, own_dtype, parse_dtype, torch_range
from aoti_pack.compiler.tuning.search import TuneRequest, tune
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME as MANIFEST_FILE
from aoti_pack.manifest import (
    ConstantSpec,
    FileSpec,
    Manifest,
    PackageSpec,
    RecipeRef,
)
from aoti_pack.progress import Progress
from aoti_pack.recipe import load_recipe

if TYPE_CHECKING:
    from torch import nn

PACKAGE_FILE = "model.pt2"
EAGER_FILE = "eager.pt"
SAMPLE_FILE = "sample.pt"
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
            compiled = CompiledModel(Path(folder), device)
            proof = prove(reference, compiled, _SEED, progress)
            batching = prove_batching(reference, compiled, _SEED, progress)
        progress("writing")
        _save_eager(exported.model, beside / EAGER_FILE)
        torch.save(place(recipe.inputs, chosen, "cpu"), beside / SAMPLE_FILE)
        manifest = Manifest(
            name=recipe.name,
            executor="plain",
            wire="rows" if batching.proved else "single",
            recipe=RecipeRef(source, dict(settings or {})),
            package=PackageSpec(PACKAGE_FILE, sha256_of(package)),
            files=tuple(describe_file(beside, path) for path in sorted(beside.iterdir())),
            torch=torch.__version__,
            torch_range=torch_range(torch.__version__),
            options=options.record(),
            target=describe_target(options),
            dtype=dtype,
            symbols=exported.symbols,
            inputs=exported.inputs,
            outputs=exported.outputs,
            baked=exported.baked,
            constants=_constants(exported, compiled, options.updatable),
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
    ours = {PACKAGE_FILE, EAGER_FILE, SAMPLE_FILE, MANIFEST_FILE}
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


def _save_eager(model: nn.Module, path: Path) -> None:
    """Pickle the eager module for `verify` and the Python twin; no file where it cannot be pickled."""
    import torch

    try:
        torch.save(model, path)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):
        # Lambdas, local classes and handles do not pickle. The package serves without; the twin says why it cannot.
        path.unlink(missing_ok=True)


def describe_file(folder: Path, path: Path) -> FileSpec:
    """The manifest's record of the file `path`, relative to `folder`."""
    return FileSpec(path.relative_to(folder).as_posix(), sha256_of(path), path.stat().st_size)


def _constants(exported: Exported, compiled: CompiledModel, updatable: bool) -> tuple[ConstantSpec, ...]:
    state = exported.program.state_dict | exported.program.constants
    return tuple(
        ConstantSpec(name, str(state[name].dtype).removeprefix("torch."), tuple(state[name].shape), updatable)
        for name in compiled.constant_names()
        if name in state
    )
