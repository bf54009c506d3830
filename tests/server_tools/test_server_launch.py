"""How a server process is handled, with a fake server: quick, and free to misbehave."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from server_helpers import descendants, is_alive, segments, wait_gone

from aoti_pack.errors import UserError
from aoti_pack.server import launch
from aoti_pack.server.find import ServerBinary
from aoti_pack.server.launch import ServerFailed, TritonServer
from aoti_pack.server.ports import Ports

# Starts a server in another process: argv is the program, the repository, what to do then.
OWNER = """
import os, signal, sys
from pathlib import Path
from aoti_pack.server.find import ServerBinary
from aoti_pack.server.launch import TritonServer, serve_foreground
server = TritonServer(Path(sys.argv[2]), grace_s=1,
                      binary=ServerBinary(Path(sys.argv[1]), "--tritonserver", None, None, None, ()))
if sys.argv[3] == "foreground":
    sys.exit(serve_foreground(server, echo=lambda line: print(line, flush=True)))
server.start()
print(server.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def make(fake_server: ServerBinary, repository: Path, home: Path, tmp_path: Path) -> type[TritonServer]:
    class Made(TritonServer):
        def __init__(self, **env: str) -> None:
            ready_s = float(env.pop("ready_s", "20"))
            super().__init__(repository, binary=fake_server, env=env, ready_s=ready_s, grace_s=1)

    return Made


def own(fake_server: ServerBinary, repository: Path, mode: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(fake_server.path), str(repository), mode],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def port_is_free(port: int | None) -> bool:
    assert port is not None
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return not made.bind(("127.0.0.1", port))


def test_starts_serves_and_leaves_nothing(make: type[TritonServer]) -> None:
    before, shm = descendants(os.getpid()), segments()
    with make(FAKE_STUB="1", OMP_NUM_THREADS="3") as server:
        pid, ports = server.pid, server.ports
        assert is_alive(pid)
        assert server.http_url == f"127.0.0.1:{ports.http}"
        assert server.grpc_url == f"127.0.0.1:{ports.grpc}"
        assert urllib.request.urlopen(server.metrics_url).status == 200
        assert len(descendants(pid)) == 1, "the fake stub"
        assert len(segments() - shm) == 1
        assert server.log.read_text() == "threads 3\n"
        inside = descendants(os.getpid()) - before
    assert not any(is_alive(one) for one in inside)
    assert len(inside) == 3, "guard, server, stub"
    assert segments() == shm
    assert all(port_is_free(port) for port in ports.flags().values())


def test_can_be_started_again_after_a_stop(make: type[TritonServer]) -> None:
    server = make()
    for _ in range(2):
        server.start()
        assert is_alive(server.pid)
        server.stop()
    server.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.pid


def test_a_server_that_ends_at_the_start_tells_its_error(make: type[TritonServer]) -> None:
    line = "E1201 12:26:47.1 42 model.cc:1] \"failed to load 'm' version 1: no w.bin\""
    with pytest.raises(ServerFailed) as caught:
        make(FAKE_FAIL=line).start()
    assert caught.value.lines == ["failed to load 'm' version 1: no w.bin"]
    assert "the Triton server ended (exit code 1): failed to load 'm'" in caught.value.problem
    assert line in caught.value.log.read_text()


def test_a_program_that_cannot_be_executed_is_told(repository: Path, tmp_path: Path, home: Path) -> None:
    broken = tmp_path / "tritonserver"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    binary = ServerBinary(broken, "--tritonserver", None, None, None, ())
    with pytest.raises(ServerFailed, match=r"cannot start .*tritonserver: .*Exec format error"):
        TritonServer(repository, binary=binary).start()


@pytest.mark.parametrize("trouble", [{"FAKE_NEVER_READY": "1"}, {"FAKE_NAME": "another server on this port"}])
def test_a_server_that_is_not_ready_in_time_is_ended(
    make: type[TritonServer], trouble: dict[str, str]
) -> None:
    before = descendants(os.getpid())
    with pytest.raises(ServerFailed, match=r"was not ready after 1 s"):
        make(ready_s="1", **trouble).start()
    assert descendants(os.getpid()) <= before


def test_a_port_lost_to_another_program_is_replaced(make: type[TritonServer], tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    with make(FAKE_TAKEN_ONCE=str(tries)) as server:
        first, second = tries.read_text().split()
        assert first != second
        assert server.ports.http == int(second)


def test_a_taken_port_is_told(fake_server: ServerBinary, repository: Path, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(UserError, match=rf"{port} \(--http-port\)"):
            TritonServer(repository, binary=fake_server, ports=Ports(http=port)).start()


def test_an_empty_repository_is_told(fake_server: ServerBinary, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is empty"):
        TritonServer(tmp_path / "empty", binary=fake_server).start()


def test_a_server_that_ignores_term_is_killed(
    make: type[TritonServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_KILL_MARGIN_S", 0.0)
    server = make(FAKE_STUBBORN="1")
    server.start()
    pid = server.pid
    server.stop()
    assert not is_alive(pid)


def test_outlives_the_thread_that_started_it(make: type[TritonServer]) -> None:
    server = make()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        assert server.wait(0.3) is None
        assert is_alive(server.pid)
    finally:
        server.stop()


@pytest.mark.parametrize("stub", ["", "1"])
def test_goes_with_a_killed_parent(
    fake_server: ServerBinary, repository: Path, home: Path, stub: str
) -> None:
    shm = segments()
    with own(fake_server, repository, "start", FAKE_STUB=stub) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        family = descendants(owner.pid)
        assert pid in family
        assert len(family) == 2 + bool(stub)
        owner.kill()
    assert all(wait_gone(one) for one in family)
    assert segments() == shm


def test_goes_with_a_killed_guard(fake_server: ServerBinary, repository: Path, home: Path) -> None:
    with own(fake_server, repository, "start") as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        (guard,) = descendants(owner.pid) - descendants(pid) - {pid}
        os.kill(guard, signal.SIGKILL)
        assert wait_gone(pid)
        owner.kill()


def test_a_sink_that_fails_does_not_stop_the_log(make: type[TritonServer]) -> None:
    def closed(_line: str) -> None:
        raise BrokenPipeError("gone")

    server = make()
    server.start(sink=closed)
    server.stop()
    assert server.log.read_text() == "threads None\naoti-pack: the log is no longer shown: gone\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_ends_cleanly_by_signal(
    fake_server: ServerBinary, repository: Path, home: Path, number: signal.Signals
) -> None:
    with own(fake_server, repository, "foreground") as owner:
        assert owner.stdout is not None
        lines = [owner.stdout.readline().rstrip() for _ in range(2)]
        assert lines[0] == "threads None"
        kinds = [part.split()[0] for part in lines[1].removeprefix("ready: ").split(", ")]
        assert kinds == ["http", "grpc", "metrics"]
        family = descendants(owner.pid)
        owner.send_signal(number)
        rest, errors = owner.communicate(timeout=30)
        assert (owner.returncode, rest, errors) == (0, "stopping\n", "")
    assert not any(is_alive(one) for one in family)


def test_foreground_ends_while_it_starts(fake_server: ServerBinary, repository: Path, home: Path) -> None:
    with own(fake_server, repository, "foreground", FAKE_NEVER_READY="1") as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "threads None\n"
        owner.send_signal(signal.SIGTERM)
        rest, errors = owner.communicate(timeout=30)
        assert (owner.returncode, rest, errors) == (0, "stopping\n", "")


def test_foreground_tells_a_server_that_ends_by_itself(
    fake_server: ServerBinary, repository: Path, home: Path
) -> None:
    with own(fake_server, repository, "foreground") as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        http = owner.stdout.readline().split()[2].rstrip(",")
        with pytest.raises(OSError, match="closed connection"):
            urllib.request.urlopen(f"http://{http}/exit")
        _, errors = owner.communicate(timeout=30)
    assert owner.returncode == 1
    assert "ServerFailed: the Triton server ended (exit code 7)" in errors
