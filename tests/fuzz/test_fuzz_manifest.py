"""`manifest.json` as Python and C++ read it: both take it for the same, or both refuse it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driver import Driver
from hypothesis import assume, example, given
from hypothesis import strategies as st
from manifest_strategies import (
    NUMBERS,
    OTHERS,
    TEXTS,
    at,
    document,
    places,
    spoiled_documents,
    valid_manifests,
)
from manifests import manifest

from aoti_pack.manifest import Manifest, ManifestError, TensorSpec

pytestmark = pytest.mark.fuzz

# Refusals of the Python side that are about what it alone reads, or about fields that nobody knows: a reader
# that serves must take files of later minor versions, the one that writes need not.
_PYTHON_ALONE = (
    "unknown field",
    *(
        "recipe",
        "options",
        "dtype: expected one of",
        "manifest.dtype",
        "'dtype' is missing",
        "baked",
        "proof",
    ),
    *("dim_order", "default", "simd", "reason", "tuning"),
    # C++ takes null for a field that is left out, and reads no number of a field that it does not know.
    *("aliases: expected a list, got None", "unread: expected a list, got None", "more than 64 bits"),
)


def told(tensors: tuple[TensorSpec, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "dtype": t.dtype,
            "shape": f"[{', '.join(map(str, t.shape))}]",
            "mutated": t.mutated,
        }
        for t in tensors
    ]


def agree(driver: Driver, text: bytes) -> None:
    """The same verdict on both sides, and the same reading."""
    native = driver.ask("manifest", text)
    try:
        parsed = Manifest.from_json(text.decode("utf-8-sig"))
    except (ManifestError, UnicodeDecodeError) as error:
        refusal = str(error)
        # A dtype is read on both sides where it is a tensor's.
        alone = any(field in refusal for field in _PYTHON_ALONE)
        assert not native["ok"] or alone, f"C++ takes what Python refuses: {refusal}"
        if not native["ok"]:
            assert native["message"].startswith("manifest")
        return
    if parsed.wire == "ragged":
        assert "ragged" in native["message"]
        return
    assert native["ok"], f"Python takes what C++ refuses: {native['message']}"
    assert native["name"] == parsed.name
    assert native["wire"] == parsed.wire
    assert native["symbols"] == {s.name: [s.min, s.max] for s in parsed.symbols}
    assert native["inputs"] == told(parsed.inputs)
    assert native["outputs"] == told(parsed.outputs)
    assert native["row_limit"] == (parsed.batching.max if parsed.wire == "rows" else 0)


@given(valid_manifests())
def test_a_valid_manifest_is_read_the_same(driver: Driver, valid: Manifest) -> None:
    assert Manifest.from_json(valid.to_json()) == valid
    agree(driver, valid.to_json().encode())


@pytest.mark.parametrize("start", places(document(manifest())), ids=lambda path: ".".join(map(str, path)))
def test_each_place_with_each_value(driver: Driver, start: tuple[str | int, ...]) -> None:
    for value in (*NUMBERS, *TEXTS, *OTHERS):
        raw = document(manifest())
        at(raw, start[:-1])[start[-1]] = value
        agree(driver, json.dumps(raw).encode())
    raw = document(manifest())
    del at(raw, start[:-1])[start[-1]]
    agree(driver, json.dumps(raw).encode())


@given(spoiled_documents())
@example(document(manifest()) | {"schema": [[[]]]})
def test_a_changed_document(driver: Driver, raw: dict[str, Any]) -> None:
    agree(driver, json.dumps(raw).encode())


@given(st.data())
def test_changed_text(driver: Driver, data: st.DataObject) -> None:
    text = bytearray(json.dumps(document(manifest())).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 4)))
        piece = st.binary(max_size=3) | st.sampled_from(
            [b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"NaN", b"1e999", b"-0", b"00", b"//", b'"', b",", b"}"]
        )
        text[start:end] = data.draw(piece)
    if data.draw(st.booleans()):
        del text[data.draw(st.integers(0, len(text))) :]
    agree(driver, bytes(text))


@pytest.mark.parametrize("opening", ["[", '{"schema":', '{"a":[{"b":'])
@pytest.mark.parametrize("closed", [True, False])
def test_nesting_that_a_recursion_would_not_survive(driver: Driver, opening: str, closed: bool) -> None:
    depth = 100_000
    closing = opening[::-1].translate(str.maketrans("[{", "]}")) if closed else ""
    closing = "".join(letter for letter in closing if letter in "]}")
    text = opening * depth + "1" + closing * depth
    answer = driver.ask("manifest", text)
    assert not answer["ok"]
    assert "deep" in answer["message"]
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


def test_the_fuzzed_documents_are_often_still_valid(driver: Driver) -> None:
    """What would make the tests above hollow: a start that both sides refuse."""
    assert driver.ask("manifest", json.dumps(document(manifest())))["ok"]
    assert Manifest.from_json(json.dumps(document(manifest()))) == manifest()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_manifest(driver: Driver, text: bytes) -> None:
    answer = driver.ask("manifest", text)
    assume(text)
    assert not answer["ok"]
    assert answer["message"].startswith("manifest")
