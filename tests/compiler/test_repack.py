from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from aoti_pack.compiler.repack import repack
from aoti_pack.compiler.stable_pickle import save

INSIDE = "model/data/aotinductor/model"


def raw_package(build: Path, *, backwards: bool = False) -> Path:
    """What inductor could have written in the folder `build`."""
    cubin = f"{build}/c1/kernel.cubin"
    files = {
        f"{INSIDE}/model.wrapper.so": b"\x7fELF\0" + cubin.encode() + b"\0" + b"w" * 5000,
        f"{INSIDE}/model.wrapper.cpp": f'// g++ {build}/x.cpp -I/root\nauto path = "{cubin}";\n// kept\n'.encode(),
        f"{INSIDE}/model.wrapper_metadata.json": b'{"b": "1", "a": "2"}',
        f"{INSIDE}/empty": b"",
        "model/byteorder": b"little",
        "model/.data/version": b"6\n",
        "model/.data/serialization_id": b"1",
    }
    raw = build / "raw.pt2"
    with zipfile.ZipFile(raw, "w") as archive:
        for name in sorted(files, reverse=backwards):
            archive.writestr(name, files[name])
    return raw


def entries(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as archive:
        return {info.filename.removeprefix("model/"): archive.read(info) for info in archive.infolist()}


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path, Path]:
    out, one, other = tmp_path / "out", tmp_path / "build-1", tmp_path / "build-2"
    for folder in (out, one, other):
        folder.mkdir()
    return out, one, other


@pytest.mark.parametrize("keep_sources", [False, True])
def test_the_order_and_the_folder_of_the_build_do_not_show(folders, keep_sources) -> None:
    out, one, other = folders
    packages = []
    for build in (one, other):
        (out / build.name).mkdir()
        package = out / build.name / "model.pt2"
        repack(raw_package(build, backwards=build == other), package, build=build, keep_sources=keep_sources)
        packages.append(package.read_bytes())
        assert list(package.parent.iterdir()) == [package]
    assert packages[0] == packages[1]
    assert str(one).encode() not in packages[0]


def test_what_is_in_it(folders) -> None:
    out, build, _ = folders
    repack(raw_package(build), out / "model.pt2", build=build, keep_sources=False)
    found = entries(out / "model.pt2")
    inside = INSIDE.removeprefix("model/")
    slashes = "/" * len(str(build))
    assert found[f"{inside}/model.wrapper.so"] == (
        b"\x7fELF\0" + f"{slashes}/c1/kernel.cubin".encode() + b"\0" + b"w" * 5000
    )
    assert found[f"{inside}/model.wrapper.cpp"] == b"" and found[f"{inside}/empty"] == b""
    assert json.loads(found[f"{inside}/model.wrapper_metadata.json"]) == {"a": "2", "b": "1"}
    assert found["byteorder"] == b"little" and found[".data/version"] == b"6\n"
    own = [name for name in found if not name.startswith(".data/")]
    assert own == sorted(own) and len(own) == 5


def test_kept_sources_tell_nothing_of_the_machine(folders) -> None:
    out, build, _ = folders
    repack(raw_package(build), out / "model.pt2", build=build, keep_sources=True)
    text = entries(out / "model.pt2")[f"{INSIDE.removeprefix('model/')}/model.wrapper.cpp"]
    assert text == b'auto path = "c1/kernel.cubin";\n// kept\n'


def test_entries_are_stored_without_times_and_lie_at_multiples_of_64(folders) -> None:
    out, build, _ = folders
    package = out / "model.pt2"
    repack(raw_package(build), package, build=build, keep_sources=False)
    data = package.read_bytes()
    with zipfile.ZipFile(package) as archive:
        infos = archive.infolist()
    assert len(infos) == 7
    for info in infos:
        assert info.compress_type == zipfile.ZIP_STORED and info.date_time[0] == 1980
        name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
        assert (info.header_offset + 30 + name + extra) % 64 == 0, info.filename


def test_sets_are_saved_in_one_order(tmp_path) -> None:
    code = (
        "import sys; from pathlib import Path; from aoti_pack.compiler.stable_pickle import save; import torch;"
        "names = {f'name{i}' for i in range(20)};"
        "save({'a': names, 'b': frozenset(names), 'c': torch.arange(3)}, Path(sys.argv[1])); print(list(names))"
    )
    orders, saved = set(), set()
    for seed in ("1", "2"):
        file = tmp_path / "content.pt"
        done = subprocess.run(
            [sys.executable, "-c", code, file],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        orders.add(done.stdout)
        saved.add(file.read_bytes())
    assert len(orders) == 2, "the two runs order their sets alike, and so compare nothing"
    assert len(saved) == 1
    names = {f"name{i}" for i in range(20)}
    found = torch.load(file, weights_only=False)
    assert found["a"] == names and found["b"] == frozenset(names) and found["c"].tolist() == [0, 1, 2]


def test_modules_are_saved_as_torch_saves_them(tmp_path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    save(module, tmp_path / "module.pt")
    found = torch.load(tmp_path / "module.pt", weights_only=False)
    x = torch.randn(4, 3)
    assert torch.equal(found(x), module(x)) and not found.training
