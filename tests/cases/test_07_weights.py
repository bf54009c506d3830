"""New weights for a model that a real server serves: all of them or none, and never a mixture."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from packages import CPP_RECIPES, compiled_package, cpp_package
from safetensors.torch import save_file
from tritonclient.grpc import InferenceServerClient

from aoti_pack.bench.client import ModelClient
from aoti_pack.cli import main
from aoti_pack.manifest import Manifest
from aoti_pack.recipe import load_recipe
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer
from aoti_pack.weights.answer import Metrics, read_metrics
from aoti_pack.weights.files import Pointer, ServerStatus

pytestmark = pytest.mark.server

SOURCE = f"{CPP_RECIPES}:tower"
BIG = {"rows": 1 << 20}  # a table of 64 MiB
State = dict[str, torch.Tensor]


def recipe(**settings: int) -> Any:
    return load_recipe(SOURCE, settings)


def state(seed: int, **settings: int) -> State:
    """A whole state_dict of other weights, the tied table under one of its names."""
    generator = torch.Generator().manual_seed(seed)
    made = recipe(**settings).build().state_dict()
    del made["candidates.weight"]
    for name, tensor in made.items():
        if tensor.is_floating_point():
            made[name] = torch.rand(tensor.shape, generator=generator) + (
                0.5 if name == "norm.running_var" else -0.5
            )
    return made


def eager(weights: State | None, inputs: dict[str, Any]) -> torch.Tensor:
    model = recipe().build()
    if weights is not None:
        model.load_state_dict(weights | {"candidates.weight": weights["items.weight"]})
    with torch.inference_mode():
        scores: torch.Tensor = model(**inputs)
    return scores


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5)


@dataclass(frozen=True)
class Pushing:
    """A server with explicit control, its repository, and the command line against it."""

    server: TritonServer
    repo: Path
    folder: Path

    def add(self, package: Path, name: str) -> None:
        write_model(package, self.repo, name=name, serving=Serving(instances=2, threads=1))
        self.load(name)

    def load(self, name: str) -> None:
        """Load, or load again: the core does so only for what looks newer."""
        config = self.repo / name / "config.pbtxt"
        later = config.stat().st_mtime_ns + 1_000_000_000
        os.utime(config, ns=(later, later))
        with InferenceServerClient(self.server.grpc_url) as client:
            client.load_model(name)

    def client(self, name: str) -> ModelClient:
        return ModelClient(self.server.grpc_url, name, Manifest.load(self.repo / name / "1"))

    def scores(self, name: str, inputs: dict[str, Any]) -> torch.Tensor:
        client = self.client(name)
        try:
            return client.infer(inputs)["scores"]
        finally:
            client.close()

    def weights(self, name: str) -> Path:
        return self.repo / name / "1" / "weights"

    def push(self, name: str, weights: State | Path, *options: str) -> tuple[int, Any, str]:
        """The exit code, what `--json` printed, and the error."""
        file = weights if isinstance(weights, Path) else self.folder / "new.safetensors"
        if isinstance(weights, dict):
            save_file(weights, file)
        arguments = ["weights", "push", name, str(file), "--repo", str(self.repo), "--json", *options]
        done = CliRunner().invoke(main, arguments)
        return done.exit_code, json.loads(done.stdout) if done.stdout else None, done.stderr

    def metrics(self, name: str) -> Metrics:
        found = read_metrics(self.server.metrics_url, name, 1)
        assert found is not None
        return found

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no VmRSS")


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushing]:
    folder = tmp_path_factory.mktemp("weights")
    repo = folder / "repo"
    repo.mkdir()
    binary = find_server()
    backends = backends_directory(binary, build_backend())
    flags = ["--model-control-mode=explicit"]
    with TritonServer(repo, binary=binary, backends=backends, flags=flags) as server:
        yield Pushing(server, repo, folder)


@pytest.fixture
def name(pushing: Pushing, request: pytest.FixtureRequest) -> Iterator[str]:
    """A model of the test's own, with the package's own weights."""
    made = "".join(c for c in request.node.name if c.isalnum() or c == "_")[:60]
    pushing.add(cpp_package("tower"), made)
    yield made
    with InferenceServerClient(pushing.server.grpc_url) as client:
        client.unload_model(made)


def test_answers_become_those_of_the_new_weights(pushing: Pushing, name: str) -> None:
    inputs = dict(recipe().draw(1, {"b": 3, "n": 5}))
    first, second = state(1), state(2)
    assert equal(pushing.scores(name, inputs), eager(None, inputs))
    assert pushing.metrics(name) == Metrics(0, 0)
    for number, weights in enumerate((first, second), start=1):
        code, told, _ = pushing.push(name, weights)
        assert (code, told["state"], told["weights_version"]) == (0, "swapped", number)
        assert equal(pushing.scores(name, inputs), eager(weights, inputs))
        assert pushing.metrics(name) == Metrics(number, 0)
    assert not equal(eager(first, inputs), eager(second, inputs))
    # Loaded again, it serves what was pushed, not what was compiled.
    pushing.load(name)
    assert equal(pushing.scores(name, inputs), eager(second, inputs))
    assert pushing.metrics(name).version == 2


def test_each_answer_is_of_one_set_while_ten_pushes_come(pushing: Pushing, name: str) -> None:
    inputs = dict(recipe().draw(2, {"b": 2, "n": 4}))
    sets = [state(seed) for seed in range(11)]
    expected = [eager(weights, inputs) for weights in sets]
    assert pushing.push(name, sets[0])[0] == 0
    stop, answers, errors = threading.Event(), [0] * 3, []

    def ask(index: int) -> None:
        client, newest = pushing.client(name), 0
        request = client.prepare(inputs)
        while not stop.is_set():
            got = client.decode(client.send(request))["scores"]
            found = [number for number, wanted in enumerate(expected) if equal(got, wanted)]
            if len(found) != 1 or found[0] < newest:
                errors.append((found, newest))
            newest = found[0] if found else newest
            answers[index] += 1
        client.close()

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    codes = [pushing.push(name, weights)[0] for weights in sets[1:]]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 10
    assert errors == []
    assert min(answers) > 10
    assert equal(pushing.scores(name, inputs), expected[10])
    # The weights in use and those before them stay; the rest is gone.
    assert len(list(pushing.weights(name).glob("*.safetensors"))) == 2


def spoil(weights: State, how: str) -> State:
    changed = dict(weights)
    if how == "dtype":
        changed["mix.bias"] = changed["mix.bias"].double()
    elif how == "shape":
        changed["mix.bias"] = changed["mix.bias"].reshape(4, 4)
    elif how == "name":
        changed["mix.other"] = torch.zeros(1)
    elif how == "missing":
        del changed["mix.bias"], changed["scale"]
    elif how == "fixed":
        changed["places"] = torch.zeros(4, 1)
    elif how == "tied":
        changed["candidates.weight"] = changed["items.weight"] + 1
    return changed


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("dtype", "'mix.bias': expected float32 [16], got float64 [16]; convert it"),
        ("shape", "'mix.bias': expected float32 [16], got float32 [4, 4]"),
        ("name", "holds 'mix.other'; 'mix.other' is no weight of the package"),
        ("missing", "lacks 'mix.bias', 'scale' of tower"),
        ("fixed", "holds 'places'; 'places' is compiled into the package"),
        ("tied", "'candidates.weight' and 'items.weight' are one tensor in the model and differ in the file"),
        ("truncated", "is not a whole safetensors file"),
        ("absent", "is not a file"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_moves(pushing: Pushing, how: str, told: str) -> None:
    if not (pushing.repo / "wrong").exists():
        pushing.add(cpp_package("tower"), "wrong")
        assert pushing.push("wrong", state(3))[0] == 0
    before = {path.name: path.read_bytes() for path in pushing.weights("wrong").iterdir()}
    weights: State | Path = spoil(state(4), how)
    if how in ("truncated", "absent"):
        path = pushing.folder / f"{how}.safetensors"
        if how == "truncated":
            save_file(state(4), path)
            path.write_bytes(path.read_bytes()[:-100])
        weights = path
    code, _, error = pushing.push("wrong", weights)
    assert code == 2
    assert told in error
    assert {path.name: path.read_bytes() for path in pushing.weights("wrong").iterdir()} == before


@pytest.mark.parametrize("how", ["dtype", "shape", "name", "missing", "tied", "truncated"])
def test_the_server_refuses_it_too(pushing: Pushing, how: str) -> None:
    """A pointer written by hand, past the command's own checks."""
    if not (pushing.repo / "byhand").exists():
        pushing.add(cpp_package("tower"), "byhand")
        assert pushing.push("byhand", state(3))[0] == 0
    weights, folder = state(3), pushing.weights("byhand")
    before, status = pushing.metrics("byhand"), ServerStatus.load(folder)
    assert status is not None
    good = Pointer.load(folder)
    assert good is not None
    file = pushing.folder / "byhand.safetensors"
    save_file(spoil(state(4), how), file)
    content = file.read_bytes()[: -100 if how == "truncated" else None]
    from hashlib import sha256

    bad = Pointer(status.version + 1, sha256(content).hexdigest(), len(content), good.package_sha256)
    (folder / bad.file_name).write_bytes(content)
    bad.save(folder)
    refused = await_status(folder, bad.version)
    good.save(folder)
    assert refused.state == "refused"
    assert refused.serving == good.version
    assert any(word in refused.message for word in ("mix", "differ", "after its last", "data_offsets"))
    assert pushing.metrics("byhand") == Metrics(before.version, before.failures + 1)
    inputs = dict(recipe().draw(5, {"b": 1, "n": 3}))
    assert equal(pushing.scores("byhand", inputs), eager(weights, inputs))


def await_status(folder: Path, version: int) -> ServerStatus:
    from aoti_pack.weights.answer import await_answer

    pointer = Pointer.load(folder)
    assert pointer is not None
    assert pointer.version == version
    await_answer(folder, pointer, None, None, 60)
    status = ServerStatus.load(folder)
    assert status is not None
    assert status.version == version
    return status


def test_a_push_that_the_server_refuses_is_taken_back(pushing: Pushing, name: str) -> None:
    assert pushing.push(name, state(3))[0] == 0
    manifest = pushing.repo / name / "1" / "manifest.json"
    text = manifest.read_text()
    raw = json.loads(text)
    raw["package"]["sha256"] = "0" * 64  # as if it had been compiled anew and the server not told
    manifest.write_text(json.dumps(raw))
    code, told, _ = pushing.push(name, state(4))
    manifest.write_text(text)
    assert (code, told["state"]) == (1, "refused")
    assert "for another package" in told["message"]
    pointer = Pointer.load(pushing.weights(name))
    assert pointer is not None
    assert pointer.version == 1
    inputs = dict(recipe().draw(6, {"b": 1, "n": 3}))
    assert equal(pushing.scores(name, inputs), eager(state(3), inputs))
    assert pushing.push(name, state(5))[1]["weights_version"] == 3
    assert equal(pushing.scores(name, inputs), eager(state(5), inputs))


def test_weights_without_a_server_serve_once_one_starts(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    write_model(cpp_package("tower"), repo, serving=Serving(threads=1))
    file = tmp_path / "new.safetensors"
    save_file(state(7), file)
    arguments = ["weights", "push", "tower", str(file), "--repo", str(repo), "--timeout", "0"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 3
    assert "no server answered" in done.stderr
    binary = find_server()
    inputs = dict(recipe().draw(8, {"b": 2, "n": 3}))
    with TritonServer(repo, binary=binary, backends=backends_directory(binary, build_backend())) as server:
        client = ModelClient(server.grpc_url, "tower", Manifest.load(repo / "tower" / "1"))
        assert equal(client.infer(inputs)["scores"], eager(state(7), inputs))
        client.close()
    status = ServerStatus.load(repo / "tower" / "1" / "weights")
    assert status is not None
    assert (status.version, status.state, status.serving) == (1, "swapped", 1)
    shown = CliRunner().invoke(main, ["weights", "status", "tower", "--repo", str(repo), "--json"])
    assert json.loads(shown.stdout)["status"]["serving"] == 1


def test_memory_comes_back_after_eight_pushes(pushing: Pushing) -> None:
    pushing.add(compiled_package(SOURCE, BIG, updatable=True), "big")
    weights = state(1, **BIG)
    assert weights["items.weight"].nbytes == 64 << 20
    # The first push settles what the process keeps for good.
    assert pushing.push("big", weights)[0] == 0
    before = pushing.resident_bytes()
    for number in range(8):
        weights["items.weight"][0, 0] = number
        assert pushing.push("big", weights)[0] == 0
    grown = pushing.resident_bytes() - before
    assert abs(grown) < 8 << 20, f"{grown / (1 << 20):.1f} MiB after 8 pushes"
    inputs = {
        "history": torch.zeros(1, 4, dtype=torch.int64),
        "candidates": torch.zeros(1, 1, dtype=torch.int64),
    }
    model = recipe(**BIG).build()
    model.load_state_dict(weights | {"candidates.weight": weights["items.weight"]})
    with torch.inference_mode():
        assert equal(pushing.scores("big", inputs), model(**inputs))
