"""Case 8: a value that is no tensor is compiled in; a call that says another one is refused."""

import pytest
from structures import assert_equal

from aoti_pack.errors import UserError


@pytest.mark.parametrize(
    ("name", "value", "compiled"),
    [
        ("scale", 5, "2"),
        ("scale", 2.0, "2"),
        ("scale", True, "2"),
        ("rate", 0.25, "0.5"),
        ("mode", "mean", "'sum'"),
        ("loud", False, "True"),
        ("loud", 1, "True"),
        ("nothing", 0, "None"),
    ],
)
def test_another_value_is_refused_by_name(structures, name, value, compiled) -> None:
    inputs = structures.draw(3, b=2, n=2) | {name: value}
    with pytest.raises(UserError, match=f"'{name}' of structure is compiled in as {compiled}, got {value!r}"):
        structures.package(**inputs)


def test_the_same_value_and_none_at_all_are_taken(structures) -> None:
    inputs = structures.draw(3, b=2, n=2)
    wanted = structures.expected(inputs)
    assert_equal(structures.package(**inputs), wanted)
    for name in ("scale", "rate", "mode", "loud", "nothing"):
        del inputs[name]
    assert_equal(structures.package(**inputs), wanted)


def test_the_manifest_names_each(structures) -> None:
    baked = {scalar.name: scalar.value for scalar in structures.package.manifest.baked}
    assert baked == {"scale": 2, "rate": 0.5, "mode": "sum", "loud": True, "nothing": None, "user.note": None}
