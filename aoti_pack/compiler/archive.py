"""Unpacking a `.pt2` into a folder, with every entry checked first."""

from __future__ import annotations

import errno
import hashlib
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from aoti_pack.errors import CheckError, UserError
from aoti_pack.manifest import Manifest

# A package is code, kernels and weights. An entry that claims to unpack to more than this is not one.
MAX_BYTES = 64 << 30
MAX_ENTRIES = 100_000


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hex digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def check_files(folder: Path, manifest: Manifest) -> None:
    """CheckError naming the first file that is missing or is not the one that the manifest describes."""
    for file in manifest.files:
        path = folder / file.path
        if not path.is_file():
            raise CheckError(f"{path} is missing", mend="compile the package again")
        if path.stat().st_size != file.bytes or sha256_of(path) != file.sha256:
            raise CheckError(
                f"{path} is not the file that manifest.json describes: expected {file.bytes} bytes with sha256 "
                f"{file.sha256[:16]}…, got {path.stat().st_size} bytes",
                mend="compile the package again",
            )


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack `archive` into the empty `folder` and return the files written, relative to it, sorted.

    The archive's single top folder (its name varies with the file's) is left out. Absolute paths, `..`, links
    and entries beyond the size bounds are refused by name before anything is written.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            entries = [(info, _inside(archive, info)) for info in source.infolist() if not info.is_dir()]
            if not entries:
                raise UserError(f"{archive} is not a .pt2 archive: it holds no file", mend="compile it again")
            if len(entries) > MAX_ENTRIES or sum(info.file_size for info, _ in entries) > MAX_BYTES:
                raise UserError(f"{archive} unpacks to {len(entries)} files, more than a package can have")
            tops = sorted({PurePosixPath(info.filename).parts[0] for info, _ in entries})
            if len(tops) > 1:
                raise UserError(f"{archive} has the top folders {tops[0]!r} and {tops[1]!r}, expected one")
            if len({path for _, path in entries}) != len(entries):
                raise UserError(f"{archive} holds the same path twice")
            folders = {parent for _, path in entries for parent in path.parents}
            for _, path in entries:
                if path in folders:
                    raise UserError(f"{archive} holds {str(path)!r} both as a file and as a folder")
            for info, path in entries:
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(info) as data, target.open("xb") as out:
                    shutil.copyfileobj(data, out, 1 << 20)
    except FileNotFoundError:
        raise UserError(f"{archive} is missing", mend="compile it again") from None
    # zipfile's own ways of saying that an archive is damaged, encrypted or packed in an unknown way: offsets before
    # its start, names that are no UTF-8 and records that end too early come as they come.
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        RuntimeError,
        ValueError,
        LookupError,
    ) as error:
        raise UserError(f"{archive} is not a .pt2 archive: {error}", mend="compile it again") from None
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENAMETOOLONG):
            raise
        raise UserError(f"{archive} is not a .pt2 archive: {error}", mend="compile it again") from None
    return sorted(Path(path) for _, path in entries)


def _inside(archive: Path, info: zipfile.ZipInfo) -> PurePosixPath:
    name = info.orig_filename  # zipfile cuts its own `filename` at a NUL
    path = PurePosixPath(name)
    plain = not any(part in ("", ".", "..") for part in name.split("/"))
    if not plain or "\\" in name or "\0" in name or len(path.parts) < 2:
        raise UserError(f"{archive} holds the entry {name!r}, which leaves the package's folder")
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise UserError(f"{archive} holds the entry {info.filename!r}, which is not a plain file")
    return PurePosixPath(*path.parts[1:])
