"""A package that can be called from Python, every input checked first. `aoti_pack.load` is its way in."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.compiler.archive import check_files, unpack
from aoti_pack.compiler.check_inputs import flatten_inputs
from aoti_pack.compiler.machine import check_machine
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.target import check_device
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME, Manifest

if TYPE_CHECKING:
    import torch

# A package is unpacked once a process, by its content: its library stays mapped until the process ends.
_UNPACKED: dict[str, tempfile.TemporaryDirectory[str]] = {}
_UNPACKING = threading.Lock()


class LoadedPackage:
    """A compiled model: `package(x=…, options={"key": …})` or `package(**{"options.key": …})`.

    manifest: the contract that every call is checked against.
    device: where inputs are expected and outputs lie.

    Any number of threads may call it; `runners` of them run at a time, the others wait.
    """

    def __init__(
        self, manifest: Manifest, compiled: CompiledModel, device: torch.device, runners: int
    ) -> None:
        self.manifest = manifest
        self.device = device
        self._compiled = compiled
        # Never more callers inside than runners: a run that throws would strand one that waits in there.
        self._slots = threading.BoundedSemaphore(runners)

    def __call__(self, /, **inputs: Any) -> dict[str, torch.Tensor]:
        """One run: the outputs by their names, in memory that is the caller's own.

        Inputs are nested as the model takes them, or flat under dotted names; those with a default may be left out,
        and so may values that are compiled in. A tensor that is not dense is copied; none is written into. UserError
        naming the input that is missing, unknown, or of another dtype, device, rank, size or value.
        """
        import torch

        flat = flatten_inputs(self.manifest, inputs, self.device)
        with torch.no_grad(), self._slots:
            outputs = self._compiled.run(flat)
        specs = self.manifest.outputs
        if len(outputs) != len(specs):
            raise RuntimeError(f"{self.manifest.name} gave {len(outputs)} outputs, expected {len(specs)}")
        taken = {_memory(tensor) for tensor in flat}
        own: dict[str, torch.Tensor] = {}
        for spec, output in zip(specs, outputs, strict=True):
            # An output may be an input or another output; one without a symbol in its shape, a weight.
            is_shared = _memory(output) in taken or not any(isinstance(dim, str) for dim in spec.shape)
            own[spec.name] = output.clone() if is_shared else output
            taken.add(_memory(output))
        return own

    def __repr__(self) -> str:
        inputs = ", ".join(spec.name for spec in self.manifest.inputs)
        return f"<LoadedPackage {self.manifest.name}({inputs}) on {self.device}>"


def load(folder: str | Path, device: str | None = None, *, runners: int = 1) -> LoadedPackage:
    """Load the package in `folder`: what `compile` wrote, or a version folder of a model repository.

    device: `cuda:1` in place of the manifest's `cuda`. runners: how many calls may run at the same time; they share
    the weights.

    UserError when it is no package, or one that this machine cannot run; CheckError when a file is not the one that
    the manifest describes.
    """
    import torch

    path = Path(folder)
    path = path.parent if path.name == FILE_NAME else path
    if runners < 1:
        raise UserError(f"runners is {runners}, expected 1 or more")
    manifest = Manifest.load(path)
    where = _device(manifest, device)
    check_machine(manifest)
    check_files(path, manifest)
    package = path / manifest.package.path
    if not package.exists():
        raise UserError(
            f"{path} holds no {manifest.package.path}: it is the twin for Triton's Python backend",
            mend="load the folder that `aoti-pack compile` wrote",
        )
    unpacked = package if package.is_dir() else _unpacked(package, manifest.package.sha256)
    compiled = CompiledModel(unpacked, where, manifest.package.model_name, runners=runners)
    return LoadedPackage(manifest, compiled, torch.empty(0, device=where).device, runners)


def _device(manifest: Manifest, asked: str | None) -> str:
    own = manifest.target.device
    where = own if asked is None else asked
    if where.partition(":")[0] != own.partition(":")[0]:
        raise UserError(
            f"{manifest.name} was compiled for {own}, and {where!r} was asked for",
            mend=f"compile it with --device {where.partition(':')[0]}",
        )
    check_device(where)
    return where


def _unpacked(package: Path, digest: str) -> Path:
    with _UNPACKING:
        if digest not in _UNPACKED:
            folder = tempfile.TemporaryDirectory(prefix="aoti-pack-loaded-")
            unpack(package, Path(folder.name))
            _UNPACKED[digest] = folder
        return Path(_UNPACKED[digest].name)


def _memory(tensor: torch.Tensor) -> int:
    """What tells the memory of `tensor` from that of others, views of it included."""
    return tensor.untyped_storage().data_ptr()
