"""Files and folders that appear whole or not at all: write beside, fsync, rename."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100  # linux/fcntl.h
_RENAME_EXCHANGE = 2  # linux/fs.h


def sync_directory(path: Path) -> None:
    """Flush a directory's own entries, so that a rename inside it survives a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(root: Path) -> None:
    """Flush every file and directory under `root`, deepest first."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder) / name
            if path.is_symlink():  # its name lies in the directory, which is flushed below
                continue
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
        sync_directory(Path(folder))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step; a reader sees the old content or the new, never a part."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with os.fdopen(fd, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fchmod(handle.fileno(), 0o644)
            os.fsync(handle.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for UTF-8 text."""
    write_bytes(path, text.encode())


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step (Linux `renameat2`); a reader finds one of them at each moment."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
        raise OSError(code, os.strerror(code), str(other))
    # Network and overlay file systems cannot exchange. Two renames leave a moment without `other`, never a half.
    aside = other.with_name(f".{other.name}.old-{os.getpid()}")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


@contextmanager
def new_directory(final: Path, *, staging: Path | None = None) -> Iterator[Path]:
    """Yield a hidden folder; on success it becomes `final` in one step, on failure it is removed.

    An existing `final` is exchanged for the new folder and then deleted, so `final` names a whole folder at
    every moment: the old one or the new one. A process killed in between leaves at most a hidden leftover,
    which the next writer of the same name clears. A `final` that is a link is replaced by the folder; what it
    points to stays. `staging` is where the hidden folder is made (default:
    beside `final`); it must lie on the same file system.
    """
    beside_in = staging or final.parent
    beside_in.mkdir(parents=True, exist_ok=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(beside_in / f".{final.name}.lock"):
        for leftover in _leftovers(beside_in, final.name):
            _remove(leftover)
        beside = Path(tempfile.mkdtemp(dir=beside_in, prefix=f".{final.name}.tmp-"))
        try:
            beside.chmod(0o755)
            yield beside
            sync_tree(beside)
            if os.path.lexists(final):
                _exchange(beside, final)
            else:
                beside.rename(final)
            sync_directory(final.parent)
        finally:
            if os.path.lexists(beside):
                _remove(beside)


def _leftovers(folder: Path, name: str) -> list[Path]:
    # Exactly what mkdtemp makes for `name`: the names of others may begin with ours.
    mine = re.compile(re.escape(f".{name}.tmp-") + r"[a-z0-9_]{8}")
    return [path for path in folder.iterdir() if mine.fullmatch(path.name)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold the file `lock` (made if missing, removed at the end) against other processes of this tool."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = lock.open("w")
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The holder before us removes the file at its end: what we locked may no longer be what others open.
        try:
            if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                break
        except FileNotFoundError:
            # The next holder has come and gone as well: take a new file.
            handle.close()
            continue
        handle.close()
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        handle.close()
