"""The memory that a process holds."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The resident set of process `pid`, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} tells no VmRSS")
