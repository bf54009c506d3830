"""The proof, repeated: on this machine, with fresh inputs, against the files as they lie."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.compiler.build import EAGER_FILE
from aoti_pack.compiler.export import Exported, export
from aoti_pack.compiler.machine import check_machine
from aoti_pack.compiler.prove import make_reference, prove
from aoti_pack.compiler.prove_batching import prove_batching
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.target import check_device, parse_dtype
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import Progress
from aoti_pack.recipe import load_recipe


def verify(folder: Path, *, seed: int, progress: Progress) -> Manifest:
    """Repeat the proof of the package in `folder`, with inputs drawn from `seed`.

    Returns the manifest with the new proof; nothing is written. UserError when files are missing, changed or
    of another recipe than the one found now; ProofError when the package does not equal eager.
    """
    import torch

    manifest = Manifest.load(folder)
    check_files(folder, manifest)
    device = manifest.target.device
    check_device(device)
    check_machine(manifest)
    dtype = parse_dtype(manifest.dtype)
    progress("loading the recipe")
    recipe = load_recipe(manifest.recipe.source, manifest.recipe.settings)
    if (folder / EAGER_FILE).is_file():
        # The weights that were compiled, even where the recipe would draw others today.
        model = torch.load(folder / EAGER_FILE, map_location=device, weights_only=False)
        recipe = dataclasses.replace(recipe, model=model)
    progress("exporting")
    exported = export(recipe, dtype, device)
    _check_same_contract(manifest, exported)
    with tempfile.TemporaryDirectory(prefix="aoti-pack-proof-") as unpacked:
        unpack(folder / manifest.package.path, Path(unpacked))
        compiled = CompiledModel(Path(unpacked), device, manifest.package.model_name)
        reference = make_reference(recipe, exported, dtype, device)
        proof = prove(reference, compiled, seed, progress)
        batching = prove_batching(reference, compiled, seed, progress)
    if manifest.batching.proved and not batching.proved:
        raise ProofError(f"batching was proved when this was compiled and is not now: {batching.reason}")
    return dataclasses.replace(manifest, proof=proof, batching=batching)


def check_files(folder: Path, manifest: Manifest) -> None:
    """UserError naming the first file that is missing or is not the one that the manifest describes."""
    for file in manifest.files:
        path = folder / file.path
        if not path.is_file():
            raise UserError(f"{path} is missing", mend="compile the package again")
        if path.stat().st_size != file.bytes or sha256_of(path) != file.sha256:
            raise UserError(
                f"{path} is not the file that manifest.json describes: expected {file.bytes} bytes with sha256 "
                f"{file.sha256[:16]}…, got {path.stat().st_size} bytes",
                mend="compile the package again",
            )


def _check_same_contract(manifest: Manifest, exported: Exported) -> None:
    for kind in ("symbols", "inputs", "outputs", "baked"):
        then, now = getattr(manifest, kind), getattr(exported, kind)
        for old, new in zip(then, now, strict=False):
            if old != new:
                raise UserError(
                    f"the recipe changed since this was compiled: {kind} had {old}, now has {new}",
                    mend="compile the package again",
                )
        if len(then) != len(now):
            raise UserError(
                f"the recipe changed since this was compiled: {len(then)} {kind} then, {len(now)} now",
                mend="compile the package again",
            )
