"""What a server's log says about a failure, and where logs are kept."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from aoti_pack.paths import user_cache

_ERROR = re.compile(r'^E\d{4} +[\d:.]+ +\d+ +\S+\] +"?(?P<what>.*?)"?$')
_FINAL = re.compile(r"^error: (?P<what>.*)$")
_TAKEN = re.compile(r"Socket '[^']*' already in use", re.IGNORECASE)
# Said as an error on every machine without a GPU.
_HARMLESS = ("CudaDriverHelper has not been initialized",)
_LOGS_KEPT = 10
_DAY_S = 86400


def error_lines(lines: Iterable[str], limit: int = 6) -> list[str]:
    """The lines that tell why a server ended: its errors, each once, the first `limit` of them.

    Of an error that spans lines (a Python traceback) it gives the first. A log without errors gives its last
    three lines, which may be a loader's message ("cannot open shared object file") or a sanitizer's.
    """
    lines = [line.rstrip() for line in lines]
    matches = (_ERROR.match(line) or _FINAL.match(line) for line in lines)
    found = dict.fromkeys(match["what"].split("\\n")[0].strip() for match in matches if match)
    telling = [line for line in found if not line.startswith(_HARMLESS)]
    return telling[:limit] or [line for line in lines if line][-3:]


def says_port_taken(lines: Iterable[str]) -> bool:
    """Whether the server ended because it could not bind a port."""
    return any(_TAKEN.search(line) for line in lines)


def new_log() -> Path:
    """A fresh log file in the user's cache. Older ones are kept: the last few, and all of the last day."""
    folder = user_cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    newest_first = sorted(folder.glob("server-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first[_LOGS_KEPT - 1 :]:
        if path.stat().st_mtime < time.time() - _DAY_S:
            path.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix="server-", suffix=".log")
    os.close(handle)
    return Path(name)
