"""How a package will be served, decided before anything is written: what `package` writes and `config` prints."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, TensorSpec, WireForm
from aoti_pack.package_files import SAMPLE_FILE
from aoti_pack.repository.config import Serving, WarmupInput, model_config, tuned, wire_dims, wire_form
from aoti_pack.repository.python_twin import twin_parameters

if TYPE_CHECKING:
    import torch

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class Plan:
    """A package as it will be served.

    manifest: with the wire form that the serving options leave it. serving: with what was tuned filled in.
    config: config.pbtxt in JSON form.
    warmup: what goes into the files of the warm-up request, which lie in `warmup/` beside config.pbtxt.
    """

    name: str
    manifest: Manifest
    serving: Serving
    max_batch_size: int
    config: Mapping[str, Any]
    warmup: Mapping[str, torch.Tensor]


def plan_model(
    folder: Path,
    *,
    name: str | None = None,
    backend: str = "aoti",
    compile_twin: bool = False,
    serving: Serving | None = None,
) -> Plan:
    """Decide how the package in `folder` is served by `backend` (`aoti`, or `python` for its twin).

    UserError when there is no package, the name is not one, or the serving options contradict the proof.
    """
    manifest = Manifest.load(folder)
    serving = tuned(manifest, serving or Serving())
    name = name or (manifest.name if backend == "aoti" else f"{manifest.name}_python")
    if not _NAME.fullmatch(name):
        raise UserError(f"--name {name!r} cannot be a model's name", mend="use letters, digits, _ - and .")
    form, max_batch_size = wire_form(manifest, serving)
    manifest = dataclasses.replace(manifest, wire=form)
    tensors = _sample(folder, manifest)
    files = {f"{index}.bin": tensor for index, tensor in enumerate(tensors)}
    warmup = [
        WarmupInput(spec, _dims(spec, tensor, form), file)
        for spec, (file, tensor) in zip(manifest.inputs, files.items(), strict=True)
    ]
    rows = int(tensors[0].shape[0]) if form == "rows" else 1
    config = model_config(
        manifest,
        serving,
        name=name,
        backend=backend,
        warmup=warmup,
        warmup_rows=min(rows, max_batch_size) if max_batch_size else 1,
        parameters=twin_parameters(compiled=compile_twin) if backend == "python" else {},
    )
    return Plan(name, manifest, serving, max_batch_size, config, files)


def _sample(folder: Path, manifest: Manifest) -> Sequence[torch.Tensor]:
    """The recipe's example, in the order of the manifest's inputs."""
    import torch

    found: dict[str, Any] = torch.load(folder / SAMPLE_FILE, weights_only=True)
    return [found[spec.name] for spec in manifest.inputs]


def _dims(spec: TensorSpec, tensor: torch.Tensor, form: WireForm) -> tuple[int, ...]:
    _, scalar = wire_dims(spec, form)
    if scalar:
        return (1,)
    return tuple(tensor.shape[1:] if form == "rows" else tensor.shape)
