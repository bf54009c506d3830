"""A damaged or hostile `.pt2`: C++ and Python unpack the same files or both refuse, and nothing lands elsewhere."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import pytest
from driver import Driver
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.compiler.archive import unpack
from aoti_pack.errors import UserError

pytestmark = pytest.mark.fuzz

# The C++ side reads what torch writes and no more, so it alone refuses these.
_STRICTER = (
    "two different sizes",
    "compressed",
    "overlap",
    "directory",
    "end record",
    "one part of several",
    "lies",
    "header",
    "zip64",
)


def real() -> bytes:
    """An archive as torch writes it: stored entries, padded to begin at multiples of 64 bytes."""
    import torch

    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    for name, size in (
        ("data/model/a.so", 200),
        ("data/model/a.cpp", 3),
        ("data/weights/w", 70),
        ("empty", 0),
    ):
        writer.write_record(name, bytes(7 * i % 251 for i in range(size)), size)
    writer.write_end_of_file()
    return buffer.getvalue()


REAL = real()
# What zipfile alone looks at: marks of features that no byte of a stored entry depends on, and the directory where
# it must lie when the records after it have no gaps.
_ZIPFILE_ALONE = (
    "Bad magic number for central directory",
    "strong encryption",
    "zip file version",
    "span multiple disks",
)
NAMES = [
    *(
        "../evil",
        "m/../../evil",
        "/evil",
        "m\\..\\evil",
        "evil",
        "",
        "m",
        "m/",
        "m//x",
        "m/./x",
        "./m/x",
        "m/..",
        "..",
    ),
    *(
        "m/a\0b",
        "m/a",
        "m/a/b",
        "other/a",
        "m/größe",
        "m/" + "a" * 300,
        "m/" + "a/" * 200 + "x",
        "C:/x",
        "m/\x01",
        "m/ ",
    ),
]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def agree(driver: Driver, content: bytes) -> bool:
    """Unpack on both sides and compare; whether they took it."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        archive = root / "m.pt2"
        archive.write_bytes(content)
        # Deep enough that what climbs out of the folder is still seen.
        native, own = root / "1" / "2" / "3" / "native", root / "1" / "2" / "3" / "own"
        for folder in (native, own):
            folder.mkdir(parents=True)
        told = driver.ask("zip", str(archive), str(native))
        refused = None
        try:
            listed = unpack(archive, own)
        except UserError as error:
            refused = str(error)
        elsewhere = [p for p in root.rglob("*") if p.is_file() and not {native, own} & set(p.parents)]
        assert elsewhere == [archive]
        assert not any(p.is_symlink() for p in root.rglob("*"))
        if told["ok"]:
            if refused is not None:
                assert any(word in refused for word in _ZIPFILE_ALONE), (
                    f"C++ takes what Python refuses: {refused}"
                )
                return True
            assert sorted(told["paths"]) == sorted(map(str, listed))
            assert files(native) == files(own)
        elif refused is None:
            assert any(word in told["message"] for word in _STRICTER), told["message"]
        return bool(told["ok"])


def test_the_real_one_is_taken(driver: Driver) -> None:
    assert agree(driver, REAL)


@given(st.data())
def test_damaged(driver: Driver, data: st.DataObject) -> None:
    content = bytearray(REAL)
    # Most of what is read stands at the end.
    places = st.integers(0, len(REAL) - 1) | st.integers(1, 500).map(lambda back: max(0, len(REAL) - back))
    for _ in range(data.draw(st.integers(1, 3))):
        at = min(data.draw(places), len(content))
        match data.draw(
            st.sampled_from(["flip", "flip", "set", "number", "cut", "insert", "remove", "repeat"])
        ):
            case "flip" if at < len(content):
                content[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                content[at : at + 1] = bytes(
                    [data.draw(st.sampled_from([0, 1, 0x2F, 0x2E, 0x7F, 0x80, 0xFF]))]
                )
            case "number":
                number = data.draw(st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 2, 2**32 - 1]))
                content[at : at + 4] = number.to_bytes(4, "little")
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = data.draw(st.binary(min_size=1, max_size=30))
            case "remove":
                del content[at : at + data.draw(st.integers(1, 60))]
            case "repeat":
                content[at:at] = content[at : at + data.draw(st.integers(1, 200))]
    agree(driver, bytes(content))


@given(
    st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=6), st.binary(max_size=9)), max_size=4),
    st.data(),
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_evil_names(driver: Driver, entries: list[tuple[str, bytes]], data: st.DataObject) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        for name, content in entries:
            info = zipfile.ZipInfo("m/x")
            info.filename = name  # its constructor would cut a name at a NUL
            info.external_attr = data.draw(
                st.sampled_from([0o600 << 16, 0, 0o120777 << 16, 0o040755 << 16, 0x10])
            )
            info.compress_type = data.draw(st.sampled_from([0, 0, 0, 8]))
            out.writestr(info, content)
    agree(driver, buffer.getvalue())


@given(st.data())
def test_spliced(driver: Driver, data: st.DataObject) -> None:
    """Pieces of two archives, one after the other."""
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as out:
        out.writestr("archive/more", b"more")
    first, second = data.draw(st.permutations([REAL, other.getvalue()]))
    cut = data.draw(st.integers(0, len(first)))
    agree(driver, first[:cut] + second[data.draw(st.integers(0, 40)) :])
