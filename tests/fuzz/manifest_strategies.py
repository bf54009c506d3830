"""Manifests for the fuzz tests: valid ones drawn, and valid ones spoiled."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st
from manifests import manifest

from aoti_pack.manifest import WIRE_DATATYPES, Batching, Manifest, Symbol, TensorSpec

# Names that a careless quote, join or look-up would get wrong.
NAMES = ("x", "ids", "user.id", "pair.0", "größe", "a b", "it's", '"', "x'", "X", "\t", "b", "{}", "%s")

# What this side alone reads: the C++ side neither checks it nor trips over it.
ONLY_PYTHON = ("recipe", "options", "dtype", "baked", "proof")
_ONLY_PYTHON_FIELDS = ("dim_order", "default", "simd", "reason")


@st.composite
def valid_manifests(draw: st.DrawFn) -> Manifest:
    """A manifest whose output number i has the dtype and the shape of input number i."""
    symbols = [
        Symbol(name, low, low + more)
        for name in ("b", "n", "k")
        for low, more in [draw(st.tuples(st.integers(0, 2), st.integers(1, 5)))]
    ]
    joined = draw(st.booleans())
    dim = st.integers(0, 3) | st.sampled_from(["n", "k"] if joined else ["n", "k", "b"])
    shape = st.lists(dim, max_size=2 if joined else 3)
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    inputs = []
    for name in names:
        dtype = draw(st.sampled_from(sorted(WIRE_DATATYPES)))
        sizes = (("b",) if joined else ()) + tuple(draw(shape))
        mutated = draw(st.booleans())
        inputs.append(TensorSpec(name, dtype, WIRE_DATATYPES[dtype], sizes, mutated=mutated))
    most = draw(st.integers(1, symbols[0].max))
    return manifest(
        wire="rows" if joined else "single",
        symbols=tuple(symbols),
        inputs=tuple(inputs),
        outputs=tuple(TensorSpec(f"out {i}", s.dtype, s.datatype, s.shape) for i, s in enumerate(inputs)),
        batching=Batching(True, "b", most) if joined else Batching(False, None, 0, "rows see each other"),
    )


def document(source: Manifest) -> dict[str, Any]:
    """The manifest as JSON, without the fields that this side alone reads and may leave out."""
    raw: dict[str, Any] = json.loads(source.to_json())
    for tensor in raw["inputs"] + raw["outputs"]:
        del tensor["dim_order"]
        del tensor["default"]
    return raw


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of the document that both sides read."""
    found = [path] if path else []
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        if not (path == () and step in ONLY_PYTHON) and step not in _ONLY_PYTHON_FIELDS:
            found += places(inner, (*path, step))
    return found


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    """What stands at `path`."""
    for step in path:
        value = value[step]
    return value


NUMBERS = [-1, 0, 1, 2, 8, 9, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30]
TEXTS = [
    *(
        "",
        "b",
        "n",
        "z",
        "x",
        "y",
        "2*n",
        "2*b",
        "Max(1, b)",
        "floor(n/2)",
        "f(",
        "2",
        "b+q",
        "plain",
        "magic",
        "rows",
    ),
    *("single", "..", ".", "./", "a/./b", "a/..", "a/../b", "/x", "//x", "a//b", "a\0b", "\0", "\ud800", "é"),
    *(
        "2.0",
        "2",
        "2.",
        ".0",
        "02.0",
        "2.9",
        "2.x",
        "2.0.1",
        "2.٣",
        "٢.0",
        "2." + "9" * 5000,
        " 2.0",
        "2.0\n",
    ),
    *("cpu", "cuda", "cuda:", "cuda:0", "cuda:999", "cuda:1000", "cuda:٣", "cuda:x", "cpu:0", "CPU", "tpu"),
    *("float32", "FP32", "bool", "BOOL", "complex64", "BYTES", "a" * 64, "A" * 64, "a" * 63, "a" * 65),
]
OTHERS: list[Any] = [
    *(
        True,
        False,
        None,
        1.0,
        2.5,
        1e300,
        -0.0,
        [],
        {},
        [[]],
        [1],
        ["b"],
        ["b", 2],
        ["n", "b"],
        [None],
        {"": 1},
    )
]
_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.sampled_from(OTHERS),
    st.text(max_size=3),
    st.integers(),
)


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def spoiled_documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid document after one to three changes in what both sides read; it may still be valid."""
    raw = document(draw(st.just(manifest()) | valid_manifests()))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(raw)))
        parent, step = at(raw, path[:-1]), path[-1]
        match draw(st.sampled_from(["value", "value", "value", "delete", "copy", "twice", "deep"])):
            case "value":
                parent[step] = draw(_VALUES)
            case "delete":
                del parent[step]
            case "copy":
                parent[step] = copy.deepcopy(at(raw, draw(st.sampled_from(places(raw)))))
            case "twice" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[step]))
            case "twice":
                parent[step] = [parent[step], copy.deepcopy(parent[step])]
            case "deep":
                parent[step] = _deep(draw(st.sampled_from([5, 150])))
    return raw
