"""The C++ side of the fuzz tests: a long-lived `aoti_fuzz` behind two pipes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

_TAIL = 20_000  # characters of a sanitizer's report that a failure shows


class DriverDied(AssertionError):
    """The process ended inside a case: a crash, or a sanitizer's finding. Carries what it said."""


class Driver:
    """`ask` sends one case and returns the answer. After a death the next `ask` starts afresh, so that
    hypothesis can shrink the case."""

    def __init__(self, program: Path, environment: dict[str, str]) -> None:
        self._program = program
        self._environment = os.environ | environment
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  as long as this object

    def ask(self, kind: str, *parts: bytes | str) -> dict[str, Any]:
        if self._process is None:
            self._stderr.seek(0)
            self._stderr.truncate()
            self._process = subprocess.Popen(
                [self._program],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
            )
        message = [struct.pack("<I", len(parts) + 1)]
        for part in (kind, *parts):
            # A lone surrogate cannot be UTF-8, and must be refused like any other wrong bytes.
            raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            message += [struct.pack("<I", len(raw)), raw]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(b"".join(message))
            stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        head = stdout.read(4)
        body = stdout.read(struct.unpack("<I", head)[0]) if len(head) == 4 else b""
        if len(head) < 4 or len(body) < struct.unpack("<I", head)[0]:
            raise self._death()
        answer: dict[str, Any] = json.loads(body)
        return answer

    def close(self) -> None:
        """End the process. DriverDied when it does not end well, such as with a leak found at its end."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(60) != 0:
            raise self._death()
        self._process = None

    def _death(self) -> DriverDied:
        process, self._process = self._process, None
        assert process is not None
        code = process.wait()
        self._stderr.seek(0)
        told = self._stderr.read().decode(errors="replace")
        return DriverDied(f"aoti_fuzz ended with {code}:\n{told[-_TAIL:]}")
