"""Case 15: every dtype, no axes, no rows, odd addresses, left-out inputs; and what only looks like them, refused."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
import torch
from rest_server import RestServer, answered, manifest_of, raw, raw_of, recipe_of

from aoti_pack.manifest import Manifest
from aoti_pack.recipe import leaves

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def loaded(rest: RestServer) -> RestServer:
    for model in ("dtypes", "half", "contract", "arith"):
        rest.write(model, f"case15_{model}")
        assert rest.load(f"case15_{model}").status == 200
    return rest


def request_of(manifest: Manifest, inputs: Any, *, without: tuple[str, ...] = ()) -> list[Any]:
    found = dict(leaves(inputs))
    made = []
    for spec in manifest.inputs:
        if spec.name not in without:
            made.append(raw_of(spec.name, found[spec.name], None if spec.shape else [1]))
    return made


def wanted(model: str, inputs: Any) -> list[torch.Tensor]:
    return list(recipe_of(model).build()(**inputs))


@pytest.mark.parametrize("rows", [1, 3, 16, 0])
def test_every_dtype_in_and_out(loaded: RestServer, rows: int) -> None:
    """Integers to the bit; floats as eager rounds them; with no rows an empty answer of the right shape."""
    manifest = manifest_of("dtypes")
    inputs = recipe_of("dtypes").draw(rows, {"r": rows})
    result = loaded.ask("case15_dtypes", *request_of(manifest, inputs))
    dtypes = {spec.dtype for spec in (*manifest.inputs, *manifest.outputs)}
    assert len(dtypes) == 12  # all but bool, which `contract` takes
    for spec, expected in zip(manifest.outputs, wanted("dtypes", inputs), strict=True):
        got = answered(result, spec.name, getattr(torch, spec.dtype))
        assert got.shape == expected.shape, spec.name
        torch.testing.assert_close(got, expected, rtol=1e-12 if spec.name == "total" else 0, atol=0)


def test_what_is_left_out_is_its_default_to_the_bit(loaded: RestServer) -> None:
    manifest, recipe = manifest_of("dtypes"), recipe_of("dtypes")
    inputs: Any = recipe.draw(7, {"r": 2})
    result = loaded.ask("case15_dtypes", *request_of(manifest, inputs, without=tuple(recipe.optional)))
    full = {
        name: torch.full((2, 4), value, dtype=getattr(torch, name))
        for name, value in {"int8": -7, "uint16": 65535}.items()
    }
    full["uint64"] = torch.full((2, 4), -1, dtype=torch.int64).view(torch.uint64)
    for name, expected in full.items():
        assert torch.equal(answered(result, name, expected.dtype), expected), name
    scale = torch.tensor(0.1)  # float32, as the input is
    assert torch.equal(answered(result, "float64", torch.float64), inputs["x"].double() * scale.double())
    assert answered(result, "total", torch.float64).shape == ()


@pytest.mark.parametrize("backend", ["aoti", "python"])
def test_the_twin_fills_what_the_backend_fills(rest: RestServer, backend: str) -> None:
    name = f"case15_filled_{backend}"
    rest.write("contract", name, backend=backend)
    loaded = rest.load(name)
    assert loaded.status == 200, loaded.error
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    result = rest.ask(name, raw_of("x", x))
    assert answered(result, "mixed", torch.int64).flatten().tolist() == [((1 << 62) + 1) ^ 3] * 2
    expected = torch.cat([torch.full((2, 2), 2.0**62), x], 1)  # x * 3 is lost beside 2^62 in float32
    assert torch.equal(answered(result, "out", torch.float32), expected)


def test_bfloat16_in_and_out(loaded: RestServer) -> None:
    x = torch.tensor([[1.0, -2.5, 3e38, 1e-30]], dtype=torch.bfloat16)
    got = answered(loaded.ask("case15_half", raw_of("x", x)), "out", torch.bfloat16)
    assert torch.equal(got, x + x)


def test_inputs_at_odd_addresses(loaded: RestServer) -> None:
    """A binary body behind a JSON header of odd length: int64 and float32 lie at odd addresses."""
    x, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([10])
    parts = {"x": ("FP32", [1, 2], x), "bias": ("INT64", [1, 1], bias)}
    data = {
        name: value.reshape(-1).view(torch.uint8).numpy().tobytes() for name, (_, _, value) in parts.items()
    }
    described = [
        {
            "name": name,
            "datatype": datatype,
            "shape": shape,
            "parameters": {"binary_data_size": len(data[name])},
        }
        for name, (datatype, shape, _) in parts.items()
    ]
    header = json.dumps({"inputs": described})
    header += " " * (1 - len(header) % 2)
    request = urllib.request.Request(
        f"http://{loaded.server.http_url}/v2/models/case15_contract/infer",
        data=header.encode() + b"".join(data.values()),
        headers={"Inference-Header-Content-Length": str(len(header))},
    )
    with urllib.request.urlopen(request) as answer:
        outputs = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
    assert outputs == {"out": [13.0, 16.0, 1.0, 2.0], "mixed": [9]}


def test_no_rows_sent_with_bytes(loaded: RestServer) -> None:
    others = request_of(manifest_of("dtypes"), recipe_of("dtypes").draw(1, {"r": 0}), without=("x",))
    assert "x" in loaded.refusal("case15_dtypes", raw("x", "FP32", [0, 4], bytes(16)), *others)
    y = raw("y", "FP32", [0, 16], bytes(64))
    loaded.refusal("case15_arith", raw("x", "FP32", [0, 16], bytes(64)), y)


def test_more_elements_than_an_address_counts(loaded: RestServer) -> None:
    others = request_of(manifest_of("dtypes"), recipe_of("dtypes").draw(1, {"r": 1}), without=("x",))
    assert "x" in loaded.refusal("case15_dtypes", raw("x", "FP32", [1 << 62, 4], b""), *others)


def test_a_required_input_is_missed_while_an_optional_one_is_there(loaded: RestServer) -> None:
    told = loaded.refusal(
        "case15_contract",
        raw_of("mask", torch.ones(1, 2, dtype=torch.bool)),
        raw_of("bias", torch.tensor([[1]])),
    )
    assert told.endswith("case15_contract: input 'x' is missing, expected FP32 [b, n]")


def test_an_optional_input_that_is_there_must_fit(loaded: RestServer) -> None:
    told = loaded.refusal(
        "case15_contract", raw_of("x", torch.ones(1, 2)), raw_of("mask", torch.ones(1, 3, dtype=torch.bool))
    )
    assert (
        "input 'mask' expected shape [b, n], got [1, 3]: dimension 1 (n) is 3, but input 'x' has n = 2"
        in told
    )
