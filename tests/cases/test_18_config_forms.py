"""Case 18: config.pbtxt absent, one line, partial, contradicting: completed, completed, completed, refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from packages import CPP_MODELS
from rest_server import RestServer, tensor

from aoti_pack.repository.config import Serving
from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer

pytestmark = pytest.mark.server

ONE_LINE = 'backend: "aoti"\n'
X = 'input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] }\n'


def comparable(config: dict[str, Any]) -> dict[str, Any]:
    """A reported configuration without what the name and the warm-up decide."""
    kept = {
        key: value
        for key, value in config.items()
        if key not in ("name", "default_model_filename", "model_warmup")
    }
    kept["instance_group"] = [group | {"name": ""} for group in config["instance_group"]]
    return kept


@pytest.mark.parametrize("model", CPP_MODELS)
def test_completed_is_what_package_writes(rest: RestServer, model: str) -> None:
    """The wire's dims stand in Python and in C++: the real server reports the same of both, for every model."""
    rest.write(model, f"case18_{model}", serving=Serving())
    rest.write_with(model, f"case18_{model}.aoti", None)
    rest.write_with(model, f"case18_{model}_line", ONE_LINE)
    reported = []
    for name in (f"case18_{model}", f"case18_{model}.aoti", f"case18_{model}_line"):
        answer = rest.load(name)
        assert answer.status == 200, answer.error
        reported.append(comparable(rest.config(name)))
    assert reported[1] == reported[0]
    assert reported[2] == reported[0]
    assert reported[0]["input"] and reported[0]["output"]


def test_a_completed_model_answers(rest: RestServer) -> None:
    rest.write_with("arith", "case18_answers.aoti", None)
    assert rest.load("case18_answers.aoti").status == 200
    ones = [tensor(name, "FP32", [2, 16], [0.0] * 16 + [1.0] * 16) for name in ("x", "y")]
    total = rest.infer("case18_answers.aoti", ones).output("total")
    assert total["shape"] == [2, 1]
    assert total["data"] == pytest.approx([0.0, 16 * (2 * 0.8414709848078965 + 1)], rel=1e-5)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (ONE_LINE + "max_batch_size: 4\n", {"max_batch_size": 4}),
        (ONE_LINE + X, {}),
        (ONE_LINE + 'input { name: "y" }\noutput { name: "total" }\n', {}),
        (ONE_LINE + "instance_group { count: 2 kind: KIND_CPU }\n", {"count": 2}),
        (ONE_LINE + 'parameters { key: "threads" value { string_value: "1" } }\n', {"threads": "1"}),
        (ONE_LINE + "dynamic_batching { max_queue_delay_microseconds: 70 }\n", {"delay": 70}),
    ],
    ids=["max_batch_size", "one input", "names", "instance_group", "threads", "dynamic_batching"],
)
def test_a_partial_one_is_completed(
    rest: RestServer, request: pytest.FixtureRequest, config: str, changes: dict[str, Any]
) -> None:
    name = "case18_" + request.node.callspec.id.replace(" ", "_")
    rest.write_with("arith", name, config)
    answer = rest.load(name)
    assert answer.status == 200, answer.error
    found = rest.config(name)
    assert [entry["name"] for entry in found["input"]] == ["x", "y"]
    assert [(entry["name"], entry["dims"]) for entry in found["output"]] == [("out", [16]), ("total", [1])]
    assert found["max_batch_size"] == changes.get("max_batch_size", 64)
    assert found["instance_group"][0]["count"] == changes.get("count", 1)
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == changes.get("delay", 0)
    threads = {"threads": {"string_value": changes["threads"]}} if "threads" in changes else {}
    assert found["parameters"] == threads


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("max_batch_size: 65\n", "max_batch_size: the manifest expects 1..64, got 65"),
        (X.replace("FP32", "FP64"), "input 'x'.data_type: the manifest expects TYPE_FP32, got TYPE_FP64"),
        (X.replace("16", "-1, 16"), "input 'x'.dims: the manifest expects [16], got [-1, 16]"),
        (X.replace('"x"', '"z"'), "input 'z': the manifest expects no such input"),
        (X.replace("] }", "] optional: true }"), "input 'x'.optional: the manifest expects false"),
        (
            'output { name: "total" data_type: TYPE_FP32 dims: [ 1 ] }\n',
            "output 'total'.reshape: the manifest expects an empty shape, got none",
        ),
        ('parameters { key: "threads" value { string_value: "many" } }\n', 'parameter "threads": expected'),
    ],
    ids=["max_batch_size", "data_type", "dims", "name", "optional", "reshape", "threads"],
)
def test_a_contradicting_one_is_refused_by_field(
    rest: RestServer, request: pytest.FixtureRequest, config: str, told: str
) -> None:
    name = f"case18_wrong_{request.node.callspec.id}"
    rest.write_with("arith", name, ONE_LINE + config)
    answer = rest.load(name)
    assert answer.status == 400
    assert told in answer.error


def test_all_versions_are_completed(rest: RestServer) -> None:
    folder = rest.write_with("arith", "case18_versions", ONE_LINE + "version_policy { all { } }\n")
    shutil.copytree(folder / "1", folder / "2")
    answer = rest.load("case18_versions")
    assert answer.status == 200, answer.error
    one, two = (rest.config(f"case18_versions/versions/{version}") for version in (1, 2))
    assert one == two
    assert one["max_batch_size"] == 64


def test_serve_starts_with_a_folder_that_has_no_config(rest: RestServer, tmp_path: Path) -> None:
    """As `serve` starts it: every model of the repository, none asked for by name."""
    shutil.copytree(rest.write_with("scale", "case18_served.aoti", None), tmp_path / "scale.aoti")
    binary = find_server()
    backends = backends_directory(binary, build_backend())
    with TritonServer(tmp_path, binary=binary, backends=backends) as server:
        served = RestServer(server, tmp_path)
        # The core serves it under the whole name of the folder.
        answer = served.infer(
            "scale.aoti", [tensor("x", "FP32", [2], [1.0, 2.0]), tensor("factor", "FP32", [1], [3.0])]
        )
        assert answer.output("out")["data"] == [3.0, 6.0]
        assert answer.output("total")["data"] == [9.0]
