from __future__ import annotations

import os
import select
import sys
from pathlib import Path

# Stands for tritonserver where a test is about how we handle a process, not about inference. What it does
# beyond being ready is said by FAKE_* variables.
FAKE_SERVER = r"""
import http.server, json, os, signal, subprocess, sys, threading
from pathlib import Path

flags = dict(arg[2:].split("=", 1) for arg in sys.argv[1:] if "=" in arg)
env = os.environ
print("threads", env.get("OMP_NUM_THREADS"), flush=True)
if count := env.get("FAKE_TAKEN_ONCE"):
    first = not Path(count).exists()
    with open(count, "a") as file:
        file.write(flags["http-port"] + "\n")
    if first:
        print(f"E1201 12:26:56.485734 1 main.cc:257] \"failed to start HTTP service: Unavailable - "
              f"Socket '127.0.0.1:{flags['http-port']}' already in use \"", flush=True)
        sys.exit(1)
if text := env.get("FAKE_FAIL"):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, signal.SIG_IGN if env.get("FAKE_STUBBORN") else lambda *_: os._exit(0))
if env.get("FAKE_STUB"):  # as the Python backend: a process of its own that ignores TERM, and a segment
    subprocess.Popen([sys.executable, "-S", "-c", "import signal;signal.signal(15,1);signal.pause()"],
                     start_new_session=True)
    prefix = flags["backend-config"].split("=")[1]
    Path("/dev/shm", prefix + "region").write_bytes(b"x")

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = env.get("FAKE_NAME") or flags["id"]
        if self.path == "/exit":
            os._exit(7)
        self.send_response(503 if env.get("FAKE_NEVER_READY") else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"name": name}).encode())
    def log_message(self, *_):
        return None

servers = [http.server.ThreadingHTTPServer(("127.0.0.1", int(flags[f"{name}-port"])), Answer)
           for name in ("http", "grpc", "metrics")]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
"""


def write_program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(0o755)
    return path


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_gone(pid: int, timeout_s: float = 20.0) -> bool:
    """Wait for the end of any process, a child or not; False if it outlives the time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(handle)


def segments(prefix: str = "aoti_pack_") -> set[str]:
    return {path.name for path in Path("/dev/shm").glob(f"{prefix}*")}


def descendants(pid: int) -> set[int]:
    """All processes below `pid`, from one look at /proc."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found: set[int] = set()
    grown = True
    while grown:
        below = {child for child, parent in parents.items() if parent in found | {pid}}
        grown = not below <= found
        found |= below
    return found
