"""`aoti-pack package` in a process of its own, killed at a chosen moment of its work on the file system."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

_CREATE, _DELETE, _CLOSED = 0x100, 0x200, 0x8  # linux/inotify.h
_MOVED_FROM, _MOVED_TO, _IS_FOLDER = 0x40, 0x80, 0x40000000
_WATCHED = _CREATE | _DELETE | _CLOSED | _MOVED_FROM | _MOVED_TO
_EVENT = struct.Struct("iIII")


class FolderEvents:
    """What happens in some folders and in every folder that is made in them meanwhile."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        for folder in folders:
            self._watch(folder)

    def _watch(self, folder: Path) -> None:
        watch = self._libc.inotify_add_watch(self.fd, os.fsencode(folder), _WATCHED)
        if watch >= 0:  # else the folder is gone again
            self._folders[watch] = folder

    def read(self) -> int:
        """How many things have happened since the last call."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return 0
        count = offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = data[offset : offset + length].rstrip(b"\0")
            offset += length
            count += 1
            if mask & _IS_FOLDER and mask & (_CREATE | _MOVED_TO) and watch in self._folders:
                self._watch(self._folders[watch] / os.fsdecode(name))
        return count


@contextmanager
def _events(folders: Sequence[Path]) -> Iterator[FolderEvents]:
    events = FolderEvents(folders)
    try:
        yield events
    finally:
        os.close(events.fd)


def _package(argv: list[str]) -> None:
    from aoti_pack.cli import main

    main(argv, standalone_mode=False)


def package_until(package: Path, repo: Path, name: str, kill_at: int | None) -> tuple[int, bool]:
    """Run `aoti-pack package` and SIGKILL it once `kill_at` things have happened in the repository and beside it.

    Returns how many things were seen, and whether the process was killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "aoti_pack.cli", "aoti_pack.repository.layout"])
    argv = ["package", str(package), "--repo", str(repo), "--name", name, "--threads", "1", "--json"]
    with _events([repo, repo.parent]) as events:
        writer = context.Process(target=_package, args=(argv,))
        writer.start()
        seen = 0
        while kill_at is None or seen < kill_at:
            ready = wait([events.fd, writer.sentinel])
            seen += events.read()
            if writer.sentinel in ready:
                break
        writer.kill()  # nothing to a process that has ended
        writer.join()
        seen += events.read()
    code = writer.exitcode
    writer.close()
    assert code in (0, -9), code
    return seen, code == -9
