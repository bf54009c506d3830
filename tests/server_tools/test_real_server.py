"""The real server, with a Python model, from start to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from server_helpers import descendants, is_alive, segments, wait_gone

from aoti_pack.server.build import backends_directory
from aoti_pack.server.doctor import check_python_backend, check_server
from aoti_pack.server.find import ServerBinary, find_server
from aoti_pack.server.install import install_server
from aoti_pack.server.launch import ServerFailed, TritonServer

pytestmark = pytest.mark.server

CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }]
"""

# DLPack, since this server's `as_numpy` is wrong under numpy 2.
IDENTITY = """
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        print("threads", os.environ.get("OMP_NUM_THREADS"), "python", os.__file__, flush=True)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor.from_dlpack(
                    "OUT", pb_utils.get_input_tensor_by_name(request, "IN").to_dlpack()
                )
            ])
            for request in requests
        ]
"""

OWNER = """
import signal, sys
from pathlib import Path
from aoti_pack.server.launch import TritonServer
server = TritonServer(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def binary() -> ServerBinary:
    return find_server(install_server().binary)


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "identity"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.py").write_text(IDENTITY)
    return folder.parent


def infer(module: Any, url: str, values: np.ndarray) -> np.ndarray:
    client = module.InferenceServerClient(url)
    try:
        sent = module.InferInput("IN", list(values.shape), "FP32")
        sent.set_data_from_numpy(values)
        answer: np.ndarray = client.infer("identity", [sent]).as_numpy("OUT")
        return answer
    finally:
        client.close()


def test_serves_over_both_protocols_and_leaves_nothing(
    binary: ServerBinary, identity: Path, tmp_path: Path
) -> None:
    before, shm = descendants(os.getpid()), segments()
    server = TritonServer(
        identity,
        binary=binary,
        backends=backends_directory(binary),
        env={"OMP_NUM_THREADS": "1"},
        log=tmp_path / "log",
    )
    values = np.array([[1.5, -2.0, 3.0], [4.0, np.inf, 6.0]], np.float32)
    with server:
        np.testing.assert_array_equal(infer(tritonclient.http, server.http_url, values), values)
        np.testing.assert_array_equal(infer(tritonclient.grpc, server.grpc_url, values), values)
        client = tritonclient.http.InferenceServerClient(server.http_url)
        assert client.get_server_metadata()["version"] == binary.version
        client.close()
        metrics = urllib.request.urlopen(server.metrics_url).read().decode()
        assert 'nv_inference_request_success{model="identity",version="1"} 2' in metrics
        assert f"threads 1 python {sys.base_prefix}/lib" in server.log.read_text()
        assert len(segments() - shm) == 1
        family = descendants(os.getpid()) - before
        addresses = listening(server.pid)
        assert {port for _, port in addresses} == set(server.ports.flags().values())
        # gRPC binds the same address as an IPv6-mapped one.
        assert {address[-8:] for address, _ in addresses} == {"0100007F"}, "127.0.0.1 alone"
    assert len(family) == 3, "guard, server, stub"
    assert not any(is_alive(pid) for pid in family)
    assert segments() == shm
    assert not listening_ports() & set(server.ports.flags().values())


def listening(pid: int) -> set[tuple[str, int]]:
    """The (address, port) pairs, address in the kernel's hexadecimal, on which the process listens."""
    sockets = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(handle.readlink()))
        except FileNotFoundError:
            continue
    return {pair for inode, pair in table() if f"socket:[{inode}]" in sockets}


def listening_ports() -> set[int]:
    return {port for _, (_, port) in table()}


def table() -> list[tuple[str, tuple[str, int]]]:
    rows = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, port = fields[1].split(":")
                rows.append((fields[9], (address, int(port, 16))))
    return rows


def test_a_model_that_does_not_load_tells_why(binary: ServerBinary, identity: Path, tmp_path: Path) -> None:
    before, shm = descendants(os.getpid()), segments()
    (identity / "identity" / "1" / "model.py").write_text('raise RuntimeError("no such weights: w.bin")')
    with pytest.raises(ServerFailed) as caught:
        TritonServer(identity, binary=binary, log=tmp_path / "log").start()
    assert caught.value.lines == [
        "failed to load 'identity' version 1: Internal: RuntimeError: no such weights: w.bin",
        "creating server: Internal - failed to load all models",
    ]
    assert descendants(os.getpid()) <= before
    assert segments() == shm


def test_a_killed_server_takes_its_stub_and_segment_along(
    binary: ServerBinary, identity: Path, tmp_path: Path
) -> None:
    before, shm = descendants(os.getpid()), segments()
    with TritonServer(identity, binary=binary, log=tmp_path / "log") as server:
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait(20) == 128 + signal.SIGKILL
        assert "ended (SIGKILL)" in str(server.failure())
    assert descendants(os.getpid()) <= before
    assert segments() == shm


def test_a_killed_parent_takes_all_along(
    binary: ServerBinary, identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shm = segments()
    env = {**os.environ, "PATH": f"{binary.path.parent}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(identity)], env=env, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        family = descendants(owner.pid)
        assert pid in family
        assert len(family) == 3, "guard, server, stub"
        owner.kill()
    assert all(wait_gone(one, 40) for one in family)
    assert segments() == shm


def test_doctor_finds_it_well(binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{binary.path.parent}:{os.environ['PATH']}")
    check = check_server()
    assert (check.level, check.detail) == ("ok", f"{binary.version} at {binary.path} (PATH)")
    assert check_python_backend().level == "ok"
