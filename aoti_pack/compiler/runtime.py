"""A compiled package as something that can be called, for proof and tuning. Serving is the C++ backend's."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError

if TYPE_CHECKING:
    import torch

# Loaders that are built at the same time can crash the process.
_LOADING = threading.Lock()
# What AOTInductor's linker step puts around the weights in a package's library. Without weights, a padding byte.
_WEIGHTS_START, _WEIGHTS_END, _EMPTY_BYTES = "_binary_constants_bin_start", "_binary_constants_bin_end", 1


class CompiledModel:
    """A package that was unpacked into a folder. The folder must stay while this is used.

    UserError when it is a package without weights, which would crash at its first run. Checks nothing else: the
    caller passes contiguous tensors of the manifest's dtypes and shapes, and never runs it on more threads at a time
    than `runners`: a run that throws strands one that waits. See `aoti_pack.load`.
    """

    def __init__(self, folder: Path, device: str, model_name: str = "model", *, runners: int = 1) -> None:
        import torch

        index = torch.device(device).index
        loader: Any = torch._C._aoti.AOTIModelPackageLoader
        with _LOADING:
            self._loader = loader(str(folder), model_name, False, runners, -1 if index is None else index)
        if self._loader.get_constant_fqns():
            _refuse_unpopulated(folder, model_name)

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """One run: flat inputs to flat outputs, both in the manifest's order."""
        outputs: list[torch.Tensor] = self._loader.run(inputs)
        return outputs

    def constant_names(self) -> list[str]:
        """The weights and buffers in the package, by their names in the model."""
        return sorted(self._loader.get_constant_fqns())

    def replace_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Give constants new values, by their names in the model; the others keep theirs.

        The loader checks nothing: each value must have the dtype, shape and strides of what it replaces.
        """
        self._loader.load_constants({name: _own(value) for name, value in constants.items()}, False, False)


def _own(value: torch.Tensor) -> torch.Tensor:
    """`value` in a storage of its own: the loader copies whole storages, a view's neighbours too."""
    import torch

    own = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return own.copy_(value.detach())


def _refuse_unpopulated(folder: Path, model_name: str) -> None:
    for library in sorted((folder / "data" / "aotinductor" / model_name).glob("*.so")):
        opened = ctypes.CDLL(str(library))  # the loader has it open: this is the same one
        try:
            start, end = (
                ctypes.addressof(ctypes.c_char.in_dll(opened, name))
                for name in (_WEIGHTS_START, _WEIGHTS_END)
            )
        except ValueError:
            continue  # a library that says nothing about weights
        if end - start <= _EMPTY_BYTES:
            raise UserError(
                f"{library} was compiled without its weights (package_constants_in_so=False) and cannot run",
                mend="compile it with `aoti-pack compile`, which keeps them inside",
            )
