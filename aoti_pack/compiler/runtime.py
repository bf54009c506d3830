"""A compiled package as something that can be called, for proof and tuning. Serving is the C++ backend's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Loaders that are built at the same time can crash the process.
_LOADING = threading.Lock()


class CompiledModel:
    """A package that was unpacked into a folder. The folder must stay while this is used.

    Checks nothing: the caller passes contiguous tensors of the manifest's dtypes and shapes, and never runs it on
    more threads at a time than `runners`: a run that throws strands one that waits. See `aoti_pack.load`.
    """

    def __init__(self, folder: Path, device: str, model_name: str = "model", *, runners: int = 1) -> None:
        import torch

        index = torch.device(device).index
        loader: Any = torch._C._aoti.AOTIModelPackageLoader
        with _LOADING:
            self._loader = loader(str(folder), model_name, False, runners, -1 if index is None else index)

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """One run: flat inputs to flat outputs, both in the manifest's order."""
        outputs: list[torch.Tensor] = self._loader.run(inputs)
        return outputs

    def constant_names(self) -> list[str]:
        """The weights and buffers in the package, by their names in the model."""
        return sorted(self._loader.get_constant_fqns())
