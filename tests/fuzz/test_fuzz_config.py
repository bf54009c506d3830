"""config.pbtxt as the server hands it over: accepted where it says what the manifest says, or narrows it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from driver import Driver
from hypothesis import given
from hypothesis import strategies as st
from manifest_strategies import NUMBERS, at, places, valid_manifests
from manifests import manifest

from aoti_pack.manifest import Batching, Manifest, TensorSpec
from aoti_pack.repository.config import config_type, wire_dims

pytestmark = pytest.mark.fuzz


def generated(manifest: Manifest) -> dict[str, Any]:
    """The configuration that goes with `manifest`, as protobuf's JSON writes it: 64-bit numbers are strings."""

    def tensor(spec: TensorSpec) -> dict[str, Any]:
        dims, scalar = wire_dims(spec, manifest.wire)
        told: dict[str, Any] = {"name": spec.name, "data_type": config_type(spec.datatype)}
        told["dims"] = [str(dim) for dim in dims]
        return told | ({"reshape": {"shape": []}} if scalar and manifest.wire == "rows" else {})

    return {
        "name": "model",
        "backend": "aoti",
        "max_batch_size": manifest.batching.max if manifest.wire == "rows" else 0,
        "input": [tensor(spec) for spec in manifest.inputs],
        "output": [tensor(spec) for spec in manifest.outputs],
        "instance_group": [{"name": "model_0", "kind": "KIND_CPU", "count": 2}],
        "parameters": {"threads": {"string_value": "3"}},
    }


def _whole(value: Any) -> int | None:
    """The number that a field holds, as a number or as its text."""
    if (
        isinstance(value, str)
        and value.lstrip("-").isdigit()
        and value.isascii()
        and not value.startswith("--")
    ):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None


def _wholes(value: Any) -> list[int] | None:
    numbers = [_whole(item) for item in value] if isinstance(value, list) else [None]
    return None if None in numbers else [n for n in numbers if n is not None]


def _tensor_fits(told: Any, spec: TensorSpec, manifest: Manifest) -> bool:
    dims = _wholes(told.get("dims", []))
    wanted, scalar = wire_dims(spec, manifest.wire)
    if dims is None or told.get("data_type") != config_type(spec.datatype) or len(dims) != len(wanted):
        return False
    sizes = spec.shape[1:] if manifest.wire == "rows" else spec.shape
    for dim, size in zip(dims, sizes or (1,), strict=True):
        if isinstance(size, int):
            if dim != size:
                return False
        elif (
            size in {symbol.name for symbol in manifest.symbols}
            and dim != -1
            and not manifest.symbol(size).min <= dim <= manifest.symbol(size).max
        ):
            return False
    reshape = told.get("reshape")
    if reshape is None:
        return not (scalar and manifest.wire == "rows")
    shape = _wholes(reshape.get("shape", [])) if isinstance(reshape, dict) else None
    return shape == ([] if scalar and manifest.wire == "rows" else dims)


def fits(manifest: Manifest, config: Any) -> bool:  # noqa: PLR0911  a way out for each fault
    """Whether the backend must take `config`: written apart from its own check."""
    if not isinstance(config, dict):
        return False
    most = _whole(config.get("max_batch_size", 0))
    if most is None or not (1 <= most <= manifest.batching.max if manifest.wire == "rows" else most == 0):
        return False
    for kind, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        told = config.get(kind, [])
        if not isinstance(told, list) or not all(isinstance(item, dict) for item in told):
            return False
        if any(not isinstance(item.get("name"), str) for item in told):
            return False
        if sorted(item["name"] for item in told) != sorted(spec.name for spec in specs):
            return False
        by_name = {spec.name: spec for spec in specs}
        if not all(_tensor_fits(item, by_name[item["name"]], manifest) for item in told):
            return False
    groups = config.get("instance_group", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return False
    counts = [_whole(group.get("count", 1)) for group in groups]
    if any(count is None or count >= 2**31 for count in counts):
        return False
    parameters = config.get("parameters", {})
    threads = parameters.get("threads", {"string_value": "1"}) if isinstance(parameters, dict) else None
    text = threads.get("string_value") if isinstance(threads, dict) else None
    return isinstance(text, str) and text != ""


_VALUES: list[Any] = [
    *NUMBERS,
    *(
        "",
        "b",
        "-1",
        "0",
        "1",
        "01",
        "+1",
        " 1",
        "1 ",
        "0x1",
        str(2**63),
        str(-(2**63)),
        "TYPE_FP32",
        "TYPE_INVALID",
    ),
    *(
        "TYPE_STRING",
        True,
        1.5,
        [],
        {},
        [[]],
        ["-1"],
        ["1"],
        [-1, -1],
        [1, 2, 3],
        {"shape": [1]},
        {"shape": "1"},
    ),
]


def _same_verdict(driver: Driver, against: Manifest, config: Any) -> None:
    told = driver.ask("config", against.to_json(), json.dumps(config))
    assert told["ok"] == fits(against, config), f"{config}: {told.get('message', 'accepted')}"
    if not told["ok"]:
        assert told["message"].startswith("config")


def _read_places(config: dict[str, Any]) -> list[tuple[str | int, ...]]:
    """All but what the server reads for itself."""
    return [p for p in places(config) if p[0] not in ("name", "backend") and p[-1] != "kind"]


@given(valid_manifests())
def test_the_generated_configuration_fits(driver: Driver, manifest: Manifest) -> None:
    config = generated(manifest)
    assert fits(manifest, config)
    told = driver.ask("config", manifest.to_json(), json.dumps(config))
    assert told == {"ok": True, "instances": 2, "threads": "3"}


@given(st.data())
def test_a_changed_configuration(driver: Driver, data: st.DataObject) -> None:
    manifest = data.draw(valid_manifests())
    config = generated(manifest)
    for _ in range(data.draw(st.sampled_from([1, 1, 2, 3]))):
        path = data.draw(st.sampled_from(_read_places(config)))
        parent, step = at(config, path[:-1]), path[-1]
        match data.draw(st.sampled_from(["value", "value", "delete", "copy", "twice"])):
            case "value":
                parent[step] = data.draw(st.sampled_from(_VALUES))
            case "delete":
                del parent[step]
            case "copy":
                parent[step] = copy.deepcopy(at(config, data.draw(st.sampled_from(_read_places(config)))))
            case "twice" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[step]))
            case "twice":
                parent[step] = [parent[step]]
    _same_verdict(driver, manifest, config)


SINGLE = manifest(
    wire="single",
    batching=Batching(False, None, 0, "rows see each other"),
    inputs=(TensorSpec("x", "float32", "FP32", ("n", 3)), TensorSpec("factor", "float64", "FP64", ())),
    outputs=(TensorSpec("y", "bfloat16", "BF16", ("2*n",)),),
)


@pytest.mark.parametrize("against", [manifest(), SINGLE], ids=["rows", "single"])
def test_each_place_with_each_value(driver: Driver, against: Manifest) -> None:
    for path in _read_places(generated(against)):
        for value in _VALUES:
            config = generated(against)
            at(config, path[:-1])[path[-1]] = value
            _same_verdict(driver, against, config)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "{", "[" * 100_000, '{"input":' * 100_000])
def test_what_is_no_configuration(driver: Driver, text: str) -> None:
    told = driver.ask("config", manifest().to_json(), text)
    assert not told["ok"]
    assert told["message"].startswith("config")
