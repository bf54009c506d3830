import pickle
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from packages import cpp_package
from torch import nn
from torch.export import Dim

from aoti_pack.compiler.build import compile_recipe
from aoti_pack.compiler.export import export
from aoti_pack.compiler.prove import make_reference
from aoti_pack.compiler.verify import verify
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, Symbol
from aoti_pack.progress import silent
from aoti_pack.recipe import load_recipe
from aoti_pack.sources.program import ProgramModel
from aoti_pack.structure import call


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, *, opt, scale=3):
        return self.layer(x) * scale + opt["k"][0], (x.sum(1),)


def saved(path: Path, dim=None, model=None) -> tuple[Path, nn.Module]:
    torch.manual_seed(0)
    model = model or Model().eval()
    dim = dim or Dim("rows", min=1, max=32)
    inputs = {"opt": {"k": (torch.randn(3, 2),)}}
    dynamic = {"x": {0: dim}, "opt": {"k": ({0: dim},)}}
    program = torch.export.export(model, (torch.randn(3, 4),), inputs, dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return path, model


def contract(path: Path, **settings):
    recipe = load_recipe(str(path), {f"--{key}": value for key, value in settings.items()})
    return recipe, export(recipe, torch.float32, "cpu")


def test_names_and_ranges_are_the_programs_own(tmp_path) -> None:
    path, model = saved(tmp_path / "my-model.pt2")
    recipe, exported = contract(path)
    assert recipe.name == "my_model"
    assert [(s.name, s.shape) for s in exported.inputs] == [("x", ("b", 4)), ("opt.k.0", ("b", 2))]
    assert [(s.name, s.shape) for s in exported.outputs] == [("output.0", ("b", 2)), ("output.1.0", ("b",))]
    assert exported.symbols == (Symbol("b", 1, 32),)
    reference = make_reference(recipe, exported, torch.float32, "cpu")
    drawn = recipe.draw(4, {"b": 7})
    exact = reference.float64(drawn)
    assert exact is not None and exact[0].dtype == torch.float64
    with torch.no_grad():
        wanted = model.double()(drawn["x"].double(), opt={"k": (drawn["opt"]["k"][0].double(),)})
    torch.testing.assert_close(exact[0], wanted[0])
    assert exported.model.program.state_dict["layer.weight"].dtype == torch.float32, (
        "the program itself stays"
    )


def test_names_and_ranges_that_are_asked_for(tmp_path) -> None:
    path, _ = saved(tmp_path / "m.pt2")
    recipe, exported = contract(path, dynamic=["opt.k.0:0=users[1..8]"], outputs=["scores", "sums"])
    assert [s.shape for s in exported.inputs] == [("users", 4), ("users", 2)]
    assert [s.name for s in exported.outputs] == ["scores", "sums"] and recipe.batch == "users"
    assert exported.symbols == (Symbol("users", 1, 8),)
    numpy.savez(tmp_path / "x.npz", **{"x": numpy.ones((5, 4), "f"), "opt.k.0": numpy.ones((5, 2), "f")})
    recipe, _ = contract(path, inputs=str(tmp_path / "x.npz"))
    assert recipe.inputs["x"].shape == (5, 4) and isinstance(recipe.inputs["opt"]["k"], tuple)


@pytest.mark.parametrize(
    ("dynamic", "words"),
    [
        ([], r"axis 0 of 'x' has no upper bound.*--dynamic 'x:0=b\[2\.\.1024\]'"),
        (["x:0=b[1..64]"], r"the range 1\.\.64, and .* was exported for 2\.\.any"),
        (["x:1=f"], "names x:1, which is fixed in .*dynamic there is x:0, opt.k.0:0"),
        (["x:0=b", "opt.k.0:0=c"], "one size two names, 'b' and 'c'"),
    ],
)
def test_an_open_range_must_be_bounded_within_the_programs(tmp_path, dynamic, words) -> None:
    path, _ = saved(tmp_path / "m.pt2", Dim.DYNAMIC)
    with pytest.raises(UserError, match=words):
        contract(path, dynamic=dynamic)
    _, exported = contract(path, dynamic=["x:0=b"])
    assert exported.symbols == (Symbol("b", 2, 1024),)


def test_other_pt2_files_are_told_apart(tmp_path) -> None:
    with pytest.raises(UserError, match="is an AOTInductor package, compiled already"):
        load_recipe(str(cpp_package("arith") / "model.pt2"), {})
    with pytest.raises(UserError, match="does not exist"):
        load_recipe(str(tmp_path / "nowhere.pt2"), {})
    (tmp_path / "text.pt2").write_text("text")
    with pytest.raises(UserError, match="is no archive"):
        load_recipe(str(tmp_path / "text.pt2"), {})
    with zipfile.ZipFile(tmp_path / "zip.pt2", "w") as archive:
        archive.writestr("a/b", "c")
    with pytest.raises(UserError, match="holds no exported program"):
        load_recipe(str(tmp_path / "zip.pt2"), {})
    with zipfile.ZipFile(tmp_path / "torn.pt2", "w") as archive:
        archive.writestr("torn/models/model.json", "{")
    with pytest.raises(UserError, match="cannot be loaded as an exported program"):
        load_recipe(str(tmp_path / "torn.pt2"), {})


def test_a_program_keeps_its_dtype(tmp_path) -> None:
    path, _ = saved(tmp_path / "m.pt2")
    with pytest.raises(UserError, match=r"is in torch\.float32, and torch\.bfloat16 was asked for"):
        export(load_recipe(str(path), {}), torch.bfloat16, "cpu")
    torch.export.save(
        torch.export.export(nn.Linear(4, 2).double(), (torch.randn(3, 4).double(),)), tmp_path / "d.pt2"
    )
    with pytest.raises(UserError, match="is in float64; a package is in float32 or in bfloat16"):
        load_recipe(str(tmp_path / "d.pt2"), {})
    with pytest.raises(UserError, match="takes no settings, got --set width"):
        load_recipe(str(path), {"width": 3})


def test_what_it_writes_into_is_refused(tmp_path) -> None:
    class Writes(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    program = torch.export.export(Writes(), (torch.randn(3, 4),))
    for name, one in (("plain", program), ("functional", program.run_decompositions({}))):
        torch.export.save(one, tmp_path / f"{name}.pt2")
        with pytest.raises(UserError, match="changes its input 'x' in place"):
            contract(tmp_path / f"{name}.pt2")


@pytest.mark.slow
def test_it_is_compiled_verified_and_pickled_for_the_twin(tmp_path) -> None:
    path, model = saved(tmp_path / "m.pt2")
    out = tmp_path / "out"
    compile_recipe(str(path), out, settings={"--outputs": ["scores", "sums"]}, progress=silent)
    manifest = Manifest.load(out)
    assert (manifest.batching.proved, manifest.batching.max, manifest.proof.skipped) == (True, 32, ())
    assert "layer.weight" in {constant.name for constant in manifest.constants}
    assert verify(out, seed=9, progress=silent).proof.seed == 9
    twin = torch.load(out / "eager.pt", weights_only=False)
    assert isinstance(twin, ProgramModel) and isinstance(pickle.loads(pickle.dumps(twin)), ProgramModel)
    inputs = {"x": torch.randn(6, 4), "opt": {"k": (torch.randn(6, 2),)}}
    with torch.no_grad():
        torch.testing.assert_close(call(twin, inputs)[0], call(model, inputs)[0])
