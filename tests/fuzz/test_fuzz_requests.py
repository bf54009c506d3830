"""Requests against a manifest: C++ accepts what an oracle of our own accepts, says who is at fault, and gives each
request its own part of a joined run."""

from __future__ import annotations

import math

import pytest
from driver import Driver
from hypothesis import given
from hypothesis import strategies as st
from manifest_strategies import NAMES, valid_manifests
from requests_model import (
    ITEM_BYTES,
    NUMBER,
    POISON,
    Input,
    Request,
    answer,
    bytes_that_never_came,
    faults,
    parts,
    poisoned,
    rows,
)

from aoti_pack.manifest import Manifest

pytestmark = pytest.mark.fuzz

_SIZES = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 2**31, 2**32, 2**61, 2**62, 2**63 - 1]
_CANCELLED = 7  # TRITONSERVER_ERROR_CANCELLED
_INVALID = 3
_WRONGS = (
    "drop",
    "extra",
    "twice",
    "rename",
    "datatype",
    "size",
    "rank",
    "fitted",
    "claimed",
    "poison",
    "output",
    "cancel",
)


@st.composite
def good_requests(draw: st.DrawFn, manifest: Manifest) -> Request:
    sizes = {symbol.name: draw(st.integers(symbol.min, symbol.max)) for symbol in manifest.symbols}
    inputs = []
    for spec in manifest.inputs:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape]
        if not shape and draw(st.booleans()):
            shape = [1]
        length = math.prod(shape) * ITEM_BYTES[spec.datatype]
        first = draw(st.integers(0, 99))
        data = bytes((first + 7 * i) % 200 for i in range(length))
        cuts = draw(st.lists(st.integers(0, length), max_size=3))
        inputs.append(
            Input(spec.name, spec.datatype, shape, data, cuts, draw(st.sampled_from([0, 0, 1, 3, 8])))
        )
    asked = draw(st.lists(st.sampled_from([spec.name for spec in manifest.outputs]), unique=True))
    return Request(draw(st.permutations(inputs)), asked)


def _spoil(draw: st.DrawFn, request: Request) -> None:  # noqa: PLR0912  one branch a kind of wrong
    """One change that a client, or a server at odds with itself, could make."""
    if not request.inputs:
        return
    one = draw(st.sampled_from(request.inputs))
    match draw(st.sampled_from(_WRONGS)):
        case "drop":
            request.inputs.remove(one)
        case "extra":
            request.inputs.append(Input(draw(st.sampled_from(NAMES)), "FP32", [1], b"abcd"))
        case "twice":
            request.inputs.append(one)
        case "rename":
            one.name = draw(
                st.sampled_from(NAMES) | st.text(st.characters(codec="utf-8", exclude_characters="\0"))
            )
        case "datatype":
            one.datatype = draw(st.sampled_from(sorted(NUMBER)))
        case "size" if one.shape:
            one.shape[draw(st.integers(0, len(one.shape) - 1))] = draw(st.sampled_from(_SIZES))
        case "fitted" if one.shape and one.datatype in ITEM_BYTES:
            # Another size with the bytes that it takes.
            one.shape[draw(st.integers(0, len(one.shape) - 1))] = draw(st.integers(0, 7))
            one.data, one.cuts = bytes(max(0, math.prod(one.shape)) * ITEM_BYTES[one.datatype]), []
        case "rank":
            one.shape = draw(st.just([*one.shape, 1]) | st.just(one.shape[:-1]) | st.just([1, *one.shape]))
        case "claimed":
            one.claimed = draw(st.integers(0, len(one.data) + 2) | st.sampled_from([2**63, 2**64 - 1]))
        case "poison" if one.data:
            where = draw(st.integers(0, len(one.data) - 1))
            one.data = one.data[:where] + bytes([POISON]) + one.data[where + 1 :]
        case "output":
            request.outputs.append(draw(st.sampled_from(["", "out", "out 9", *NAMES])))
        case "cancel":
            request.cancelled = True


@st.composite
def batches(draw: st.DrawFn) -> tuple[Manifest, list[Request]]:
    manifest = draw(valid_manifests())
    batch = draw(st.lists(good_requests(manifest), min_size=1, max_size=5))
    for request in batch:
        for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
            _spoil(draw, request)
    return manifest, batch


@given(batches())
def test_each_request_gets_its_own_answer_or_the_reason(
    driver: Driver, case: tuple[Manifest, list[Request]]
) -> None:
    manifest, batch = case
    told = driver.ask("requests", *parts(manifest, batch))
    known = {spec.name for spec in manifest.outputs}
    ran = 0
    for request, got in zip(batch, told["answers"], strict=True):
        if request.cancelled:
            assert got["code"] == _CANCELLED
        elif wrong := faults(manifest, request):
            assert not got["ok"], f"accepted, with {wrong} at fault"
            assert got["code"] == _INVALID
            assert any(f"'{name}'" in got["message"] for name in wrong), got["message"]
        elif short := bytes_that_never_came(request):
            assert not got["ok"]
            assert any(f"'{name}'" in got["message"] for name in short), got["message"]
        elif poisoned(manifest, request):
            assert not got["ok"]
            assert got["message"] == "fuzzed: poisoned"
        else:
            ran += rows(manifest, request)
            if strange := [name for name in request.outputs if name not in known]:
                assert not got["ok"]
                assert any(f"'{name}'" in got["message"] for name in strange), got["message"]
            else:
                assert got.get("outputs") == answer(manifest, request), got
    assert sum(told["runs"]) == ran
    if manifest.wire == "rows":
        alone = max((one.shape[0] for r in batch for one in r.inputs if one.shape), default=0)
        assert all(run <= max(manifest.batching.max, alone) for run in told["runs"])


@given(st.data())
def test_good_requests_share_runs(driver: Driver, data: st.DataObject) -> None:
    """Equal in all but their rows: as few runs as the row limit allows, first come first joined."""
    manifest = data.draw(valid_manifests().filter(lambda m: m.wire == "rows" and m.symbol("b").min == 0))
    pattern = data.draw(good_requests(manifest))
    batch = []
    for count in data.draw(st.lists(st.integers(0, manifest.batching.max), min_size=1, max_size=6)):
        inputs = []
        for one, spec in ((one, s) for one in pattern.inputs for s in manifest.inputs if s.name == one.name):
            shape = [count if dim == "b" else size for dim, size in zip(spec.shape, one.shape, strict=True)]
            length = math.prod(shape) * ITEM_BYTES[one.datatype]
            inputs.append(
                Input(one.name, one.datatype, shape, bytes((count + i) % 200 for i in range(length)))
            )
        batch.append(Request(inputs, pattern.outputs))
    told = driver.ask("requests", *parts(manifest, batch))
    assert [got.get("outputs") for got in told["answers"]] == [answer(manifest, r) for r in batch]
    runs: list[int] = []
    for request in batch:
        count = rows(manifest, request)
        free = [i for i, run in enumerate(runs) if run + count <= manifest.batching.max]
        if free:
            runs[free[0]] += count
        else:
            runs.append(count)
    assert told["runs"] == runs
