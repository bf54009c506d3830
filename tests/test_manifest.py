import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import manifest

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, ManifestError, size_names

RAW = json.loads(manifest().to_json())


def places(value, path=()):
    """Every place in the document: (path, value)."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


PLACES = [path for path, _ in places(RAW) if path[:2] != ("recipe", "settings")]


def at(value, path):
    for step in path:
        value = value[step]
    return value


def put(path, new):
    raw = copy.deepcopy(RAW)
    at(raw, path[:-1])[path[-1]] = new
    return json.dumps(raw)


def names_field(message: str, path) -> bool:
    """The nearest named field above the place stands in the message."""
    named = [step for step in path if isinstance(step, str)]
    return named[-1] in message or (len(named) > 1 and named[-2] in message)


def test_round_trip_on_disk(tmp_path: Path) -> None:
    path = manifest().save(tmp_path)
    assert Manifest.load(tmp_path) == Manifest.load(path) == manifest()
    assert path.read_text() == manifest().to_json()


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_a_value_of_another_type_is_refused_by_its_field(path) -> None:
    of_sizes = path[-1] == "sizes"
    for wrong in (
        {"b": "two"} if of_sizes else {"no": "such"},
        [[]],
        True if not isinstance(at(RAW, path), bool) else 1,
    ):
        if path[0] == "baked" and path[-1] == "value" and wrong is True:
            continue
        if path[0] == "options":
            wrong = wrong if path == ("options",) and not isinstance(wrong, dict) else [[]]
        with pytest.raises(ManifestError) as caught:
            Manifest.from_json(put(path, wrong))
        assert names_field(str(caught.value), path), str(caught.value)


@pytest.mark.parametrize(
    "path", [p for p in PLACES if isinstance(p[-1], str)], ids=lambda p: ".".join(map(str, p))
)
def test_a_missing_field_is_named(path) -> None:
    raw = copy.deepcopy(RAW)
    del at(raw, path[:-1])[path[-1]]
    optional = ("settings", "dim_order", "mutated", "default", "updatable", "aliases", "unread", "model_name")
    optional += ("reason", "skipped")
    if path[-1] in optional or path[-2:-1] in (("sizes",), ("options",)):
        assert isinstance(Manifest.from_json(json.dumps(raw)), Manifest)
        return
    with pytest.raises(ManifestError, match=path[-1]):
        Manifest.from_json(json.dumps(raw))


@pytest.mark.parametrize(
    ("path", "wrong", "field"),
    [
        (("schema",), "3.0", "schema.*3.0"),
        (("schema",), "1", "schema"),
        (("name",), "", "name"),
        (("executor",), "magic", "executor"),
        (("wire",), "cols", "wire"),
        (("package", "path"), "../evil", "package.path"),
        (("package", "path"), "/etc", "package.path"),
        (("package", "path"), "", "package.path"),
        (("package", "sha256"), "A" * 64, "package.sha256"),
        (("files", 0, "path"), "a/../../b", r"files\[0\].path"),
        (("files", 0, "sha256"), "00", r"files\[0\].sha256"),
        (("files", 0, "bytes"), -1, r"files\[0\].bytes"),
        (("dtype",), "float31", "dtype"),
        (("symbols", 0, "max"), 0, "symbols.*'b'"),
        (("symbols", 0, "name"), "2b", "symbols.*'2b'"),
        (("symbols", 1, "name"), "b", "symbols.*'b'"),
        (("inputs", 0, "datatype"), "FP16", "inputs.x"),
        (("inputs", 0, "shape", 1), -16, "inputs.x"),
        (("inputs", 0, "shape", 1), "2*n", "inputs.x"),
        (("inputs", 1, "name"), "x", "inputs.*'x'"),
        (("outputs", 0, "shape", 1), "2*z", "outputs.y"),
        (("outputs", 0, "shape", 1), "", "outputs.y"),
        (("constants", 0, "shape", 0), -3, "constants.layer.weight"),
        (("batching", "symbol"), "z", "batching.symbol"),
        (("batching", "max"), 9, "batching.max"),
        (("batching", "max"), -1, "batching.max"),
        (("batching", "proved"), False, "wire"),
        (("proof", "rtol"), -1.0, "proof.rtol"),
        (("inputs",), {}, "inputs"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(path, wrong, field) -> None:
    with pytest.raises(ManifestError, match=field):
        Manifest.from_json(put(path, wrong))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", "[" * 100_000, '{"schema": "2.0"}', "1" * 5000, "\ud800", '{"schema": NaN}'],
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    text = manifest().to_json().replace('"rtol": 0.0001', f'"rtol": {number}')
    assert number in text
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


@given(st.sampled_from(PLACES), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_any_change_is_read_as_it_stands_or_refused_by_name(path, new) -> None:
    try:
        found = Manifest.from_json(put(path, new))
    except ManifestError as error:
        assert str(error)
    else:
        # What was accepted survives the way to text and back.
        assert Manifest.from_json(found.to_json()) == found


@given(st.text(alphabet='{}[]",:0123456789.-+eEtruefalsn \\u', max_size=60))
def test_no_text_gives_another_exception(text: str) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


def test_load_tells_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"manifest\.json does not exist"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match="cannot be read"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.json").write_text(put(("dtype",), "float31"))
    with pytest.raises(UserError, match=r"manifest\.json: dtype: .*float31.*compile the package again"):
        Manifest.load(tmp_path)


def test_a_value_that_json_cannot_hold_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        manifest(recipe=manifest().recipe.__class__("f.py", {"x": float("inf")})).to_json()


@pytest.mark.parametrize(
    ("dim", "names"),
    [
        (3, set()),
        ("b", {"b"}),
        ("2*n", {"n"}),
        ("emb + b", {"emb", "b"}),
        ("floor(n/2)", {"n"}),
        ("Max(1, b)", {"b"}),
    ],
)
def test_size_names(dim, names) -> None:
    assert size_names(dim) == names
