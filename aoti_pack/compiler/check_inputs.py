"""Inputs checked against the manifest, as the C++ backend checks a request, and made what compiled code expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, TensorSpec
from aoti_pack.structure import leaves

if TYPE_CHECKING:
    import torch

# Kernels for a GPU load vectors of this many bytes; fresh memory always begins at such an address.
_ALIGNMENT = 16


def flatten_inputs(manifest: Manifest, inputs: Mapping[str, Any], device: torch.device) -> list[torch.Tensor]:
    """The tensors of `inputs` in the package's order: checked, dense, aligned, optional ones filled in.

    `inputs` is nested as the model takes it, or flat by dotted names. What the model writes into is copied. UserError
    naming the input at fault, what was expected and what came.
    """
    found = _by_name(inputs)
    _check_names(manifest, found)
    _check_baked(manifest, found)
    sizes: dict[str, tuple[int, str]] = {}
    for spec in manifest.inputs:
        if spec.name in found:
            _check_tensor(manifest, spec, found[spec.name], device, sizes)
    return [
        _dense(spec, found[spec.name]) if spec.name in found else _filled(spec, sizes, device)
        for spec in manifest.inputs
    ]


def _by_name(inputs: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, leaf in leaves(inputs):
        if path in found:
            raise UserError(f"the input {path!r} is given twice")
        found[path] = leaf
    return found


def _check_names(manifest: Manifest, found: Mapping[str, Any]) -> None:
    expected = [spec.name for spec in manifest.inputs]
    baked = [scalar.name for scalar in manifest.baked]
    for name in found:
        if name not in expected and name not in baked:
            raise UserError(
                f"{manifest.name} has no input {name!r}",
                mend=f"its inputs are {', '.join([*expected, *baked])}",
            )
    for spec in manifest.inputs:
        if spec.name not in found and spec.default is None:
            raise UserError(f"the input {spec.name!r} of {manifest.name} is missing: {_expected(spec)}")


def _check_baked(manifest: Manifest, found: Mapping[str, Any]) -> None:
    for scalar in manifest.baked:
        if scalar.name not in found:
            continue
        value = found[scalar.name]
        if type(value) is not type(scalar.value) or value != scalar.value:
            raise UserError(
                f"the input {scalar.name!r} of {manifest.name} is compiled in as {scalar.value!r}, got {value!r}",
                mend="leave it out, or compile another package with that value",
            )


def _check_tensor(
    manifest: Manifest, spec: TensorSpec, value: Any, device: torch.device, sizes: dict[str, tuple[int, str]]
) -> None:
    import torch

    where = f"the input {spec.name!r} of {manifest.name}"
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        kind = value.layout if isinstance(value, torch.Tensor) else type(value).__name__
        raise UserError(f"{where} is a {kind}, expected a dense tensor: {_expected(spec)}")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != spec.dtype:
        raise UserError(
            f"{where} has dtype {dtype}, expected {spec.dtype}", mend=f"pass it as .to(torch.{spec.dtype})"
        )
    if value.device != device:
        raise UserError(
            f"{where} lies on {value.device}, expected {device}", mend=f"pass it as .to({str(device)!r})"
        )
    shape = list(value.shape)
    if len(shape) != len(spec.shape):
        raise UserError(f"{where} has rank {len(shape)} {shape}, expected {_expected(spec)}")
    for axis, (size, dim) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                raise UserError(f"{where} has size {size} on axis {axis}, expected {dim}: {_expected(spec)}")
            continue
        symbol = manifest.symbol(dim)
        if not symbol.min <= size <= symbol.max:
            raise UserError(
                f"{where} has size {size} on axis {axis}, expected {dim} = {symbol.min}..{symbol.max}"
            )
        known, by = sizes.setdefault(dim, (size, spec.name))
        if known != size:
            raise UserError(f"{where} has {dim} = {size} on axis {axis}, and {by!r} has {dim} = {known}")


def _expected(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"


def _filled(spec: TensorSpec, sizes: Mapping[str, tuple[int, str]], device: torch.device) -> torch.Tensor:
    """The tensor that stands for an optional input that is left out."""
    import torch

    for dim in spec.shape:
        if isinstance(dim, str) and dim not in sizes:
            raise UserError(f"the input {spec.name!r} is left out and no other input tells its size {dim!r}")
    shape = [sizes[dim][0] if isinstance(dim, str) else dim for dim in spec.shape]
    if spec.default is None:
        raise AssertionError("a required input that is missing was let through")
    return torch.full(shape, spec.default, dtype=getattr(torch, spec.dtype), device=device)


def _dense(spec: TensorSpec, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` with the strides that were compiled, in memory of its own where the model writes into it."""
    plain = tensor.detach().resolve_neg()
    order = spec.dim_order
    back = sorted(range(len(order)), key=lambda axis: order[axis])
    laid = plain.permute(order).contiguous()
    shares = laid.data_ptr() == tensor.data_ptr()
    if laid.numel() and ((spec.mutated and shares) or laid.data_ptr() % _ALIGNMENT):
        laid = laid.clone()
    return laid.permute(back)
