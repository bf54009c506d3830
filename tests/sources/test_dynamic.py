import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.errors import UserError
from aoti_pack.sources.asked import Asked, split_names, split_settings
from aoti_pack.sources.dynamic import DynamicAxis, batch_symbol, parse_dynamic, to_dims

PATHS = st.from_regex(r"[a-z][a-z0-9_]{0,5}(\.[a-z0-9_]{1,4}){0,2}", fullmatch=True)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)


@given(PATHS, st.integers(0, 9), NAMES, st.none() | st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)))
def test_an_entry_reads_as_it_is_written(path, axis, name, bounds) -> None:
    low, high = sorted(bounds or (0, 0))
    text = f"{path}:{axis}={name}" + (f"[{low}..{high}]" if bounds else "")
    assert parse_dynamic([text]) == (DynamicAxis(path, axis, name, (low, high) if bounds else None),)


@given(st.text(max_size=20))
def test_anything_else_is_refused_by_its_text(text) -> None:
    try:
        (found,) = parse_dynamic([text])
    except UserError as error:
        assert repr(text) in str(error)
    else:
        assert text.startswith(f"{found.path}:") and found.name.isidentifier()


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["x:0"], "'x:0' is not PATH:AXIS=NAME"),
        (["x:-1=b"], "is not PATH:AXIS=NAME"),
        (["x:0=2b"], "is not PATH:AXIS=NAME"),
        (["x:0=b[5..2]"], r"expected LOWEST <= HIGHEST, got 5\.\.2"),
        (["x:0=b[1..]"], "is not PATH:AXIS=NAME"),
        (["x:0=b", "x:0=c"], "names x:0 twice"),
        (["x:0=b[1..2]", "y:0=b[1..3]"], r"gives 'b' the range 1\.\.3 and 1\.\.2"),
    ],
)
def test_a_wrong_entry_is_refused(texts, words) -> None:
    with pytest.raises(UserError, match=words):
        parse_dynamic(texts)


def test_dims_share_one_range_and_the_default_is_1_to_1024() -> None:
    dims = to_dims(parse_dynamic(["x:0=b", "y:0=b[2..9]", "y:1=n"]))
    assert {
        path: {axis: (d.__name__, d.min, d.max) for axis, d in found.items()} for path, found in dims.items()
    } == {
        "x": {0: ("b", 2, 9)},
        "y": {0: ("b", 2, 9), 1: ("n", 1, 1024)},
    }
    assert batch_symbol(dims) == "b"
    assert batch_symbol(to_dims(parse_dynamic(["x:1=n", "y:0=rows"]))) == "rows"
    assert batch_symbol({}) == "b"


def test_what_is_asked_travels_among_the_settings() -> None:
    asked = Asked("x.npz", ("x:0=b",), ("y", "z"))
    settings = {"width": 3} | asked.settings()
    assert split_settings(settings) == (asked, {"width": 3})
    assert split_settings({"width": 3}) == (Asked(), {"width": 3})
    assert split_names("a, b") == ("a", "b") and split_names(None) == ()
    for wrong, words in (
        ({"--input": "x"}, "'--input' is not known"),
        ({"--inputs": 3}, "--inputs is 3"),
        ({"--dynamic": "x:0=b"}, "expected a list of texts"),
    ):
        with pytest.raises(UserError, match=words):
            split_settings(wrong)
    with pytest.raises(UserError, match="holds an empty name"):
        split_names("a,,b")
