"""Case 19: the writer is killed at many points; the repository holds the old version or the new one, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from killed_writer import package_until
from packages import cpp_package
from rest_server import RestServer, tensor
from tritonclient.grpc.model_config_pb2 import ModelConfig

from aoti_pack.compiler.verify import check_files
from aoti_pack.manifest import Manifest

pytestmark = pytest.mark.server

MODELS = ("arith", "select")
POINTS = 24


def what_is_there(model: Path) -> str:
    """The name of the package that the folder holds, after a look at every byte of it."""
    manifest = Manifest.load(model / "1")
    check_files(model / "1", manifest)
    config = text_format.Parse((model / "config.pbtxt").read_text(encoding="utf-8"), ModelConfig())
    assert [entry.name for entry in config.input] == [spec.name for spec in manifest.inputs]
    (warmup,) = config.model_warmup
    for entry in warmup.inputs.values():
        assert (model / "warmup" / entry.input_data_file).stat().st_size > 0
    assert {entry.name for entry in model.iterdir()} == {"1", "warmup", "config.pbtxt"}
    return manifest.name


def answers(rest: RestServer, name: str, model: str) -> None:
    """The server loads what is there, and it is `model` by its answer."""
    loaded = rest.load(name)
    assert loaded.status == 200, loaded.error
    if model == "arith":
        given = [tensor("x", "FP32", [1, 16], [0.0] * 16), tensor("y", "FP32", [1, 16], [1.0] * 16)]
        assert rest.infer(name, given).output("total")["data"] == [16.0]
    else:
        given = [
            tensor("values", "INT32", [1, 8], list(range(8))),
            tensor("mask", "BOOL", [1, 8], [True] * 4 + [False] * 4),
        ]
        assert rest.infer(name, given).output("chosen")["data"] == [0, 3, 6, 9, -4, -5, -6, -7]


def test_the_old_or_the_new_never_half(rest: RestServer) -> None:
    name, repo = "case19", rest.repo
    packages = {model: cpp_package(model) for model in MODELS}
    package_until(packages["arith"], repo, name, kill_at=None)
    events, killed = package_until(packages["select"], repo, name, kill_at=None)
    assert not killed
    assert what_is_there(repo / name) == "select"
    outcomes = {"old": 0, "new": 0, "finished": 0}
    # Every stage of the work: evenly over its events, and each of the last ones, where the exchange is.
    points = sorted(
        {1 + index * events // POINTS for index in range(POINTS)} | set(range(events - 8, events))
    )
    for kill_at in points:
        old = what_is_there(repo / name)
        new = "arith" if old == "select" else "select"
        _, killed = package_until(packages[new], repo, name, kill_at)
        found = what_is_there(repo / name)
        assert found in ((old, new) if killed else (new,)), kill_at
        outcomes["finished" if not killed else "new" if found == new else "old"] += 1
        assert not any(entry.name.startswith(f".{name}") for entry in repo.iterdir())
        answers(rest, name, found)
    assert outcomes["old"] >= POINTS // 3, outcomes
    # What the killed ones left beside the repository is cleared by the next writer.
    package_until(packages["arith"], repo, name, kill_at=None)
    assert what_is_there(repo / name) == "arith"
    assert [entry.name for entry in repo.parent.iterdir() if entry.name.startswith(f".{name}")] == []
    answers(rest, name, "arith")
