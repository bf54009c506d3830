"""`aoti-pack config`: the configuration that `package` writes, explained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import json_format, text_format
from hypothesis import given
from hypothesis import strategies as st
from manifests import manifest
from packages import cpp_package
from tritonclient.grpc.model_config_pb2 import ModelConfig

from aoti_pack.cli import main
from aoti_pack.manifest import Batching, TensorSpec
from aoti_pack.repository.config import Serving, config_text, model_config
from aoti_pack.repository.explain import explain
from aoti_pack.repository.pbtxt import Enum, render


def run(*argv: str) -> str:
    done = CliRunner().invoke(main, list(argv))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("model", ["contract", "dtypes"])
@pytest.mark.parametrize("options", [(), ("--instances", "3", "--threads", "2", "--max-batch-size", "0")])
def test_it_is_what_package_writes(tmp_path: Path, model: str, options: tuple[str, ...]) -> None:
    folder = str(cpp_package(model))
    run("package", folder, "--repo", str(tmp_path / "repo"), *options)
    written = (tmp_path / "repo" / model / "config.pbtxt").read_text(encoding="utf-8")
    printed = run("config", folder, *options)
    assert [line for line in printed.splitlines() if not line.startswith("# ")] == [
        line for line in written.splitlines() if not line.startswith("# ")
    ]
    parsed = text_format.Parse(printed, ModelConfig())
    assert (
        json_format.ParseDict(json.loads(run("config", folder, "--json", *options)), ModelConfig()) == parsed
    )


def explained(found, serving: Serving | None = None, backend: str = "aoti") -> list[str]:
    serving = serving or Serving()
    config = model_config(found, serving, name="model", backend=backend)
    text = config_text(config, explain(found, serving, backend=backend, name="model"))
    assert text_format.Parse(text, ModelConfig()) == json_format.ParseDict(config, ModelConfig())
    return text.splitlines()


def above(lines: list[str], start: str) -> str:
    (index,) = [number for number, line in enumerate(lines) if line.startswith(start)]
    comment = []
    while index > 0 and lines[index - 1].startswith("# "):
        index -= 1
        comment.insert(0, lines[index])
    return " ".join(comment)


def test_each_field_has_its_reason() -> None:
    inputs = (
        TensorSpec("x", "float32", "FP32", ("b", "n")),
        TensorSpec("w", "int64", "INT64", ("b",), default=7),
    )
    lines = explained(manifest(inputs=inputs), Serving(2, 4, 500, 3))
    assert "not to see each other, up to 8 of 'b'; --max-batch-size asks for 4" in above(
        lines, "max_batch_size: 4"
    )
    x = above(lines, 'input { name: "x"')
    assert "scale = 2" in x
    assert "x: float32 [b, n], b is 1 to 8, n is 1 to 4. The server counts the axis b by itself." in x
    w = above(lines, 'input { name: "w"')
    assert "It goes as [b, 1]" in w
    assert "A request may leave it out: it is 7 everywhere then." in w
    assert "n is 1 to 4" in above(lines, 'output { name: "y"')
    assert "(--max-queue-delay-us): 500." in above(lines, "dynamic_batching")
    assert "(--instances): 2." in above(lines, "instance_group")
    assert "(--threads): 3;" in above(lines, "parameters")


def test_why_it_is_not_batched() -> None:
    found = manifest(wire="single", batching=Batching(False, "b", 0, "rows see each other"))
    assert (
        above(explained(found), "max_batch_size: 0")
        == "# Not batched, one request a run: rows see each other"
    )
    asked = explained(manifest(), Serving(max_batch_size=0))
    assert "as --max-batch-size 0 asks" in above(asked, "max_batch_size: 0")


def test_an_optional_input_is_written_as_one() -> None:
    inputs = (manifest().inputs[0], dataclasses.replace(manifest().inputs[1], default=0))
    config = json_format.ParseDict(
        model_config(manifest(inputs=inputs), Serving(), name="m", backend="aoti"), ModelConfig()
    )
    assert [entry.optional for entry in config.input] == [False, True]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(TEXT, st.lists(st.integers(-1, 2**62)), st.booleans(), st.dictionaries(TEXT, TEXT, max_size=4))
def test_text_and_json_say_the_same(
    name: str, dims: list[int], optional: bool, parameters: dict[str, str]
) -> None:
    config = {
        "name": name,
        "input": [{"name": name, "data_type": Enum("TYPE_BF16"), "dims": dims, "optional": optional}] * 2,
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "dynamic_batching": {},
    }
    comments = {("input", 1): ["a comment", name]}
    assert text_format.Parse(render(config, comments), ModelConfig()) == json_format.ParseDict(
        config, ModelConfig()
    )
