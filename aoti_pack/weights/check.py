"""Whether a file of weights is one for a package: told before anything moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoti_pack.errors import UserError
from aoti_pack.manifest import ConstantSpec, Manifest

# What safetensors calls the dtypes that a package can have.
_DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
_MOST_NAMES = 5


@dataclass(frozen=True)
class _Given:
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def check_weights(file: Path, manifest: Manifest) -> None:
    """UserError unless the safetensors `file` holds every updatable constant of `manifest` and nothing unknown.

    A constant may go by its name or an alias (a tied weight), or by several if their bytes are equal. Weights that the
    package does not read may be there.
    """
    updatable = [constant for constant in manifest.constants if constant.updatable]
    if not updatable:
        raise UserError(
            f"{manifest.name} was compiled without --updatable, so its weights cannot be replaced",
            mend="compile it again with `aoti-pack compile --updatable`",
        )
    given = _read_header(file)
    missing = [c.name for c in updatable if not any(name in given for name in (c.name, *c.aliases))]
    if missing:
        raise UserError(
            f"{file} lacks {_names(missing)} of {manifest.name}",
            mend="save the whole state_dict of the recipe's model; `aoti-pack inspect --json` lists the names",
        )
    known = {name for c in updatable for name in (c.name, *c.aliases)} | set(manifest.unread)
    if unknown := sorted(set(given) - known):
        fixed = {c.name for c in manifest.constants}
        why = "is compiled into the package" if unknown[0] in fixed else "is no weight of the package"
        raise UserError(
            f"{file} holds {_names(unknown)}; {unknown[0]!r} {why}",
            mend="save the state_dict of the recipe's model and nothing else",
        )
    for constant in updatable:
        _check_constant(file, constant, given)


def _read_header(file: Path) -> Mapping[str, _Given]:
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise UserError(f"{file} is not a file", mend="give a file that safetensors.torch.save_file wrote")
    try:
        opened: Any = safe_open(file, framework="np")
        with opened as tensors:
            found = {}
            for name in tensors.keys():  # noqa: SIM118 - the reader is no mapping
                part = tensors.get_slice(name)
                dtype = part.get_dtype()
                found[name] = _Given(_DTYPES.get(dtype, dtype), tuple(part.get_shape()))
            return found
    except SafetensorError as error:
        raise UserError(
            f"{file} is not a whole safetensors file: {error}",
            mend="write it with safetensors.torch.save_file",
        ) from None


def _check_constant(file: Path, constant: ConstantSpec, given: Mapping[str, _Given]) -> None:
    names = [name for name in (constant.name, *constant.aliases) if name in given]
    wanted = _Given(constant.dtype, constant.shape)
    for name in names:
        if given[name] != wanted:
            mend = "push the weights of the model that was compiled, or compile this one"
            if given[name].shape == wanted.shape:
                mend = f"convert it: tensor.to(torch.{wanted.dtype})"
            raise UserError(f"{file}: {name!r}: expected {wanted}, got {given[name]}", mend=mend)
    if len(names) > 1:
        _check_equal(file, names)


def _check_equal(file: Path, names: Sequence[str]) -> None:
    import torch
    from safetensors import safe_open

    opened: Any = safe_open(file, framework="pt")
    with opened as tensors:
        first, *others = (tensors.get_tensor(name).reshape(-1).view(torch.uint8) for name in names)
        for name, other in zip(names[1:], others, strict=True):
            if not torch.equal(first, other):
                raise UserError(
                    f"{file}: {names[0]!r} and {name!r} are one tensor in the model and differ in the file",
                    mend="leave one of them out",
                )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
