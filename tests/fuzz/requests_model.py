"""Requests as the fake server holds them, and what must become of them: written apart from the C++ checks."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field
from typing import Any

from aoti_pack.manifest import WIRE_DATATYPES, Manifest, TensorSpec

POISON = 0xEE  # a run throws when its first input holds this byte
ITEM_BYTES = {"BOOL": 1, "BF16": 2} | {
    name: int(name.strip("UINTFP")) // 8 for name in WIRE_DATATYPES.values() if name not in ("BOOL", "BF16")
}
# The server's numbers for the datatypes.
NUMBER = {
    name: number
    for number, name in enumerate(
        [
            *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
            *("FP16", "FP32", "FP64", "BYTES", "BF16"),
        ]
    )
}


@dataclass
class Input:
    """One input: what the client claims, and the buffers that came."""

    name: str
    datatype: str
    shape: list[int]
    data: bytes
    cuts: list[int] = field(default_factory=list)  # where one buffer ends and the next begins
    misalign: int = 0
    claimed: int | None = None  # bytes that the server tells; None for the truth

    def described(self) -> dict[str, Any]:
        edges = [0, *sorted(self.cuts), len(self.data)]
        return {
            "name": self.name,
            "datatype": NUMBER[self.datatype],
            "shape": self.shape,
            "buffers": [b - a for a, b in itertools.pairwise(edges)],
            "misalign": self.misalign,
            "claimed": self.claimed,
        }


@dataclass
class Request:
    """One request of a batch."""

    inputs: list[Input]
    outputs: list[str]
    cancelled: bool = False

    def described(self) -> dict[str, Any]:
        return {
            "inputs": [one.described() for one in self.inputs],
            "outputs": self.outputs,
            "cancelled": self.cancelled,
        }


def parts(manifest: Manifest, batch: list[Request]) -> tuple[str, str, bytes]:
    """The parts of a case of kind `requests`."""
    described = json.dumps([request.described() for request in batch])
    return manifest.to_json(), described, b"".join(one.data for r in batch for one in r.inputs)


def model_shape(spec: TensorSpec, shape: list[int]) -> list[int]:
    """A tensor with no axes goes as one of one."""
    return [] if not spec.shape and shape == [1] else shape


def faults(manifest: Manifest, request: Request) -> set[str]:
    """The names of which a refusal must say one; empty for a request that fits."""
    specs = {spec.name: spec for spec in manifest.inputs}
    sent = [one.name for one in request.inputs]
    found = {name for name in sent if name not in specs or sent.count(name) > 1}
    found |= specs.keys() - set(sent)
    bound: dict[str, set[int]] = {}
    users: dict[str, set[str]] = {}
    for one in request.inputs:
        spec = specs.get(one.name)
        if spec is None:
            continue
        shape = model_shape(spec, one.shape)
        items = math.prod(shape)
        claimed = len(one.data) if one.claimed is None else one.claimed
        if (
            one.datatype != spec.datatype
            or len(shape) != len(spec.shape)
            or min(shape, default=0) < 0
            or items * ITEM_BYTES[spec.datatype] != claimed
        ):
            found.add(one.name)
        for size, dim in zip(shape, spec.shape, strict=False):
            if isinstance(dim, int):
                if size != dim:
                    found.add(one.name)
                continue
            symbol = manifest.symbol(dim)
            if not symbol.min <= size <= symbol.max:
                found.add(one.name)
            bound.setdefault(dim, set()).add(size)
            users.setdefault(dim, set()).add(one.name)
    for dim, sizes in bound.items():
        if len(sizes) > 1:
            found |= users[dim]
    return found


def bytes_that_never_came(request: Request) -> set[str]:
    """Inputs of which the server told one size and handed out another: its own fault, and no crash of ours."""
    return {one.name for one in request.inputs if one.claimed not in (None, len(one.data))}


def poisoned(manifest: Manifest, request: Request) -> bool:
    first = manifest.inputs[0].name
    return any(one.name == first and POISON in one.data for one in request.inputs)


def rows(manifest: Manifest, request: Request) -> int:
    """What a request adds to its run."""
    if manifest.wire == "single":
        return 1
    first = next(one for one in request.inputs if one.name == manifest.inputs[0].name)
    return first.shape[0]


def answer(manifest: Manifest, request: Request) -> list[dict[str, Any]]:
    """The outputs of a model that gives each input back, as far as they are asked for."""
    by_name = {one.name: one for one in request.inputs}
    outputs = []
    for name in request.outputs:
        index = [spec.name for spec in manifest.outputs].index(name)
        spec = manifest.inputs[index]
        one = by_name[spec.name]
        outputs.append(
            {
                "name": name,
                "datatype": spec.datatype,
                "shape": model_shape(spec, one.shape),
                "hex": one.data.hex(),
            }
        )
    return outputs
