"""Optional inputs: what a recipe and a manifest may say of them."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from manifests import manifest
from torch.export import Dim

from aoti_pack.errors import UserError
from aoti_pack.fill_value import fill_fault, filled
from aoti_pack.manifest import WIRE_DATATYPES, Manifest, ManifestError
from aoti_pack.recipe import Recipe
from aoti_pack.recipe_check import check_recipe

B, N = Dim("b", min=1, max=8), Dim("n", min=1, max=8)


def recipe(**changes) -> Recipe:
    fields = {
        "name": "r",
        "model": torch.nn.Identity,
        "inputs": {"x": torch.randn(2, 3), "ids": torch.arange(4).reshape(2, 2), "k": 3},
        "outputs": ["y"],
        "dynamic": {"x": {0: B}, "ids": {0: B}},
        "optional": {"ids": 5},
    }
    return Recipe(**(fields | changes))


def test_a_right_one_passes() -> None:
    check_recipe(recipe())
    check_recipe(recipe(optional={"x": 0.5}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"optional": {"z": 1}}, "optional names 'z', which is not a tensor input; there are x, ids, k"),
        ({"optional": {"k": 1}}, "optional names 'k', which is not a tensor input"),
        (
            {"optional": {"ids": 0.5}},
            "optional['ids'] is 0.5, expected a whole number from -9223372036854775808",
        ),
        ({"optional": {"ids": True}}, "optional['ids'] is True, expected a whole number"),
        (
            {"optional": {"x": float("nan")}},
            "optional['x'] is nan, expected a finite number that float32 holds",
        ),
        (
            {"dynamic": {"x": {0: B}, "ids": {0: B, 1: N}}},
            "optional['ids']: axis 1 has the size 'n', which no required input has",
        ),
        ({"optional": {"x": 1.0, "ids": 1}, "dynamic": {}}, "every tensor input is optional"),
    ],
)
def test_a_wrong_one_is_named(changes, told) -> None:
    with pytest.raises(UserError) as caught:
        check_recipe(recipe(**changes))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "fits", "misfits"),
    [
        ("bool", [True, False], [0, 1.0]),
        ("uint8", [0, 255], [-1, 256, 1.0, True]),
        ("uint64", [2**64 - 1], [2**64, -1]),
        ("int64", [-(2**63), 2**63 - 1], [2**63]),
        ("float16", [65504, -0.1, 3], [65505, float("inf"), True]),
        ("bfloat16", [3.3e38], [3.4e38]),
        ("float32", [3.4e38], [3.5e38, 10**400]),
        ("float64", [1e308, 0], [10**400, float("nan"), "1"]),
    ],
)
def test_what_a_dtype_holds(dtype, fits, misfits) -> None:
    assert [value for value in fits if fill_fault(dtype, value)] == []
    assert [value for value in misfits if not fill_fault(dtype, value)] == []


@given(st.sampled_from(sorted(WIRE_DATATYPES)), st.integers() | st.floats() | st.booleans())
def test_what_is_said_to_fit_fills_a_tensor_exactly(dtype: str, value: float) -> None:
    if fill_fault(dtype, value):
        return
    made = filled([2, 3], value, getattr(torch, dtype))
    assert made.shape == (2, 3)
    assert made.is_contiguous()
    got = made.tolist()[1][2]
    if "float" not in dtype:
        assert got == value
    else:
        assert torch.isfinite(made.double()).all()
        assert got == torch.tensor(float(value), dtype=torch.float64).to(made.dtype).item()


def with_default(index: int, value: object) -> str:
    raw = json.loads(manifest().to_json())
    raw["inputs"][index]["default"] = value
    return json.dumps(raw)


def test_a_manifest_carries_it() -> None:
    given_default = dataclasses.replace(manifest().inputs[0], default=0.25)
    found = manifest(inputs=(given_default, manifest().inputs[1]))
    assert Manifest.from_json(found.to_json()).inputs[0].default == 0.25


@pytest.mark.parametrize(
    ("index", "value", "told"),
    [
        (1, 1.5, "inputs.t.default: expected a whole number from"),
        (1, 2**63, "inputs.t.default: expected a whole number from"),
        (1, 7, "inputs.t: no input without a default has the symbol 'n' of its shape ['b', 'n']"),
    ],
)
def test_a_manifest_with_a_wrong_one_is_refused(index, value, told) -> None:
    with pytest.raises(ManifestError) as caught:
        Manifest.from_json(with_default(index, value))
    assert told in str(caught.value)
