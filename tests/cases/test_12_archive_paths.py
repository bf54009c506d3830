"""Case 12: an archive with the entry ../../evil.so. Elsewhere it is written outside."""

from __future__ import annotations

import dataclasses
import shutil
import zipfile
from pathlib import Path

import pytest
from explicit_server import ExplicitServer, tree
from packages import cpp_package

from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.errors import UserError
from aoti_pack.manifest import FileSpec, Manifest, PackageSpec


def spoil(package: Path, folder: Path, name: str) -> Path:
    """A copy of `package` in `folder` with one more entry in its archive, and a manifest that agrees."""
    shutil.copytree(package, folder, dirs_exist_ok=True)
    archive = folder / "model.pt2"
    with zipfile.ZipFile(archive, "a") as out:
        out.writestr(name, b"evil")
    manifest = Manifest.load(folder)
    described = FileSpec("model.pt2", sha256_of(archive), archive.stat().st_size)
    files = tuple(described if file.path == "model.pt2" else file for file in manifest.files)
    package_spec = PackageSpec("model.pt2", described.sha256, manifest.package.model_name)
    dataclasses.replace(manifest, files=files, package=package_spec).save(folder)
    return archive


@pytest.mark.parametrize("name", ["../../evil.so", "/evil.so", "model/../../evil.so"])
def test_python_refuses_and_writes_nothing(tmp_path: Path, name: str) -> None:
    archive = spoil(cpp_package("arith"), tmp_path / "package", name)
    out = tmp_path / "deep" / "deeper" / "out"
    out.mkdir(parents=True)
    before = tree(tmp_path)
    with pytest.raises(UserError, match="leaves the package's folder") as caught:
        unpack(archive, out)
    assert repr(name) in str(caught.value)
    assert tree(tmp_path) == before
    assert list(out.iterdir()) == []


@pytest.mark.server
@pytest.mark.parametrize("name", ["../../evil.so", "/evil.so", "model/../../evil.so"])
def test_the_server_refuses_and_writes_nothing(explicit: ExplicitServer, name: str) -> None:
    folder = explicit.drop(cpp_package("arith"), "evil")
    assert explicit.load("evil") == ""
    explicit.unload("evil")
    spoil(cpp_package("arith"), folder, name)
    explicit.touch("evil")
    folders = (explicit.repo, explicit.store, explicit.temporary)
    before = tree(*folders)
    refusal = explicit.load("evil")
    assert f"model.pt2 holds the entry '{name}', which leaves the package's folder" in refusal
    assert tree(*folders) == before
    assert not Path("/evil.so").exists()
