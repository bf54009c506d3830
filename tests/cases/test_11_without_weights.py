"""A package that came without its weights crashes at its first run elsewhere: it is refused at load."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from packages import CPP_RECIPES, cpp_package

from aoti_pack.compiler import lower as lowering
from aoti_pack.compiler.archive import unpack
from aoti_pack.compiler.build import describe_file
from aoti_pack.compiler.export import export
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME, Manifest, PackageSpec
from aoti_pack.package_files import EAGER_FILE, PACKAGE_FILE
from aoti_pack.recipe import load_recipe
from aoti_pack.repository.layout import write_model
from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import ServerFailed, TritonServer


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tower, its package compiled by other settings than ours."""
    folder = tmp_path_factory.mktemp("empty") / "tower"
    shutil.copytree(cpp_package("tower"), folder)
    recipe = load_recipe(f"{CPP_RECIPES}:tower", {})
    model = torch.load(folder / EAGER_FILE, weights_only=False)
    exported = export(dataclasses.replace(recipe, model=model), torch.float32, "cpu")
    ours = lowering.inductor_configs
    with pytest.MonkeyPatch.context() as patch:
        without = {"aot_inductor.package_constants_in_so": False}
        patch.setattr(lowering, "inductor_configs", lambda options: ours(options) | without)
        lowering.lower(exported, folder / PACKAGE_FILE, CompileOptions(updatable=True))
    manifest = Manifest.load(folder)
    files = tuple(
        describe_file(folder, p) for p in sorted(folder.rglob("*")) if p.is_file() and p.name != FILE_NAME
    )
    digest = next(file.sha256 for file in files if file.path == PACKAGE_FILE)
    dataclasses.replace(manifest, files=files, package=PackageSpec(PACKAGE_FILE, digest)).save(folder)
    return folder


@pytest.mark.slow
def test_python_refuses_it(empty: Path, tmp_path: Path) -> None:
    unpack(empty / PACKAGE_FILE, tmp_path)
    with pytest.raises(UserError, match="compiled without its weights"):
        CompiledModel(tmp_path, "cpu")


@pytest.mark.slow
def test_python_loads_one_with_weights(tmp_path: Path) -> None:
    unpack(cpp_package("tower") / PACKAGE_FILE, tmp_path)
    assert "mix.weight" in CompiledModel(tmp_path, "cpu").constant_names()


@pytest.mark.server
def test_the_server_refuses_it(empty: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    write_model(empty, repo)
    binary = find_server()
    server = TritonServer(repo, binary=binary, backends=backends_directory(binary, build_backend()))
    with pytest.raises(ServerFailed) as caught, server:
        pass
    assert "the package came without its constant" in str(caught.value)
