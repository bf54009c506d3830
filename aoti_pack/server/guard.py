"""The process between us and a server, so that nothing of the server outlives us.

Run as a script with the standard library alone: `python -I -S guard.py`, one JSON object on stdin
(`argv`, `env`, `parent`, `shm_prefix`, `grace_s`), reports on stdout, the server's output on stderr.

Why a process: the kernel's "signal me when my parent dies" is bound to the *thread* that forked and must be
set between fork and exec, both unsafe in a program with threads. This process has one thread, watches its
parent through a pidfd, and adopts what the server leaves behind (the Python backend's stub processes).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_LAST_WAIT_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def _report(**event: object) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # the parent died; stopping the server is what is left to do
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _start(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    me = os.getpid()

    def die_with_guard() -> None:
        # TERM, not KILL: should the guard itself be killed, the server still ends its stubs and segments.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != me:
            os._exit(1)

    return subprocess.Popen(
        spec["argv"],
        env=spec["env"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
        preexec_fn=die_with_guard,  # noqa: PLW1509  this process has one thread
    )


def _wait(server: subprocess.Popen[bytes], parent_fd: int, wakeup_fd: int, grace_s: float) -> None:
    """Return when the server has ended: by itself, or because the parent died or sent TERM."""
    server_fd = os.pidfd_open(server.pid)
    poll = select.poll()
    for fd in (server_fd, parent_fd, wakeup_fd):
        poll.register(fd, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    if server_fd not in ready:
        server.send_signal(signal.SIGTERM)
        only = select.poll()
        only.register(server_fd, select.POLLIN)
        if not only.poll(grace_s * 1000):
            server.kill()
    server.wait()


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN; the process group is killed anyway
        return []


def _end_orphans(group: int) -> None:
    """Kill what the server left, and what that leaves, until no child remains."""
    deadline = time.monotonic() + _LAST_WAIT_S
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        group = 0
    while time.monotonic() < deadline:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)  # our own child: its id cannot be reused before we reap it
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            signal.sigtimedwait({signal.SIGCHLD}, max(0.0, deadline - time.monotonic()))


def main() -> int:
    """Run one server to its end; the exit code is the server's (128 + n after signal n)."""
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # the wake-up descriptor carries the news
    spec = json.load(sys.stdin)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    parent_fd = os.pidfd_open(spec["parent"])
    if os.getppid() != spec["parent"]:
        return 1
    try:
        server = _start(spec)
    except (OSError, subprocess.SubprocessError) as error:
        _report(error=str(error))
        return 126
    _report(pid=server.pid)
    try:
        _wait(server, parent_fd, wakeup_read, spec["grace_s"])
    finally:
        _end_orphans(server.pid)
        for segment in Path("/dev/shm").glob(f"{spec['shm_prefix']}*"):
            segment.unlink(missing_ok=True)
    code = server.returncode
    _report(exit=code)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
