"""Reading `manifest.json`: every field checked for its type, its range and what it refers to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from aoti_pack.fill_value import fill_fault
from aoti_pack.manifest import (
    SCHEMA,
    WIRE_DATATYPES,
    BakedScalar,
    Batching,
    ConstantSpec,
    Executor,
    FileSpec,
    Manifest,
    ManifestError,
    OutputError,
    PackageSpec,
    Proof,
    ProofCase,
    RecipeRef,
    Symbol,
    Target,
    TensorSpec,
    Trial,
    Tuning,
    WireForm,
    size_names,
)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
_DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")


def parse_manifest(text: str) -> Manifest:
    """Parse and validate; ManifestError names the field at fault, what was expected and what came."""
    try:
        raw = json.loads(text, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite)
        json.dumps(raw, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ManifestError(f"expected an object, got {type(raw).__name__}")
    raw = _known_part(raw) if _check_schema(raw.get("schema")) else raw
    manifest: Manifest = _build(Manifest, raw, "manifest")
    _validate(manifest)
    return manifest


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _integer(digits: str) -> int:
    # Whatever else reads the file holds numbers in 64 bits.
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError(f"{digits[:24]} takes more than 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(float(digits)):
        raise ValueError(f"{digits[:24]} is beyond what a float can hold")
    return float(digits)


def _check_schema(version: object) -> bool:
    """Whether the file is of a later minor version, which may say more than this one knows."""
    if not isinstance(version, str) or not _RELEASE.fullmatch(version):
        raise ManifestError(f"schema: expected a version such as {SCHEMA!r}, got {version!r}")
    if version.split(".")[0] != SCHEMA.split(".", maxsplit=1)[0]:
        raise ManifestError(f"schema: this aoti-pack reads version {SCHEMA}, the file has {version}")
    minor, known = version.split(".")[1].lstrip("0"), SCHEMA.split(".")[1].lstrip("0")
    return (len(minor), minor) > (len(known), known)


def _known_part(raw: dict[str, Any], cls: type[Any] = Manifest) -> dict[str, Any]:
    """`raw` without the fields that a later minor version added."""

    def one(name: str, value: Any) -> Any:
        record = _RECORDS.get((cls.__name__, name))
        if record is None:
            return value
        if isinstance(value, list):
            return [_known_part(item, record) if isinstance(item, dict) else item for item in value]
        return _known_part(value, record) if isinstance(value, dict) else value

    known = {f.name for f in fields(cls)}
    return {name: one(name, value) for name, value in raw.items() if name in known}


# Which record class stands in which field; everything else is a plain value, checked by `_plain`.
_RECORDS: Mapping[tuple[str, str], type[Any]] = {
    ("Manifest", "recipe"): RecipeRef,
    ("Manifest", "package"): PackageSpec,
    ("Manifest", "files"): FileSpec,
    ("Manifest", "target"): Target,
    ("Manifest", "symbols"): Symbol,
    ("Manifest", "inputs"): TensorSpec,
    ("Manifest", "outputs"): TensorSpec,
    ("Manifest", "baked"): BakedScalar,
    ("Manifest", "constants"): ConstantSpec,
    ("Manifest", "batching"): Batching,
    ("Manifest", "proof"): Proof,
    ("Proof", "cases"): ProofCase,
    ("ProofCase", "outputs"): OutputError,
    ("Manifest", "tuning"): Tuning,
    ("Tuning", "trials"): Trial,
}


def _build(cls: type[Any], raw: object, where: str) -> Any:
    if not isinstance(raw, dict):
        raise ManifestError(f"{where}: expected an object, got {raw!r}")
    known = {f.name: f for f in fields(cls)}
    if unknown := sorted(set(raw) - set(known)):
        raise ManifestError(f"{where}: unknown field {unknown[0]!r}")
    values: dict[str, Any] = {}
    for name, value in raw.items():
        kind = str(known[name].type)
        record = _RECORDS.get((cls.__name__, name))
        path = f"{where}.{name}"
        if record is not None and kind.startswith("tuple["):
            if not isinstance(value, list):
                raise ManifestError(f"{path}: expected a list, got {value!r}")
            values[name] = tuple(_build(record, item, f"{path}[{i}]") for i, item in enumerate(value))
        elif record is not None:
            absent = value is None and kind.endswith("| None")
            values[name] = None if absent else _build(record, value, path)
        else:
            values[name] = _plain(kind, value, path)
    for name, declared in known.items():
        if name not in values and declared.default is MISSING and declared.default_factory is MISSING:
            raise ManifestError(f"{where}: field {name!r} is missing")
    return cls(**values)


_SCALARS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "None": (type(None),),
}


def _plain(kind: str, value: Any, where: str) -> Any:
    """Check a JSON value against the annotation `kind` of its field and return it as the field holds it."""
    if kind.startswith("tuple["):
        if not isinstance(value, list):
            raise ManifestError(f"{where}: expected a list, got {value!r}")
        item_kind = kind.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_plain(item_kind, item, f"{where}[{i}]") for i, item in enumerate(value))
    if kind.startswith("Mapping["):
        if not isinstance(value, dict):
            raise ManifestError(f"{where}: expected an object, got {value!r}")
        item_kind = kind.removeprefix("Mapping[str, ").removesuffix("]")
        if item_kind == "Any":
            return value
        return {key: _plain(item_kind, item, f"{where}.{key}") for key, item in value.items()}
    choices = {"Executor": get_args(Executor), "WireForm": get_args(WireForm)}.get(kind)
    if choices is not None:
        if value not in choices:
            raise ManifestError(f"{where}: expected one of {', '.join(choices)}, got {value!r}")
        return value
    for option in kind.split(" | "):
        # bool is an int to Python; to a contract it is not.
        if isinstance(value, _SCALARS[option]) and (option == "bool" or not isinstance(value, bool)):
            if isinstance(value, float) and not math.isfinite(value):
                break
            # Sizes and counts are int64 to whatever else reads the file; a value may be uint64.
            if kind in ("int", "int | str") and isinstance(value, int) and value >= 2**63:
                break
            return value
    raise ManifestError(f"{where}: expected {kind.replace(' | ', ' or ')}, got {value!r}")


def _validate(manifest: Manifest) -> None:
    names = [s.name for s in manifest.symbols]
    _unique(names, "symbols")
    _unique([t.name for t in manifest.inputs], "inputs")
    _unique([t.name for t in manifest.outputs], "outputs")
    _unique([b.name for b in manifest.baked], "baked")
    _unique([c.name for c in manifest.constants], "constants")
    _validate_weight_names(manifest)
    _unique([f.path for f in manifest.files], "files")
    _validate_plain(manifest)
    if manifest.tuning is not None:
        _validate_tuning(manifest.tuning)
    for symbol in manifest.symbols:
        if not _IDENTIFIER.fullmatch(symbol.name) or not 0 <= symbol.min <= symbol.max:
            raise ManifestError(f"symbols: {symbol.name!r} has the range {symbol.min}..{symbol.max}")
    for kind, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for tensor in tensors:
            _validate_tensor(tensor, f"{kind}.{tensor.name}", set(names), expressions=kind == "outputs")
    _validate_sizes_are_told(manifest)
    if manifest.batching.symbol is not None and manifest.batching.symbol not in names:
        raise ManifestError(f"batching.symbol: no symbol is called {manifest.batching.symbol!r}")
    if manifest.batching.symbol is not None:
        largest = manifest.symbol(manifest.batching.symbol).max
        if manifest.batching.max > largest:
            raise ManifestError(f"batching.max: {manifest.batching.max} is beyond the symbol's max {largest}")
    if manifest.wire != "single" and not manifest.batching.proved:
        raise ManifestError(f"wire: {manifest.wire!r} joins requests, and batching is not proved")
    if manifest.wire == "rows":
        _validate_rows(manifest)
    package = manifest.package
    _validate_file("package", package.path, package.sha256)
    for index, file in enumerate(manifest.files):
        _validate_file(f"files[{index}]", file.path, file.sha256)
        if file.bytes < 0:
            raise ManifestError(f"files[{index}].bytes: expected 0 or more, got {file.bytes}")


def _validate_weight_names(manifest: Manifest) -> None:
    """Each name in a file of weights means one thing: a tied tensor, of one dtype and shape, or one to leave out."""
    _unique(list(manifest.unread), "unread")
    own = {constant.name: constant for constant in manifest.constants}
    meant: dict[str, ConstantSpec] = dict(own)
    for constant in manifest.constants:
        _unique([constant.name, *constant.aliases], f"constants.{constant.name}.aliases")
        for alias in constant.aliases:
            other = meant.setdefault(alias, constant)
            if (other.dtype, other.shape) != (constant.dtype, constant.shape):
                raise ManifestError(
                    f"constants.{constant.name}.aliases: {alias!r} is {other.dtype} {list(other.shape)}, expected "
                    f"{constant.dtype} {list(constant.shape)}"
                )
    for name in manifest.unread:
        if name in meant:
            raise ManifestError(f"unread: {name!r} is a constant of the package")


def _validate_rows(manifest: Manifest) -> None:
    """What joining along axis 0 and cutting again needs."""
    if not manifest.inputs:
        raise ManifestError("inputs: expected one or more for wire 'rows', got none")
    symbol = manifest.batching.symbol
    for kind, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for tensor in tensors:
            if tensor.leading_symbol != symbol:
                raise ManifestError(
                    f"{kind}.{tensor.name}: expected axis 0 to be {symbol!r} for wire 'rows', "
                    f"got {list(tensor.shape)}"
                )
            if any(symbol in size_names(dim) for dim in tensor.shape[1:]):
                raise ManifestError(
                    f"{kind}.{tensor.name}: expected axis 0 alone to count {symbol!r} for wire 'rows', "
                    f"got {list(tensor.shape)}"
                )


def _validate_tuning(tuning: Tuning) -> None:
    for where, one in (
        ("tuning", tuning),
        *((f"tuning.trials[{i}]", t) for i, t in enumerate(tuning.trials)),
    ):
        for field in ("instances", "threads", "rows"):
            if getattr(one, field) < 1:
                raise ManifestError(f"{where}.{field}: expected 1 or more, got {getattr(one, field)}")


def _validate_file(where: str, path: str, digest: str) -> None:
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
        raise ManifestError(f"{where}.path: {path!r} leaves the package's folder")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ManifestError(f"{where}.sha256: expected 64 hex digits, got {digest!r}")


def _validate_plain(manifest: Manifest) -> None:
    """What a field must be by itself, beyond its type."""
    for field, text in (
        ("name", manifest.name),
        ("package.model_name", manifest.package.model_name),
        ("recipe.source", manifest.recipe.source),
        ("torch", manifest.torch),
        ("target.arch", manifest.target.arch),
    ):
        if not text:
            raise ManifestError(f"{field}: expected a name, got an empty one")
    if manifest.dtype not in WIRE_DATATYPES:
        raise ManifestError(f"dtype: expected one of {', '.join(WIRE_DATATYPES)}, got {manifest.dtype!r}")
    if len(manifest.torch_range) != 2 or not all(map(_RELEASE.fullmatch, manifest.torch_range)):
        raise ManifestError(
            f"torch_range: expected two releases such as 2.12, got {list(manifest.torch_range)}"
        )
    if not _DEVICE.fullmatch(manifest.target.device):
        raise ManifestError(f"target.device: expected cpu, cuda or cuda:N, got {manifest.target.device!r}")
    for constant in manifest.constants:
        if constant.updatable and constant.dtype not in WIRE_DATATYPES:
            raise ManifestError(f"constants.{constant.name}.dtype: {constant.dtype!r} cannot be updated")
        if any(size < 0 for size in constant.shape):
            raise ManifestError(f"constants.{constant.name}.shape: a negative size in {list(constant.shape)}")
    proof, batching = manifest.proof, manifest.batching
    for field, number in (
        ("proof.rtol", proof.rtol),
        ("proof.atol", proof.atol),
        ("proof.max_abs", proof.max_abs),
        ("batching.max", batching.max),
    ):
        if number < 0:
            raise ManifestError(f"{field}: expected 0 or more, got {number}")
    if batching.proved and (batching.symbol is None or batching.max < 1):
        raise ManifestError(
            f"batching: proved, and so it needs a symbol and a max of 1 or more, got {batching.symbol!r} and "
            f"{batching.max}"
        )


def _validate_tensor(tensor: TensorSpec, where: str, symbols: set[str], *, expressions: bool) -> None:
    if WIRE_DATATYPES.get(tensor.dtype) != tensor.datatype:
        raise ManifestError(f"{where}: dtype {tensor.dtype!r} does not go as datatype {tensor.datatype!r}")
    if sorted(tensor.dim_order) != list(range(len(tensor.shape))):
        raise ManifestError(
            f"{where}.dim_order: expected each axis of {list(tensor.shape)} once, got {list(tensor.dim_order)}"
        )
    if tensor.default is not None:
        _validate_default(tensor, where, expressions)
    for dim in tensor.shape:
        if isinstance(dim, int) and dim < 0:
            raise ManifestError(f"{where}: a negative size {dim}")
        if isinstance(dim, str):
            used = size_names(dim)
            if not used or not used <= symbols or (not expressions and dim not in symbols):
                raise ManifestError(f"{where}: {dim!r} is not a symbol of this manifest")


def _validate_default(tensor: TensorSpec, where: str, is_output: bool) -> None:
    expected = "none on an output" if is_output else fill_fault(tensor.dtype, tensor.default)
    if expected is not None:
        raise ManifestError(f"{where}.default: expected {expected}, got {tensor.default!r}")


def _validate_sizes_are_told(manifest: Manifest) -> None:
    """The sizes of outputs and of optional inputs must be told by inputs that are always there."""
    told = {dim for tensor in manifest.inputs if tensor.default is None for dim in tensor.shape}
    for kind, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for tensor in tensors:
            untold = sorted({name for dim in tensor.shape for name in size_names(dim)} - told)
            if untold:
                raise ManifestError(
                    f"{kind}.{tensor.name}: no input without a default has the symbol {untold[0]!r} of its shape "
                    f"{list(tensor.shape)}"
                )


def _unique(names: list[str], where: str) -> None:
    for name in names:
        if not name or "\0" in name or names.count(name) > 1:
            raise ManifestError(f"{where}: the name {name!r} is empty, stands twice or holds a null byte")
