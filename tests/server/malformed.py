"""Seeded requests in KServe's two protocols, most of them wrong, and what each must be answered.

The grammar stops where the server's own parsers break: no deep nesting of JSON, no bodies of very many chunks, and no
huge shape of a tensor whose data is JSON (the server makes room for the shape before it looks at the data).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

ITEM_BYTES = {
    **{"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2},
    **{"UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8},
}
_MOST = {"b": 64, "n": 32}
# Each input on the wire (`b` and `n` vary), and each output's name.
_ARITH = {"x": ("FP32", ["b", 16]), "y": ("FP32", ["b", 16])}
_LOOKUP = {"ids": ("INT64", ["b", "n"]), "lengths": ("INT64", ["b", 1])}
_SCALE = {"x": ("FP32", ["n"]), "factor": ("FP32", [1])}
MODELS: dict[str, tuple[dict[str, tuple[str, list[str | int]]], list[str]]] = {
    "arith": (_ARITH, ["out", "total"]),
    "lookup": (_LOOKUP, ["scores"]),
    "scale": (_SCALE, ["out", "total"]),
}
_NUMPY = {"FP32": np.float32, "INT64": np.int64}
REGION, REGION_BYTES = "malformed", 256
_LARGEST_JSON = 100_000  # elements
_SIZES = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 15, 17, 33, 65, 2**31, 2**32 + 1, 2**61, 2**62, 2**63 - 1]
_NAMES = ["", "X", "x ", "z", "ids", "y", "out", "größe", "a" * 5000, "../x", "%n%s", "x\n", "\u202e"]


@dataclass
class Tensor:
    """An input as it is sent; `parameters` are its own, such as a place in shared memory."""

    name: str
    datatype: str
    shape: list[int]
    data: bytes
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """One request. `must` is `error`, `answer`, or `either` where the protocol leaves it to the server."""

    model: str
    inputs: list[Tensor]
    outputs: list[str]
    version: str = ""
    identity: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)  # what was done to it
    must: str = "answer"
    send: str = "grpc"  # grpc, json or binary
    damage: Callable[[bytes], bytes] | None = None  # done to the message's bytes
    header_length: str | None = None  # of the JSON part of a binary body, in place of the true one


def good(rng: random.Random, model: str | None = None) -> Case:
    """A request that must be answered."""
    model = model or rng.choice(list(MODELS))
    specs, outputs = MODELS[model]
    sizes = {"b": rng.choice([1, 1, 2, 3, 7, 64]), "n": rng.choice([1, 2, 5, 32])}
    inputs = []
    for name, (datatype, dims) in specs.items():
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in dims]
        count = math.prod(shape)
        if datatype == "INT64":
            data = np.array([rng.randrange(100) for _ in range(count)], np.int64)
        else:
            data = np.array([rng.uniform(-3, 3) for _ in range(count)], np.float32)
        inputs.append(Tensor(name, datatype, shape, data.tobytes()))
    asked = rng.choice([outputs, outputs[:1], list(reversed(outputs))])
    return Case(
        model,
        inputs,
        list(asked),
        identity=rng.choice(["", "7"]),
        send=rng.choice(["grpc", "json", "binary"]),
    )


def fits(case: Case) -> bool:
    """Whether the tensors are what the model takes and the outputs what it gives."""
    specs, outputs = MODELS[case.model]
    if sorted(one.name for one in case.inputs) != sorted(specs) or not set(case.outputs) <= set(outputs):
        return False
    bound: dict[str, int] = {}
    for one in case.inputs:
        datatype, dims = specs[one.name]
        if one.datatype != datatype or len(one.shape) != len(dims):
            return False
        for size, dim in zip(one.shape, dims, strict=True):
            wanted = bound.setdefault(dim, size) if isinstance(dim, str) else dim
            if size != wanted or (isinstance(dim, str) and not 1 <= size <= _MOST[dim]):
                return False
        if math.prod(one.shape) * ITEM_BYTES[datatype] != len(one.data):
            return False
    if case.model == "lookup":
        ids = values(case)["ids"]
        return bool(((ids >= 0) & (ids < 100)).all())
    return True


def as_the_core_reads(case: Case) -> Case:
    """The same with the counts of rows as the server's core holds them: in 32 bits, 0 for what another input says.

    The backend is told the core's count, so such a request is one of as many rows.
    """
    if case.model == "scale":
        return case
    counts = [one.shape[0] % 2**32 for one in case.inputs if one.shape]
    rows = max(counts, default=0)
    inputs = [
        replace(one, shape=[rows if one.shape[0] % 2**32 in (0, rows) else one.shape[0], *one.shape[1:]])
        if one.shape
        else one
        for one in case.inputs
    ]
    return replace(case, inputs=inputs)


def values(case: Case) -> dict[str, np.ndarray]:
    """The inputs as arrays, of a case whose tensors fit."""
    return {i.name: np.frombuffer(i.data, _NUMPY[i.datatype]).reshape(i.shape) for i in case.inputs}


def expected(case: Case) -> dict[str, np.ndarray]:
    """What the model must give, by output, for a case that fits."""
    given = values(case)
    with np.errstate(all="ignore"):
        if case.model == "arith":
            out = np.sin(given["x"]) * 2 + given["y"]
            found = {"out": out, "total": out.sum(1, keepdims=True)}
        elif case.model == "scale":
            out = given["x"] * given["factor"]
            found = {"out": out, "total": out.sum()}
        else:
            # Row r of the table is 8r … 8r + 7, so its sum is 64 r + 28.
            rows = (64 * given["ids"] + 28).astype(np.float32)
            found = {"scores": np.where(np.arange(rows.shape[1]) < given["lengths"], rows, 0)}
    return {name: found[name] for name in case.outputs or found}


# What can be wrong. Each takes a case that fits so far and changes it.


def _resize(rng: random.Random, one: Tensor, shape: list[int]) -> None:
    """Another shape, half of the time with the bytes that it takes."""
    one.shape = shape
    count = math.prod(shape)
    if rng.random() < 0.5 and 0 <= count <= 20_000:
        one.data = bytes(count * ITEM_BYTES.get(one.datatype, 4))


def _datatype(rng: random.Random, case: Case) -> None:
    one = rng.choice(case.inputs)
    one.datatype = rng.choice([*ITEM_BYTES, "BYTES", "FP31", "fp32", "", "INVALID"])
    if rng.random() < 0.5:
        _resize(rng, one, one.shape)


def _size(rng: random.Random, case: Case) -> None:
    one = rng.choice(case.inputs)
    shape = list(one.shape)
    shape[rng.randrange(len(shape))] = rng.choice(_SIZES)
    _resize(rng, one, shape)


def _rank(rng: random.Random, case: Case) -> None:
    one = rng.choice(case.inputs)
    _resize(
        rng,
        one,
        rng.choice([[], [*one.shape, 1], [1, *one.shape], one.shape[:-1], [2] * 40, [0] * len(one.shape)]),
    )


def _bytes(rng: random.Random, case: Case) -> None:
    one = rng.choice(case.inputs)
    one.data = rng.choice(
        [b"", one.data[:-1], one.data + b"\0", one.data * 2, one.data[: len(one.data) // 2]]
    )


def _inputs(rng: random.Random, case: Case) -> None:
    one = rng.choice(case.inputs)
    match rng.choice(["drop", "all", "extra", "twice", "rename"]):
        case "drop":
            case.inputs.remove(one)
        case "all":
            case.inputs.clear()
        case "extra":
            case.inputs.append(Tensor(rng.choice(_NAMES), one.datatype, list(one.shape), one.data))
        case "twice":
            case.inputs.append(one)
        case "rename":
            one.name = rng.choice(_NAMES)


def _outputs(rng: random.Random, case: Case) -> None:
    case.outputs = rng.choice([[rng.choice(_NAMES)], [*case.outputs, rng.choice(_NAMES)]])


def _where(rng: random.Random, case: Case) -> None:
    if rng.random() < 0.5:
        case.version = rng.choice(["2", "0", "-1", "one", str(2**63), str(2**64), "1.0", "1 ", "0x1"])
        # The server reads a version as far as it is a number.
        case.must = "either" if case.version in ("1.0", "1 ") else "error"
    else:
        case.model = rng.choice(["nobody", "Arith", "arith/../scale", "a" * 3000, "größe", "%00"])
        case.must = "error"


def _region(rng: random.Random, case: Case) -> None:
    """A place in shared memory that is not there, or not long enough."""
    one = rng.choice(case.inputs)
    bad = [{"shared_memory_region": "nobody", "shared_memory_byte_size": len(one.data)}]
    for size, offset in ((REGION_BYTES + 4, 0), (64, REGION_BYTES), (64, 2**63 - 8), (2**62, 0)):
        bad.append(
            {
                "shared_memory_region": REGION,
                "shared_memory_byte_size": size,
                "shared_memory_offset": offset,
            }
        )
    one.parameters = rng.choice(bad)
    one.data = b""
    case.must = "error"


def _ids(rng: random.Random, case: Case) -> None:
    case.model, case.inputs, case.outputs = "lookup", good(rng, "lookup").inputs, ["scores"]
    ids = values(case)["ids"].copy()
    ids.flat[rng.randrange(ids.size)] = rng.choice(
        [100, 101, 2**31, 2**40, 2**63 - 1, -1, -100, -101, -(2**63)]
    )
    case.inputs[0].data = ids.tobytes()


def _not_finite(rng: random.Random, case: Case) -> None:
    """In truth valid: such a number is a number. JSON has none of them."""
    case.model, case.inputs, case.outputs = "arith", good(rng, "arith").inputs, ["out"]
    case.send = rng.choice(["grpc", "binary"])
    x = np.frombuffer(case.inputs[0].data, np.float32).copy()
    x[rng.randrange(x.size)] = rng.choice([np.nan, np.inf, -np.inf])
    case.inputs[0].data = x.tobytes()


def _parameters(rng: random.Random, case: Case) -> None:
    """Parameters that no model of these asks for: ignored, or refused by the server, never misread."""
    case.parameters = {
        rng.choice(
            ["scale", "x", "sequence_id", "priority", "timeout", "größe", "binary_data_output", ""]
        ): rng.choice([5, -1, 2**62, True, "", "seven", "a" * 2000])
    }
    case.must = "either"


def _header_length(rng: random.Random, case: Case) -> None:
    case.send = "binary"
    case.header_length = rng.choice(["0", "1", "-1", "7", "999999", str(2**63), str(2**64), "x", "", "1e3"])
    case.must = "error"


def _truncated(rng: random.Random, case: Case) -> None:
    part = rng.random()
    case.damage = lambda body: body[: int(len(body) * part)]
    case.must = "error"


def _flipped(rng: random.Random, case: Case) -> None:
    """A byte of the message's first part changed: names, shapes, structure; whatever is answered must be an answer
    to some request, so only that the server goes on is asked."""
    place, byte = rng.random(), rng.choice([0, 0x22, 0x7B, 0x7D, 0x80, 0xC3, 0xFF, rng.randrange(256)])

    def flip(body: bytes) -> bytes:
        where = int(min(len(body), 200) * place)
        return body[:where] + bytes([byte]) + body[where + 1 :]

    case.damage = flip
    case.must = "any"


WRONGS = [
    *(_datatype, _size, _size, _rank, _bytes, _inputs, _outputs, _where, _region, _ids, _not_finite),
    *(_parameters, _header_length, _truncated, _flipped),
]


def wrong(rng: random.Random) -> Case:
    """A request with something wrong with it, or nothing after all: `must` says which."""
    case = good(rng)
    change = rng.choice(WRONGS)
    change(rng, case)
    case.kinds.append(change.__name__.strip("_"))
    if case.must == "answer" and not fits(case):
        case.must = "either" if fits(as_the_core_reads(case)) else "error"
    if any(abs(math.prod(one.shape)) > _LARGEST_JSON for one in case.inputs) and case.send == "json":
        case.send = "binary"
    return case


# The two protocols.


def http_message(case: Case) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers."""
    from urllib.parse import quote

    version = f"/versions/{quote(case.version, safe='')}" if case.version else ""
    path = f"/v2/models/{quote(case.model, safe='')}{version}/infer"
    inputs, tail = [], b""
    for one in case.inputs:
        told: dict[str, Any] = {"name": one.name, "datatype": one.datatype, "shape": one.shape}
        if one.parameters:
            told["parameters"] = one.parameters
        elif case.send == "binary":
            told["parameters"] = {"binary_data_size": len(one.data)}
            tail += one.data
        else:
            numpy = _NUMPY.get(one.datatype)
            usable = numpy is not None and len(one.data) % ITEM_BYTES[one.datatype] == 0
            told["data"] = (
                np.frombuffer(one.data, numpy) if usable else np.frombuffer(one.data, np.uint8)
            ).tolist()
        inputs.append(told)
    document: dict[str, Any] = {"inputs": inputs, "outputs": [{"name": name} for name in case.outputs]}
    if case.identity:
        document["id"] = case.identity
    if case.parameters:
        document["parameters"] = case.parameters
    head = json.dumps(document, ensure_ascii=len(case.inputs) % 2 == 0).encode()
    headers = {}
    if case.send == "binary":
        length = str(len(head)) if case.header_length is None else case.header_length
        headers["Inference-Header-Content-Length"] = length
    body = head + tail
    return path, case.damage(body) if case.damage else body, headers


def grpc_message(case: Case) -> bytes:
    """The serialised ModelInferRequest."""
    request = service_pb2.ModelInferRequest(
        model_name=case.model, model_version=case.version, id=case.identity
    )
    _set(request.parameters, case.parameters)
    for one in case.inputs:
        told = request.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        _set(told.parameters, one.parameters)
        if not one.parameters:
            request.raw_input_contents.append(one.data)
    for name in case.outputs:
        request.outputs.add(name=name)
    body = request.SerializeToString()
    return case.damage(body) if case.damage else body


def _set(parameters: Any, wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(parameters[name], kind, value)
