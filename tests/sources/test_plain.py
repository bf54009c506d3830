import io
import pickle
import sys
from pathlib import Path

import numpy
import pytest
import torch
from click.testing import CliRunner

from aoti_pack.cli import main
from aoti_pack.compiler.export import export
from aoti_pack.compiler.verify import verify
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import silent
from aoti_pack.recipe import attribute_of, load_recipe
from aoti_pack.sources.example import read_npz
from aoti_pack.sources.neighbours import own_modules, source_files
from aoti_pack.structure import call

PLAIN = """
import torch
from torch import nn
from plain_parts import twice
def score(x, w=None, /, *rest, user):
    return {"s": (twice(x) + user["age"]).sum(-1) + sum(r.sum(-1) for r in rest), "x": x}
def inputs():
    x = torch.randn(3, 4)
    return {"x": x, "user": {"age": x + 1}, "rest": (x + 2,)}
def two(x, y):
    return x + 2 * y
def pair():
    return torch.ones(3, 4), torch.randn(3, 4)
def three():
    return (*pair(), torch.ones(1))
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(4, width)
    def forward(self, x):
        return self.layer(x)
def build(width=2):
    return Net(width)
net = Net()
number = 3
def wrong():
    return 4
"""


@pytest.fixture
def plain(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.delitem(sys.modules, "plain_parts", raising=False)
    (tmp_path / "plain_parts.py").write_text("def twice(x):\n    return x * 2\n")
    (tmp_path / "plain.py").write_text(PLAIN)
    numpy.savez(tmp_path / "x.npz", x=numpy.ones((3, 4), "f"))
    return tmp_path / "plain.py"


def asked(plain: Path, inputs: str = "x.npz", *dynamic: str, **settings) -> dict:
    return {"--inputs": f"{plain.parent / inputs}", "--dynamic": list(dynamic)} | settings


def test_a_function_is_exported_as_it_is_called(plain) -> None:
    dynamic = ("x:0=b[1..9]", "user.age:0=b", "rest.0:0=b")
    recipe = load_recipe(f"{plain}:score", asked(plain, "plain.py:inputs", *dynamic))
    exported = export(recipe, torch.float32, "cpu")
    assert [(spec.name, spec.shape) for spec in exported.inputs] == [
        ("x", ("b", 4)),
        ("rest.0", ("b", 4)),
        ("user.age", ("b", 4)),
    ]
    assert [spec.name for spec in exported.outputs] == ["s", "x"]
    assert (recipe.name, recipe.batch) == ("score", "b")
    drawn = recipe.draw(1, {"b": 5})
    wanted = (2 * drawn["x"] + drawn["user"]["age"]).sum(-1) + drawn["rest"][0].sum(-1)
    torch.testing.assert_close(call(recipe.build(), drawn)["s"], wanted)
    again = pickle.loads(pickle.dumps(recipe.build()))
    torch.testing.assert_close(call(again, drawn)["s"], wanted)


def test_a_tuple_is_positional(plain) -> None:
    recipe = load_recipe(f"{plain}:two", asked(plain, "plain.py:pair"))
    assert list(recipe.inputs) == ["x", "y"] and recipe.inputs["x"].eq(1).all()
    with pytest.raises(UserError, match="gives 3 positional inputs, more than the model takes"):
        load_recipe(f"{plain}:two", asked(plain, "plain.py:three"))


@pytest.mark.parametrize(
    ("attribute", "settings", "width"), [("net", {}, 4), ("Net", {"width": 3}, 3), ("build", {"width": 5}, 5)]
)
def test_modules_classes_and_makers(plain, attribute, settings, width) -> None:
    recipe = load_recipe(f"{plain}:{attribute}", asked(plain, "x.npz", "x:0=rows", **settings))
    assert call(recipe.build(), recipe.inputs).shape == (3, width)
    assert recipe.batch == "rows"


@pytest.mark.parametrize(
    ("attribute", "settings", "words"),
    [
        ("net", {}, "is an nn.Module, expected a Recipe; give its example inputs: --inputs"),
        ("two", {}, "missing 2 required positional arguments.*give its example inputs"),
        ("build", {}, "returned a Net, expected a Recipe; give its example inputs"),
        ("number", {"--inputs": "X"}, "is a int, expected a Recipe, a function or an nn.Module"),
        ("net", {"--inputs": "X", "width": 3}, "takes no settings, got --set width"),
        ("wrong", {"--inputs": "X"}, "returned a int, expected an nn.Module"),
        ("Net", {"--inputs": "X", "height": 3}, "unexpected keyword argument 'height'"),
        ("two", {"--inputs": "nowhere.npz"}, "nowhere.npz does not exist"),
        ("two", {"--inputs": "FILE:number"}, "is a int, expected a function that returns inputs"),
        ("two", {"--inputs": "FILE:wrong"}, "returned a int; return a dict"),
        ("two", {"--inputs": "FILE:two"}, "raised TypeError"),
        ("two", {"--inputs": "FILE:nothing"}, "has no attribute 'nothing'"),
        ("net", {"--inputs": "X", "--dynamic": ["y:0=b"]}, "dynamic names 'y'"),
    ],
)
def test_what_is_wrong_is_named(plain, attribute, settings, words) -> None:
    if "--inputs" in settings:
        where = settings["--inputs"].replace("FILE", str(plain)).replace("X", str(plain.with_name("x.npz")))
        settings = settings | {"--inputs": where}
    with pytest.raises(UserError, match=words):
        load_recipe(f"{plain}:{attribute}", settings)


def test_a_recipe_says_these_itself(recipes) -> None:
    with pytest.raises(UserError, match=r"--outputs was given, and .* is a Recipe"):
        load_recipe(f"{recipes / 'leaky.py'}:recipe", {"--outputs": ["y"]})
    with pytest.raises(UserError, match="is a Recipe, which says its inputs itself"):
        load_recipe(f"{recipes / 'leaky.py'}:recipe", {"--inputs": "x.npz"})


def test_npz_keys_nest(tmp_path) -> None:
    one, two = numpy.arange(3), numpy.array(2.5, "f")
    numpy.savez(tmp_path / "a.npz", **{"x": one, "o.k": two, "o.p.0": one, "o.p.1": two})
    found = read_npz(tmp_path / "a.npz")
    assert found["x"].tolist() == [0, 1, 2] and found["x"].dtype == torch.int64
    assert (
        found["o"]["k"].shape == ()
        and found["o"]["p"][1].item() == 2.5
        and isinstance(found["o"]["p"], tuple)
    )


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": numpy.array(["a"])}, "'x' has dtype <U1"),
        ({"x": numpy.array([None])}, "not an npz of plain arrays"),
        ({"x": numpy.ones(2), "x.y": numpy.ones(2)}, "'x.y' lies inside another array"),
        ({"x.y": numpy.ones(2), "x": numpy.ones(2)}, "'x' is an array and holds others"),
    ],
)
def test_arrays_that_are_no_inputs(tmp_path, arrays, words) -> None:
    numpy.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=words):
        read_npz(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="not an npz of plain arrays"):
        read_npz(tmp_path / "b.npz")


def test_which_files_it_consists_of(plain) -> None:
    settings = asked(plain)
    load_recipe(f"{plain}:net", settings)
    parts = plain.with_name("plain_parts.py")
    assert own_modules(f"{plain}:net") == {"aoti_recipe_plain": plain, "plain_parts": parts}
    assert source_files(f"{plain}:net", settings) == [str(plain), str(parts), str(plain.with_name("x.npz"))]
    load_recipe("aoti_pack.models.hstu:recipe", {})
    names = own_modules("aoti_pack.models.hstu:recipe")
    assert "aoti_pack.models.hstu_layers" in names and all(name.startswith("aoti_pack") for name in names)


@pytest.mark.slow
def test_the_command_compiles_a_function_and_verify_finds_it_again(plain, tmp_path) -> None:
    out = tmp_path / "out"
    args = ["compile", f"{plain}:score", "-o", out, "--inputs", f"{plain}:inputs", "--outputs", "sum, same"]
    args += ["--dynamic", "x:0=b[1..9]", "--dynamic", "user.age:0=b", "--dynamic", "rest.0:0=b"]
    done = CliRunner().invoke(main, [str(arg) for arg in args])
    assert done.exit_code == 0, done.output
    manifest = Manifest.load(out)
    assert [(spec.name, spec.shape) for spec in manifest.outputs] == [("sum", ("b",)), ("same", ("b", 4))]
    assert manifest.batching.proved and manifest.batching.max == 9
    assert manifest.recipe.settings["--dynamic"] == ["x:0=b[1..9]", "user.age:0=b", "rest.0:0=b"]
    assert {file.path for file in manifest.files} >= {"source/plain_parts.py", "source/aoti_recipe_plain.py"}
    assert verify(out, seed=3, progress=silent).proof.seed == 3
    model = torch.load(io.BytesIO((out / "eager.pt").read_bytes()), weights_only=False)
    x = torch.ones(2, 4)
    assert call(model, {"x": x, "user": {"age": x}, "rest": (x,)})["s"].tolist() == [16.0, 16.0]


def test_neighbours_of_another_source_are_not_its_own(tmp_path, monkeypatch) -> None:
    """Both are loaded by this process and lie in one folder; texts and relative imports count as well."""
    files = {
        "mine.py": "import importlib\nimport near.deep\nhelp = importlib.import_module('by_text')\ndef f(): ...\n",
        "other.py": "import only_others\ndef f(): ...\n",
        "only_others.py": "",
        "by_text.py": "",
        "near/__init__.py": "",
        "near/deep.py": "from . import side\nfrom .side import VALUE\n",
        "near/side.py": "VALUE = 1\n",
        "near/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("mine", "other"):
        attribute_of(f"{tmp_path / name}.py:f", "recipe")
    names = {"aoti_recipe_mine", "by_text", "near", "near.deep", "near.side"}
    assert set(own_modules(f"{tmp_path / 'mine.py'}:f")) == names
    assert set(own_modules(f"{tmp_path / 'other.py'}:f")) == {"aoti_recipe_other", "only_others"}
    for name in ("by_text", "only_others", "near", "near.deep", "near.side"):
        monkeypatch.delitem(sys.modules, name)
