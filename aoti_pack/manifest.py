"""The manifest: what is true about a package, written once by the compiler and enforced everywhere after.

`manifest.json` lies beside the package. The C++ backend reads the same file (`cpp/src/manifest.h`); a name, a
shape or a data type that both sides need stands here and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from aoti_pack.atomic import write_text
from aoti_pack.errors import UserError

SCHEMA = "2.0"
FILE_NAME = "manifest.json"

WireForm = Literal["rows", "ragged", "single"]
Executor = Literal["plain", "state", "speculative"]

# torch's name of a dtype -> the name that the KServe v2 protocol and Triton give it.
WIRE_DATATYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}


# A name before a parenthesis is a function of an output's size expression, not a symbol.
_SIZE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?![A-Za-z0-9_(])")


def size_names(dim: int | str) -> set[str]:
    """The symbols that a size of a shape depends on: `2*n` on `n`, a number on none."""
    return set(_SIZE_NAME.findall(dim)) if isinstance(dim, str) else set()


@dataclass(frozen=True)
class Symbol:
    """A size that varies from request to request: `min <= size <= max`."""

    name: str
    min: int
    max: int


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of the model, in the order in which the compiled package takes or gives it.

    `shape` holds a fixed size, a symbol's name, or (outputs only) an expression of symbols such as `2*n`.
    Axis 0 counts the symbol `shape[0]`. `dim_order` gives the strides: the axes from the slowest to the fastest
    in memory, dense; `0, 1, …` is row-major, which is what the wire carries (left empty, it becomes that).
    `mutated` says that the model writes into this input. `default` makes an input optional: where a request leaves
    it out, the model gets a tensor of this value everywhere.
    """

    name: str
    dtype: str
    datatype: str
    shape: tuple[int | str, ...]
    dim_order: tuple[int, ...] = ()
    mutated: bool = False
    default: int | float | bool | None = None

    def __post_init__(self) -> None:
        if not self.dim_order:
            object.__setattr__(self, "dim_order", tuple(range(len(self.shape))))

    @property
    def leading_symbol(self) -> str | None:
        """The symbol that axis 0 counts, or None for a fixed or missing axis 0."""
        first = self.shape[0] if self.shape else None
        return first if isinstance(first, str) else None


@dataclass(frozen=True)
class BakedScalar:
    """A non-tensor argument whose value was compiled in. A call that says another value is refused."""

    name: str
    value: int | float | bool | str | None


@dataclass(frozen=True)
class ConstantSpec:
    """A weight or buffer of the model inside the package. `updatable`: it can be replaced in a running server.

    `aliases` are the other names that the same tensor has in the model: those of a tied weight.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    updatable: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSpec:
    """A file that belongs to the package, relative to the manifest's folder."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class PackageSpec:
    """Where the compiled model lies: a `.pt2` file, or the folder it was unpacked to.

    `sha256` is that of the `.pt2` in both cases.
    """

    path: str
    sha256: str
    model_name: str = "model"


@dataclass(frozen=True)
class RecipeRef:
    """What the package was compiled from: `module:attribute` or `file.py:attribute`, and its settings."""

    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What the package needs of the machine that it runs on.

    device: `cpu`, `cuda` or `cuda:N`.
    arch: as `uname -m` gives it, such as `x86_64`.
    march: the compiler's target: `native`, `x86-64-v3`, …; on a GPU the architecture, such as `sm_90`.
    simd: the vector instructions that kernels are written for (`avx2`, …).
    cpu_features: the CPU features that the code may use, by the kernel's names, as in `/proc/cpuinfo`.
    glibc: the oldest C library that has every symbol that the code asks for.
    """

    device: str
    arch: str
    march: str
    simd: str
    cpu_features: tuple[str, ...]
    glibc: str


@dataclass(frozen=True)
class Batching:
    """Whether rows of different requests may share one run, and up to how many.

    `symbol` counts the rows; `max` is the largest joined size; `reason` says why when not `proved`.
    """

    proved: bool
    symbol: str | None
    max: int
    reason: str = ""


@dataclass(frozen=True)
class OutputError:
    """Errors of one output in one proof case, as max |a - b| over its elements.

    The float64 figures, `largest` (max |value| in float64) among them, are None where the model does not run in
    float64 or the output is not floating.
    """

    name: str
    compiled_eager: float
    compiled_float64: float | None
    eager_float64: float | None
    largest: float | None


@dataclass(frozen=True)
class ProofCase:
    """One set of symbol sizes that was tried."""

    sizes: Mapping[str, int]
    outputs: tuple[OutputError, ...]


@dataclass(frozen=True)
class Proof:
    """What was compared with eager PyTorch, and how far off it was."""

    seed: int
    rtol: float
    atol: float
    max_abs: float
    cases: tuple[ProofCase, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One way to compile and serve the model that was measured: `rows` in a run, the rate over all instances.

    `options` are those that differ from trial to trial. A way that failed the proof has no figures; `verdict` says
    what became of it.
    """

    options: Mapping[str, int | float | bool | str | None]
    instances: int
    threads: int
    rows: int
    rows_per_s: float | None
    p50_ms: float | None
    verdict: str


@dataclass(frozen=True)
class Tuning:
    """What was measured on a machine of `cores` before the package was compiled, and what serves fastest there."""

    cores: int
    instances: int
    threads: int
    rows: int
    trials: tuple[Trial, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The contract. See the module's docstring; `load` and `save` are the only way to and from disk.

    `torch` compiled the package; `torch_range` holds the oldest and the newest release, such as `2.12` and `2.14`,
    that may run it. `options` are those of the compiler (`CompileOptions`) that shaped the code. `unread` names what
    the model's `state_dict` has and the compiled code never reads; a file of weights may hold it.
    """

    name: str
    executor: Executor
    wire: WireForm
    recipe: RecipeRef
    package: PackageSpec
    files: tuple[FileSpec, ...]
    torch: str
    torch_range: tuple[str, ...]
    options: Mapping[str, int | float | bool | str | None]
    target: Target
    dtype: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    baked: tuple[BakedScalar, ...]
    constants: tuple[ConstantSpec, ...]
    batching: Batching
    proof: Proof
    unread: tuple[str, ...] = ()
    tuning: Tuning | None = None
    schema: str = SCHEMA

    @property
    def updatable(self) -> bool:
        """Whether the weights can be replaced in a running server."""
        return any(constant.updatable for constant in self.constants)

    def symbol(self, name: str) -> Symbol:
        """The symbol called `name`; KeyError if there is none."""
        for symbol in self.symbols:
            if symbol.name == name:
                return symbol
        raise KeyError(name)

    def to_json(self) -> str:
        """The text of `manifest.json`: stable key order, so equal manifests are equal bytes."""
        return json.dumps({"schema": self.schema} | asdict(self), indent=2, allow_nan=False) + "\n"

    def save(self, folder: Path) -> Path:
        """Write `folder/manifest.json` atomically and return its path."""
        path = folder / FILE_NAME
        write_text(path, self.to_json())
        return path

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `folder/manifest.json`. UserError when it is missing, malformed or of another version."""
        path = folder if folder.name == FILE_NAME else folder / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise UserError(
                f"{path} does not exist", mend="give a folder that `aoti-pack compile` wrote"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None
        try:
            return cls.from_json(text)
        except ManifestError as error:
            raise UserError(f"{path}: {error}", mend="compile the package again") from None

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse and validate. ManifestError names the field at fault, what was expected and what came."""
        from aoti_pack.manifest_parse import parse_manifest

        return parse_manifest(text)


class ManifestError(ValueError):
    """A manifest that is not one. The message names the field, what was expected and what came."""
