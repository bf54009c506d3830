import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from aoti_pack.compiler import build
from aoti_pack.compiler.archive import sha256_of, unpack
from aoti_pack.compiler.build import check_output_folder, compile_recipe
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.verify import verify
from aoti_pack.errors import CheckError, ProofError, UserError
from aoti_pack.manifest import BakedScalar, Batching, ConstantSpec, Manifest, Symbol, TensorSpec
from aoti_pack.progress import silent
from aoti_pack.recipe import load_recipe

pytestmark = pytest.mark.slow


def run(folder: Path, tmp_path: Path, inputs: dict) -> list[torch.Tensor]:
    manifest = Manifest.load(folder)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    unpack(folder / manifest.package.path, unpacked)
    return CompiledModel(unpacked, "cpu").run([inputs[spec.name] for spec in manifest.inputs])


def test_the_contract_and_the_answers_of_a_package(compiled_package, recipes, tmp_path) -> None:
    folder = compiled_package("rows")
    found = Manifest.load(folder)
    assert {spec.name: (spec.dtype, spec.shape) for spec in found.inputs} == {
        "options.bias": ("float32", ("b",)),
        "x": ("float32", ("b", 4)),
        "ids": ("int64", ("b", "n")),
    }
    assert found.outputs == (
        TensorSpec("scores", "float32", "FP32", ("b", 3)),
        TensorSpec("pairs", "int64", "INT64", ("b", "2*n")),
        TensorSpec("sums", "float32", "FP32", ("b",)),
        TensorSpec("flags", "bool", "BOOL", ("b",)),
    )
    assert set(found.symbols) == {Symbol("b", 1, 16), Symbol("n", 1, 6)}
    assert found.baked == (BakedScalar("scale", 2),)
    assert found.batching == Batching(True, "b", 16) and found.wire == "rows"
    assert set(found.constants) >= {ConstantSpec("layer.weight", "float32", (3, 4))}
    own = {"model.pt2", "eager.pt", "structure.pt", "sample.pt", "source/aoti_recipe_rows.py"}
    assert {file.path for file in found.files} == own
    assert all(sha256_of(folder / file.path) == file.sha256 for file in found.files)
    assert {output.name for case in found.proof.cases for output in case.outputs} == {
        "scores",
        "pairs",
        "sums",
        "flags",
    }
    # Against the formula in float64, not only against what the proof says of itself.
    model = load_recipe(f"{recipes / 'rows.py'}:recipe", {}).build()
    x, bias, ids = torch.randn(7, 4), torch.randn(7), torch.randint(0, 9, (7, 2))
    scores, pairs, sums, flags = run(folder, tmp_path, {"x": x, "options.bias": bias, "ids": ids})
    weight, offset = model.layer.weight.detach().double(), model.layer.bias.detach().double()
    wanted = ((x.double() + torch.arange(4.0).double()) @ weight.t() + offset) * 2 + bias.double()[:, None]
    torch.testing.assert_close(scores.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums.double(), x.double().sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(pairs, torch.cat([ids, ids + 1], 1))
    assert torch.equal(flags, ids[:, 0] > 3)


def test_bfloat16(compiled_package, tmp_path) -> None:
    folder = compiled_package("rows", dtype="bfloat16")
    found = Manifest.load(folder)
    assert (found.dtype, found.proof.rtol) == ("bfloat16", 3e-2)
    assert {spec.datatype for spec in found.inputs} == {"BF16", "INT64"}
    worst = [o for case in found.proof.cases for o in case.outputs if o.name == "scores"]
    assert all(1e-4 < o.eager_float64 < 0.5 for o in worst), "bfloat16 is told from float64"
    x = torch.randn(4, 4).bfloat16()
    inputs = {"x": x, "options.bias": torch.zeros(4).bfloat16(), "ids": torch.ones(4, 1).long()}
    sums = run(folder, tmp_path, inputs)[2]
    torch.testing.assert_close(sums.double(), x.double().sum(1), rtol=2e-2, atol=2e-2)


def test_leaky_is_packaged_and_not_batched(compiled_package) -> None:
    found = Manifest.load(compiled_package("leaky"))
    assert not found.batching.proved and found.wire == "single"
    assert found.batching.reason.startswith("rows see each other: output 'y'")


def test_an_unpicklable_model_compiles_without_its_eager_self(compiled_package, tmp_path) -> None:
    folder = compiled_package("unpicklable")
    found = Manifest.load(folder)
    assert {file.path for file in found.files} == {"model.pt2", "sample.pt"}
    assert not (folder / "eager.pt").exists()
    assert found.outputs[0].shape == () and found.batching.reason == "the recipe names no batch symbol"
    (total,) = run(folder, tmp_path, {"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    assert total.shape == () and total.item() == 30.0
    assert verify(folder, seed=4, progress=silent).proof.seed == 4


@pytest.fixture
def other_model(compiled_package, monkeypatch):
    """Lowering gives another model than the recipe's: the weights of another seed of it."""
    other = compiled_package("leaky") / "model.pt2"
    monkeypatch.setattr(build, "lower", lambda exported, package, device: shutil.copyfile(other, package))


def test_nothing_is_written_when_the_proof_fails(other_model, recipes, tmp_path) -> None:
    file = tmp_path / "same_shape.py"
    file.write_text((recipes / "leaky.py").read_text().replace("x - x.mean(0)", "x - x.mean(1, True)"))
    out = tmp_path / "out" / "model"
    with pytest.raises(ProofError, match="output 'y' at b=3"):
        compile_recipe(f"{file}:recipe", out, progress=silent)
    assert list(out.parent.iterdir()) == []
    out.mkdir()
    (out / "manifest.json").write_text("old")
    with pytest.raises(ProofError):
        compile_recipe(f"{file}:recipe", out, progress=silent)
    assert (out / "manifest.json").read_text() == "old" and list(out.parent.iterdir()) == [out]


def test_the_output_folder_is_refused_when_it_is_anothers(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine").mkdir()
    check_output_folder(tmp_path / "mine")
    (tmp_path / "mine" / "thesis.tex").write_text("1")
    with pytest.raises(UserError, match=r"holds no manifest\.json"):
        check_output_folder(tmp_path / "mine")
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds 'thesis\.tex', which is no part of a package"):
        check_output_folder(tmp_path / "mine")
    with pytest.raises(UserError, match="is a file"):
        check_output_folder(tmp_path / "mine" / "thesis.tex")
    (tmp_path / "mine" / "thesis.tex").unlink()
    check_output_folder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    for here in (Path(), Path(".."), tmp_path):
        with pytest.raises(UserError, match="current folder or one above"):
            check_output_folder(here)


def test_a_setting_that_no_manifest_holds_is_refused_before_compiling(recipes, tmp_path) -> None:
    with pytest.raises(UserError, match="bias=inf"):
        compile_recipe(
            f"{recipes / 'rows.py'}:recipe", tmp_path / "o", settings={"bias": float("inf")}, progress=silent
        )


@pytest.fixture
def copied(compiled_package, tmp_path) -> Path:
    return Path(shutil.copytree(compiled_package("rows"), tmp_path / "copy"))


def test_verify_repeats_the_proof_with_fresh_inputs(copied) -> None:
    before = Manifest.load(copied)
    one, two = (verify(copied, seed=seed, progress=silent) for seed in (11, 12))
    assert (one.proof.seed, two.proof.seed) == (11, 12)
    assert one.proof.cases != two.proof.cases
    assert [case.sizes for case in one.proof.cases] == [case.sizes for case in before.proof.cases]
    assert Manifest.load(copied) == before, "verify writes nothing"


@pytest.mark.parametrize("file", ["model.pt2", "eager.pt", "sample.pt", "source/aoti_recipe_rows.py"])
def test_verify_refuses_a_changed_file_by_its_digest(copied, file) -> None:
    data = bytearray((copied / file).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / file).write_bytes(data)
    with pytest.raises(CheckError, match=f"{file} is not the file that manifest.json describes"):
        verify(copied, seed=1, progress=silent)
    (copied / file).unlink()
    with pytest.raises(CheckError, match=f"{file} is missing"):
        verify(copied, seed=1, progress=silent)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max=16", "max=17", "symbols had .*max=16.*max=17"),
        ('"pairs"', '"couples"', "outputs had .*'pairs'.*'couples'"),
        ('"scale": 2', '"scale": 3', "baked had .*value=2.*value=3"),
    ],
)
def test_verify_names_what_changed_in_the_recipe(copied, recipes, tmp_path, old, new, words) -> None:
    text = (recipes / "rows.py").read_text()
    assert old in text
    (tmp_path / "rows.py").write_text(text.replace(old, new))
    manifest = Manifest.load(copied)
    source = dataclasses.replace(manifest.recipe, source=f"{tmp_path / 'rows.py'}:recipe")
    dataclasses.replace(manifest, recipe=source).save(copied)
    with pytest.raises(UserError, match=f"the recipe changed since this was compiled: {words}"):
        verify(copied, seed=1, progress=silent)
