import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import manifests
import pytest
import torch
from packages import cpp_package

import aoti_pack
from aoti_pack.compiler import check_inputs, loaded
from aoti_pack.errors import CheckError, UserError
from aoti_pack.manifest import Manifest, TensorSpec
from aoti_pack.repository.layout import write_model


@pytest.fixture(scope="module")
def rows(compiled_package):
    return aoti_pack.load(compiled_package("rows"))


def inputs(b=3, n=5) -> dict:
    generator = torch.Generator().manual_seed(b)
    return {
        "options": {"bias": torch.randn(b, generator=generator)},
        "x": torch.randn(b, 4, generator=generator),
        "ids": torch.arange(b * n).reshape(b, n),
        "scale": 2,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": None}, "'ids' of rows is a NoneType, expected a dense tensor: int64 \\[b, n\\]"),
        (
            {"x": torch.randn(3, 4).double()},
            r"'x' of rows has dtype float64, expected float32; pass it as \.to",
        ),
        ({"ids": torch.ones(3, 5)}, "'ids' of rows has dtype float32, expected int64"),
        ({"x": torch.randn(3, 5)}, r"'x' of rows has size 5 on axis 1, expected 4: float32 \[b, 4\]"),
        ({"x": torch.randn(12)}, r"'x' of rows has rank 1 \[12\], expected float32 \[b, 4\]"),
        ({"x": torch.randn(17, 4)}, r"'x' of rows has size 17 on axis 0, expected b = 1\.\.16"),
        ({"x": torch.randn(0, 4)}, r"size 0 on axis 0, expected b = 1\.\.16"),
        ({"x": torch.randn(2, 4)}, r"'\w+[.\w]*' of rows has b = \d on axis 0, and '[.\w]+' has b = \d"),
        ({"x": torch.randn(3, 4).to_sparse()}, "sparse"),
        ({"x": torch.empty(3, 4, device="meta")}, "'x' of rows lies on meta, expected cpu"),
        ({"y": torch.ones(1)}, "rows has no input 'y'; its inputs are .*scale"),
        ({"options": {"bias": torch.ones(3), "k": torch.ones(3)}}, "rows has no input 'options.k'"),
        ({"options.bias": torch.ones(3)}, "the input 'options.bias' is given twice"),
        ({"scale": 3}, "'scale' of rows is compiled in as 2, got 3"),
    ],
)
def test_a_wrong_input_is_refused_by_name(rows, change, words) -> None:
    with pytest.raises(UserError, match=words):
        rows(**(inputs() | change))


def test_a_missing_input_is_named(rows) -> None:
    given = inputs()
    del given["options"]
    with pytest.raises(UserError, match=r"'options.bias' of rows is missing: float32 \[b\]"):
        rows(**given)


def test_optional_inputs_are_filled(rows, monkeypatch) -> None:
    specs = tuple(replace(s, default=0.5) if s.name == "options.bias" else s for s in rows.manifest.inputs)
    monkeypatch.setattr(rows, "manifest", replace(rows.manifest, inputs=specs))
    given = inputs(b=6)
    wanted = rows(**given | {"options": {"bias": torch.full((6,), 0.5)}})
    del given["options"]
    found = rows(**given)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    alone = replace(rows.manifest, inputs=(TensorSpec("m", "bool", "BOOL", ("b",), default=True),), baked=())
    with pytest.raises(UserError, match="'m' is left out and no other input tells its size 'b'"):
        check_inputs.flatten_inputs(alone, {}, torch.device("cpu"))


def test_strides_follow_the_manifests_order() -> None:
    spec = TensorSpec("x", "float32", "FP32", (2, 3, 4), dim_order=(2, 0, 1))
    x = torch.randn(2, 3, 4)
    laid = check_inputs._dense(spec, x)
    assert torch.equal(laid, x) and laid.stride() == (3, 1, 6)


def test_a_run_that_throws_strands_nobody() -> None:
    package = aoti_pack.load(cpp_package("lookup"))
    good = {"ids": torch.tensor([[3, 5]]), "lengths": torch.tensor([2])}
    bad = {"ids": torch.tensor([[3, 500]]), "lengths": torch.tensor([2])}

    def one(number: int) -> float | None:
        try:
            return package(**(bad if number % 2 else good))["scores"].sum().item()
        except RuntimeError:
            return None

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(64)))
    expected = float(sum(range(24, 32)) + sum(range(40, 48)))
    assert found == [None if number % 2 else expected for number in range(64)]


def test_eight_threads_load_at_once(compiled_package) -> None:
    """The Python half of case 2."""
    folders = [cpp_package(name) for name in ("arith", "lookup")] + [compiled_package("rows")]

    def one(number: int) -> str:
        package = aoti_pack.load(folders[number % 3], runners=2)
        if package.manifest.name == "arith":
            x = torch.full((2, 16), float(number))
            assert torch.allclose(package(x=x, y=x)["out"], torch.sin(x) * 2 + x, atol=1e-5)
        return package.manifest.name

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(one, range(32)))
    assert names == [("arith", "lookup", "rows")[number % 3] for number in range(32)]
    digests = {Manifest.load(folder).package.sha256 for folder in folders}
    assert digests <= set(loaded._UNPACKED)


def test_a_version_folder_of_a_repository_is_loaded_where_it_lies(compiled_package, rows, tmp_path) -> None:
    write_model(compiled_package("rows"), tmp_path / "repo")
    served = aoti_pack.load(str(tmp_path / "repo" / "rows" / "1" / "manifest.json"))
    found, wanted = served(**inputs()), rows(**inputs())
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    write_model(compiled_package("rows"), tmp_path / "repo", backend="python")
    with pytest.raises(UserError, match="it is the twin for Triton's Python backend"):
        aoti_pack.load(tmp_path / "repo" / "rows_python" / "1")


def test_what_cannot_be_loaded_is_told(compiled_package, tmp_path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(compiled_package("rows"), folder)
    with pytest.raises(UserError, match="was compiled for cpu, and 'cuda' was asked for"):
        aoti_pack.load(folder, device="cuda")
    with pytest.raises(UserError, match="runners is 0"):
        aoti_pack.load(folder, runners=0)
    with (folder / "model.pt2").open("r+b") as file:
        file.seek(200)
        file.write(b"\0\1\2\3")
    with pytest.raises(CheckError, match=r"model\.pt2 is not the file that manifest\.json describes"):
        aoti_pack.load(folder)
    with pytest.raises(UserError, match=r"manifest\.json does not exist"):
        aoti_pack.load(tmp_path / "nowhere")


def test_importing_aoti_pack_imports_no_torch() -> None:
    code = "import sys, aoti_pack; assert callable(aoti_pack.load); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


class Fake:
    """Stands for a compiled package: gives views of its inputs, and counts who is inside."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.lock = threading.Lock()
        self.full = threading.Event()

    def run(self, flat):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside == 2:
                self.full.set()
        assert self.full.wait(60)
        with self.lock:
            self.inside -= 1
        if float(flat[0][0, 0]) < 0:
            raise RuntimeError("thrown")
        return [flat[0][1:], flat[0][1:]]


def fake() -> tuple[loaded.LoadedPackage, Fake]:
    made = manifests.manifest(
        inputs=(TensorSpec("x", "float32", "FP32", ("b", 4)),),
        outputs=(TensorSpec("y", "float32", "FP32", ("b", 4)), TensorSpec("z", "float32", "FP32", ("b", 4))),
        baked=(),
    )
    inner = Fake()
    return loaded.LoadedPackage(made, inner, torch.device("cpu"), 2), inner


def test_a_view_of_an_input_is_copied() -> None:
    package, inner = fake()
    inner.full.set()
    x = torch.arange(12.0).reshape(3, 4)
    found = package(x=x)
    found["y"].zero_()
    assert x.tolist() == torch.arange(12.0).reshape(3, 4).tolist() and found["z"].tolist() == x[1:].tolist()


def test_as_many_run_as_there_are_runners_and_one_that_throws_gives_its_place_back() -> None:
    package, inner = fake()

    def one(number: int) -> bool:
        try:
            package(x=torch.full((2, 4), -1.0 if number % 3 else 1.0))
        except RuntimeError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(48)))
    assert found == [number % 3 == 0 for number in range(48)]
    assert inner.most == 2 and inner.inside == 0
