"""Run a real Triton server on a model repository, and leave nothing behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self, TypeVar

from aoti_pack.errors import UserError
from aoti_pack.progress import Progress, silent
from aoti_pack.server import guard
from aoti_pack.server.command import server_command
from aoti_pack.server.find import ServerBinary, find_server
from aoti_pack.server.ports import Ports, check_ports, choose_ports
from aoti_pack.server.repository_check import check_repository
from aoti_pack.server.serverlog import error_lines, new_log, says_port_taken

T = TypeVar("T")

_PORT_TRIES = 5
_FIRST_POLL_S, _LAST_POLL_S = 0.02, 0.5
_KILL_MARGIN_S = 5.0  # what unloading takes after the last request, before the server is killed
_STOP_MARGIN_S = 10.0


class ServerFailed(UserError):
    """A server that did not become ready, or ended by itself. `lines` are its own words, `log` the whole."""

    def __init__(self, what: str, lines: Sequence[str], log: Path) -> None:
        self.lines = list(lines)
        self.log = log
        super().__init__(": ".join([what, "; ".join(self.lines)]) if lines else what, mend=f"see {log}")


class TritonServer:
    """A server on `repository`; a context manager that starts and stops it.

    It listens on `host` alone, at the given ports or free ones; waits for every model (strict readiness) and
    for the metrics service; ends at the first model that fails to load; takes no model control requests. It
    ends with this process, however that ends, together with the Python backend's processes and segments.

    `backends` is the `--backend-directory` (default: the one that came with the server), `flags` more flags
    for the server, `env` more environment, such as `OMP_NUM_THREADS`. `log` is written anew (default: a file
    in the user's cache). `ready_s` bounds the start, `grace_s` how long requests in flight may take to end.
    """

    def __init__(
        self,
        repository: Path,
        *,
        binary: ServerBinary | None = None,
        backends: Path | None = None,
        ports: Ports | None = None,
        host: str = "127.0.0.1",
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        ready_s: float = 300.0,
        grace_s: float = 30.0,
    ) -> None:
        self.repository = repository.absolute()
        self.host = host
        self._binary = binary
        self._backends = backends
        self._asked = ports or Ports()
        self._ports: Ports | None = None
        self._flags = tuple(flags)
        self._env = dict(env or {})
        self._log = log
        self._ready_s = ready_s
        self._grace_s = grace_s
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._pump: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return _started(self._pid)

    @property
    def log(self) -> Path:
        """The file that holds the server's output."""
        return _started(self._log)

    @property
    def ports(self) -> Ports:
        """The ports it listens on."""
        return _started(self._ports)

    @property
    def http_url(self) -> str:
        """`host:port`, as tritonclient wants it."""
        return self._url(self.ports.http)

    @property
    def grpc_url(self) -> str:
        """`host:port`, as tritonclient wants it."""
        return self._url(self.ports.grpc)

    @property
    def metrics_url(self) -> str:
        """The full address of the Prometheus page."""
        return f"http://{self._url(self.ports.metrics)}/metrics"

    def start(self, sink: Progress | None = None) -> None:
        """Start, and return when every model is ready. `sink` gets each line of the log as it comes.

        Raises `UserError` for a repository without models or a taken port, `ServerFailed` if the server ends
        or is not ready in time; it is stopped then.
        """
        if self._guard is not None:
            raise RuntimeError("the server was started already")
        check_repository(self.repository, self._flags)
        check_ports(self.host, self._asked)
        self._binary = self._binary or find_server()
        self._log = self._log or new_log()
        for attempt in range(1, _PORT_TRIES + 1):
            try:
                self._start_once(self._binary, sink)
                return
            except ServerFailed as failure:
                # Another program took a port that we had found free.
                again = self._asked.any_free() and says_port_taken(failure.lines) and attempt < _PORT_TRIES
                if not again:
                    raise

    def _start_once(self, binary: ServerBinary, sink: Progress | None) -> None:
        self._ports = choose_ports(self.host, self._asked)
        token = f"aoti_pack_{os.getpid()}_{os.urandom(4).hex()}"
        spec = {
            "argv": server_command(
                binary.path,
                self.repository,
                server_id=token,
                host=self.host,
                ports=self._ports,
                backends=self._backends or binary.backends,
                shm_prefix=token,
                exit_timeout_s=self._grace_s,
                flags=self._flags,
            ),
            "env": binary.environment() | self._env,
            "parent": os.getpid(),
            "shm_prefix": token,
            "grace_s": self._grace_s + _KILL_MARGIN_S,
        }
        try:
            self._spawn(spec, sink)
            self._await_ready(token)
        except BaseException:
            self.stop()
            raise

    def _spawn(self, spec: Mapping[str, object], sink: Progress | None) -> None:
        log = self.log.open("wb")
        with log if sink is None else contextlib.nullcontext():
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if sink is None else subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in our terminal is ours to handle
            )
        if sink is not None and self._guard.stderr is not None:
            self._pump = threading.Thread(target=_pump, args=(self._guard.stderr, log, sink), daemon=True)
            self._pump.start()
        stdin, stdout = _started(self._guard.stdin), _started(self._guard.stdout)
        with contextlib.suppress(BrokenPipeError):  # it ended at once: the missing report below says so
            stdin.write(json.dumps(spec).encode())
            stdin.close()
        told = json.loads(stdout.readline() or b'{"error": "its guard process ended"}')
        if "error" in told:
            raise ServerFailed(f"cannot start {_started(self._binary).path}: {told['error']}", [], self.log)
        self._pid = int(told["pid"])

    def _await_ready(self, server_id: str) -> None:
        deadline = time.monotonic() + self._ready_s
        pause = _FIRST_POLL_S
        while not self._ended(pause):
            if self._is_ready(server_id):
                return
            if time.monotonic() > deadline:
                lines = error_lines(self._log_lines())
                raise ServerFailed(
                    f"the Triton server was not ready after {self._ready_s:g} s", lines, self.log
                )
            pause = min(2 * pause, _LAST_POLL_S)
        raise self.failure()

    def _is_ready(self, server_id: str) -> bool:
        """All models ready, metrics served, and by this server, not by another that took the port."""
        http, metrics = _started(self.ports.http), _started(self.ports.metrics)
        if _get(self._dial(), http, "/v2/health/ready") is None:
            return False
        told = _get(self._dial(), http, "/v2")
        if told is None or json.loads(told).get("name") != server_id:
            return False
        return _get(self._dial(), metrics, "/metrics") is not None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The server's exit code once it has ended, or None after `timeout_s` without."""
        if not self._ended(timeout_s):
            return None
        return _started(self._guard).wait()

    def failure(self) -> ServerFailed:
        """Why a server that has ended did so, as its log tells."""
        code = _started(self._guard).wait()
        self._join_pump()
        how = signal.Signals(code - 128).name if code > 128 else f"exit code {code}"
        return ServerFailed(f"the Triton server ended ({how})", error_lines(self._log_lines()), self.log)

    def stop(self) -> None:
        """End the server: requests in flight may finish within the grace, then it is killed. Idempotent."""
        guarding = self._guard
        if guarding is None:
            return
        guarding.terminate()
        try:
            guarding.wait(self._grace_s + _KILL_MARGIN_S + _STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            guarding.wait()
        self._join_pump()
        if guarding.stdout is not None:
            guarding.stdout.close()
        self._guard = self._pid = None

    def kill(self) -> None:
        """End the server at once, with no regard for requests in flight."""
        if self._guard is None:
            return
        if self._pid is None:
            self._guard.kill()
        elif self._guard.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)  # its guard sees that and clears up

    def _ended(self, timeout_s: float | None) -> bool:
        guarding = _started(self._guard)
        if guarding.poll() is not None:
            return True
        handle = os.pidfd_open(guarding.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
        finally:
            os.close(handle)

    def _log_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def _join_pump(self) -> None:
        if self._pump is not None:
            self._pump.join()
            self._pump = None

    def _dial(self) -> str:
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    def _url(self, port: int | None) -> str:
        dial = self._dial()
        return f"[{dial}]:{port}" if ":" in dial else f"{dial}:{port}"


def serve_foreground(server: TritonServer, *, echo: Progress) -> int:
    """Run until SIGINT or SIGTERM, with the log and one line of addresses to `echo`; returns 0.

    A second signal ends the server without waiting for requests in flight. Raises as `TritonServer.start`,
    and `ServerFailed` if the server ends by itself with an error. To be called from the main thread.
    """
    try:
        with _signals(_raise_stop):
            server.start(sink=echo)
            echo(f"ready: http {server.http_url}, grpc {server.grpc_url}, metrics {server.metrics_url}")
            if server.wait() != 0:
                raise server.failure()
    except _Stop:
        echo("stopping")
    finally:
        with _signals(lambda _number, _frame: server.kill()):
            server.stop()
    return 0


class _Stop(BaseException):
    """A signal asked for the end. Not an `Exception`, so that no handler on the way takes it for an error."""


def _raise_stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stop


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _pump(source: IO[bytes], log: IO[bytes], sink: Progress) -> None:
    """Copy the server's output to the log and the sink. A sink that fails must not block the server's output."""
    with source, log:
        for line in source:
            log.write(line)
            log.flush()
            try:
                sink(line.decode(errors="replace").rstrip("\n"))
            except OSError as error:  # a closed terminal or pipe
                log.write(f"aoti-pack: the log is no longer shown: {error}\n".encode())
                sink = silent


def _get(host: str, port: int, path: str) -> bytes | None:
    """The body of an answer 200, or None for any other answer or none."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _started(value: T | None) -> T:
    if value is None:
        raise RuntimeError("the server is not running")
    return value
