"""A package is the same bytes wherever and whenever it is compiled, and tells nothing of the machine."""

from __future__ import annotations

import getpass
import zipfile
from pathlib import Path

import portable as portable_runs
import pytest
import torch

from aoti_pack.compiler.archive import sha256_of
from aoti_pack.manifest import Manifest
from aoti_pack.recipe import load_recipe

pytestmark = pytest.mark.slow


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}


def test_two_at_once_and_one_alone_give_the_same_bytes(portable, tmp_path) -> None:
    both = [
        portable_runs.start(tmp_path, "one", "--target-cpu", portable_runs.TARGET),
        portable_runs.start(tmp_path, "another", "--target-cpu", portable_runs.TARGET),
    ]
    wanted = digests(portable.folder)
    source = "source/aoti_recipe_tiny.py"
    assert set(wanted) == {"model.pt2", "manifest.json", "eager.pt", "sample.pt", "structure.pt", source}
    for run in both:
        assert digests(run.done()) == wanted
    # What was compiled left nothing in its temp folder but the link that it was given.
    for run in (portable, *both):
        assert [path.is_symlink() for path in run.temp.iterdir()] == [True]


def test_no_path_of_this_machine_is_in_it(portable) -> None:
    packages = Path(torch.__file__).parents[1]
    words = [portable.temp, Path.home(), packages, packages.resolve(), Path.cwd(), "aoti-pack-inductor-"]
    if len(getpass.getuser()) > 3:
        words.append(f"/{getpass.getuser()}")
    for file in ("model.pt2", "eager.pt", "structure.pt", "sample.pt"):
        data = (portable.folder / file).read_bytes()
        assert [str(word) for word in words if str(word).encode() in data] == []
    # The strings that stood there are: without them nothing was looked for.
    assert b"torch/include/torch/csrc/inductor/aoti_runtime" in (portable.folder / "model.pt2").read_bytes()


def test_it_ships_no_sources_and_no_debug_information(portable) -> None:
    with zipfile.ZipFile(portable.folder / "model.pt2") as archive:
        sizes = {Path(info.filename).suffix: info.file_size for info in archive.infolist()}
        library = archive.read("model/data/aotinductor/model/model.wrapper.so")
    assert sizes[".cpp"] == 0 and len(library) == sizes[".so"] > 50_000
    assert b".debug_" not in library and b".symtab" in library


def test_torchs_own_loader_runs_it(portable, recipes) -> None:
    x = torch.randn(5, 4)
    (found,) = torch._inductor.aoti_load_package(str(portable.folder / "model.pt2"))(x)
    recipe = load_recipe(f"{recipes / 'tiny.py'}:recipe", {})
    torch.testing.assert_close(found.double(), recipe.build().double()(x.double()), rtol=1e-5, atol=1e-5)
    assert Manifest.load(portable.folder).options["target_cpu"] == portable_runs.TARGET
