"""The command's side of a push, with the server's side played by the test."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from manifests import manifest
from safetensors.torch import save_file

from aoti_pack.errors import UserError
from aoti_pack.manifest import ConstantSpec
from aoti_pack.progress import silent
from aoti_pack.weights.answer import Metrics, await_answer, read_metrics
from aoti_pack.weights.files import POINTER_FILE, STATUS_FILE, Pointer, ServerStatus
from aoti_pack.weights.push import Pushed, push_weights, weights_state


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo" / "model" / "2"
    folder.mkdir(parents=True)
    (tmp_path / "repo" / "model" / "1").mkdir()
    manifest(constants=(ConstantSpec("a", "float32", (2,), True),)).save(folder)
    (folder / "model.pt2").touch()
    return tmp_path / "repo"


def push(repo: Path, value: float, timeout_s: float = 0) -> Pushed:
    file = repo.parent / "new.safetensors"
    save_file({"a": torch.full((2,), float(value))}, file)
    return push_weights(repo, "model", file, timeout_s=timeout_s, progress=silent)


def answer(repo: Path, state: str, serving: int) -> threading.Thread:
    """A server that answers the next pointer it sees."""
    weights = repo / "model" / "2" / "weights"
    before = Pointer.load(weights)

    def serve() -> None:
        while (pointer := Pointer.load(weights)) == before or pointer is None:
            threading.Event().wait(0.01)
        raw = {"version": pointer.version, "sha256": pointer.sha256, "state": state, "message": "why"}
        (weights / STATUS_FILE).write_text(json.dumps(raw | {"schema": 1, "serving": serving, "when": "now"}))

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def digest(repo: Path, value: float) -> str:
    save_file({"a": torch.full((2,), float(value))}, repo.parent / "same.safetensors")
    return hashlib.sha256((repo.parent / "same.safetensors").read_bytes()).hexdigest()


def test_an_unanswered_push_stays(repo: Path) -> None:
    done = push(repo, 1)
    assert done == Pushed("model", 2, 1, digest(repo, 1), "unanswered", "")
    state = weights_state(repo, "model", None)
    assert state.status is None
    assert state.pointer is not None
    assert (state.pointer.version, state.pointer.package_sha256) == (1, "a" * 64)
    weights = repo / "model" / "2" / "weights"
    content = (weights / state.pointer.file_name).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (state.pointer.sha256, state.pointer.bytes)


def test_the_current_and_the_previous_weights_are_kept(repo: Path) -> None:
    weights = repo / "model" / "2" / "weights"
    for number in range(1, 5):
        (weights.parent / "weights").mkdir(exist_ok=True)
        (weights / ".push-left").write_text("of a killed push")
        assert push(repo, number).weights_version == number
    kept = {path.name for path in weights.iterdir()}
    assert kept == {POINTER_FILE, digest(repo, 3) + ".safetensors", digest(repo, 4) + ".safetensors"}


def test_a_refused_push_is_taken_back_and_its_number_is_not_used_again(repo: Path) -> None:
    (repo / "model" / "2" / "weights").mkdir()
    for state, value, number in (("refused", 1, 1), ("swapped", 2, 2), ("refused", 3, 3), ("swapped", 4, 4)):
        server = answer(repo, state, 0)
        done = push(repo, value, timeout_s=30)
        server.join()
        assert (done.state, done.weights_version, done.message) == (state, number, "why")
        pointer = weights_state(repo, "model", 2).pointer
        serving = {1: None, 2: 2, 3: 2, 4: 4}[number]
        assert (pointer.version if pointer else None) == serving
    files = {path.name for path in (repo / "model" / "2" / "weights").glob("*.safetensors")}
    assert files == {digest(repo, 2) + ".safetensors", digest(repo, 4) + ".safetensors"}


def test_what_is_not_there_is_named(repo: Path) -> None:
    with pytest.raises(UserError, match="nothing has no version"):
        push_weights(repo, "nothing", repo / "x", timeout_s=0, progress=silent)
    with pytest.raises(UserError, match="model has no version 7"):
        push_weights(repo, "model", repo / "x", version=7, timeout_s=0, progress=silent)
    (repo / "model" / "2" / "model.pt2").unlink()
    with pytest.raises(UserError, match="serves as its Python twin"):
        push_weights(repo, "model", repo / "x", timeout_s=0, progress=silent)


def test_damaged_files_are_told(repo: Path) -> None:
    weights = repo / "model" / "2" / "weights"
    weights.mkdir()
    for text in ("{", "[]", '{"schema": 2}', '{"schema": 1, "version": "1"}'):
        (weights / POINTER_FILE).write_text(text)
        with pytest.raises(UserError, match=r"current\.json"):
            push(repo, 1)


@given(st.integers(1, 2**62), st.integers(0, 2**62))
def test_a_pointer_comes_back(tmp_path_factory: pytest.TempPathFactory, version: int, size: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "pointer"
    folder.mkdir(exist_ok=True)
    pointer = Pointer(version, "b" * 64, size, "c" * 64)
    pointer.save(folder)
    assert Pointer.load(folder) == pointer
    assert ServerStatus.load(folder) is None


@pytest.fixture
def page() -> Iterator[tuple[str, list[str]]]:
    """A metrics page, and its lines."""
    lines: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write("\n".join(lines).encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics", lines
    server.shutdown()
    thread.join()
    server.server_close()


def test_metrics_tell_where_the_status_cannot_be_written(tmp_path: Path, page: tuple[str, list[str]]) -> None:
    url, lines = page
    assert read_metrics(url, "model", 2) is None
    lines += [
        "# TYPE aoti_weights_version gauge",
        'aoti_weights_version{model="model",version="1"} 9.000000',
        'aoti_weights_version{model="model",version="2"} 4.000000',
        'aoti_weights_push_failures{model="model",version="2"} 1.000000',
    ]
    before = read_metrics(url, "model", 2)
    assert before == Metrics(4, 1)

    def ask(version: int) -> str:
        pointer = Pointer(version, "b" * 64, 1, "c" * 64)
        return await_answer(tmp_path, pointer, lambda: read_metrics(url, "model", 2), before, 0).state

    assert ask(4) == "swapped"
    assert ask(5) == "unanswered"
    lines[3] = lines[3].replace("1.000000", "2.000000")
    assert ask(5) == "refused"


def test_metrics_that_are_not_there_are_wrong_use(repo: Path) -> None:
    file = repo.parent / "new.safetensors"
    save_file({"a": torch.ones(2)}, file)
    with pytest.raises(UserError, match=r"127.0.0.1:1/metrics cannot be read"):
        push_weights(
            repo, "model", file, timeout_s=0, metrics_url="http://127.0.0.1:1/metrics", progress=silent
        )
    assert not (repo / "model" / "2" / "weights").exists()
