import stat
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_pack.compiler import archive
from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.errors import UserError


def make(path: Path, *entries: tuple[str, bytes] | tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        for name, data in entries:
            out.writestr(name, data)
    return path


def test_unpacks_without_the_top_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    made = make(tmp_path / "m.pt2", ("m/data/a.so", b"code"), ("m/version", b"1"), ("m/empty/", b""))
    assert unpack(made, tmp_path / "out") == [Path("data/a.so"), Path("version")]
    assert (tmp_path / "out" / "data" / "a.so").read_bytes() == b"code"
    assert sha256_of(tmp_path / "out" / "version") == (
        "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    )


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("m/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("../../evil.so", "leaves"),
        ("m/../../evil.so", "leaves"),
        ("/etc/evil.so", "leaves"),
        ("m\\..\\evil.so", "leaves"),
        ("evil.so", "leaves"),
        (link(), "not a plain file"),
        ("m/good", "twice"),
        ("other/good", "top folders 'm' and 'other'"),
        ("m//good", "leaves"),
        ("m/./good", "leaves"),
        ("m/good/inner", "both as a file and as a folder"),
    ],
)
def test_refused_by_name_and_nothing_written(tmp_path: Path, entry, words: str) -> None:
    out = tmp_path / "folder" / "out"
    out.mkdir(parents=True)
    made = make(tmp_path / "m.pt2", ("m/good", b"1"), (entry, b"2"))
    with pytest.raises(UserError, match=words) as caught:
        unpack(made, out)
    assert "m.pt2" in str(caught.value)
    assert list(out.iterdir()) == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "m.pt2", "out"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text("ab./\\", max_size=9), st.binary(max_size=9)), min_size=1, max_size=4))
def test_all_of_it_inside_or_nothing(entries: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        try:
            made = make(Path(folder, "m.pt2"), *((f"m/{name}", data) for name, data in entries))
            files = unpack(made, out)
        except UserError:
            files = []
        found = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
        assert found == set(files)
        assert {path.name for path in Path(folder).iterdir()} == {"m.pt2", "out"}
        for name, data in entries if files else []:
            if not name.endswith("/") and name:
                assert (out / name).read_bytes() == data


def test_a_nul_does_not_cut_a_name(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    made = make(tmp_path / "m.pt2", ("m/a#.so", b"1"))  # zipfile itself writes no NUL
    made.write_bytes(made.read_bytes().replace(b"#", b"\0"))
    with pytest.raises(UserError, match=r"the entry 'm/a\\x00.so', which leaves"):
        unpack(made, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("bound", "value"), [("MAX_BYTES", 3), ("MAX_ENTRIES", 1)])
def test_too_large_is_refused(tmp_path: Path, monkeypatch, bound: str, value: int) -> None:
    monkeypatch.setattr(archive, bound, value)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="2 files, more than a package can have"):
        unpack(make(tmp_path / "m.pt2", ("m/a", b"12"), ("m/b", b"34")), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"not a zip")
    with pytest.raises(UserError, match=r"not a \.pt2 archive"):
        unpack(tmp_path / "m.pt2", tmp_path)
    with pytest.raises(UserError, match="missing"):
        unpack(tmp_path / "no.pt2", tmp_path)
    whole = make(tmp_path / "w.pt2", ("m/a", b"12345678" * 100)).read_bytes()
    (tmp_path / "w.pt2").write_bytes(whole.replace(b"12345678", b"12345679", 1))
    with pytest.raises(UserError, match=r"not a \.pt2 archive"):
        unpack(tmp_path / "w.pt2", tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"m/aaaa", b"m/a\xff\xffa"),  # a name that says it is UTF-8
        (b"PK\x05\x06" + bytes(4), b"PK\x05\x06" + bytes(3) + b"\1"),
    ],
)
def test_damage_of_any_kind_is_a_user_error(tmp_path: Path, old: bytes, new: bytes) -> None:
    name = zipfile.ZipInfo("m/aaaa")
    whole = bytearray(make(tmp_path / "m.pt2", (name, b"1")).read_bytes())
    directory = whole.rindex(b"PK\x01\x02")
    whole[directory + 9] |= 0x08  # the flag for UTF-8
    (tmp_path / "m.pt2").write_bytes(bytes(whole).replace(old, new))
    if new.startswith(b"PK"):
        # A directory that claims to be longer than the file before it.
        content = bytearray((tmp_path / "m.pt2").read_bytes())
        content[-10:-6] = (2**31).to_bytes(4, "little")
        (tmp_path / "m.pt2").write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"not a \.pt2 archive"):
        unpack(tmp_path / "m.pt2", tmp_path / "out")
