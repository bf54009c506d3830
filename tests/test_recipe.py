import pickle
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from torch import nn

from aoti_pack.errors import UserError
from aoti_pack.recipe import Recipe, Tolerance, file_module_name, leaves, load_recipe, map_leaves
from aoti_pack.recipe_check import check_recipe

B = torch.export.Dim("b", min=1, max=8)
Pair = namedtuple("Pair", "left right")


def recipe(**changes) -> Recipe:
    fields = {"name": "r", "model": nn.Identity(), "inputs": {"x": torch.ones(3, 4)}, "outputs": ["y"]}
    return Recipe(**(fields | changes))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


GOOD = """
import torch
from torch import nn
from aoti_pack.recipe import Recipe
class Model(nn.Module):
    def forward(self, x): return x
def make(width=2):
    return Recipe("r", Model(), {"x": torch.ones(2, width)}, ["y"])
recipe = make()
number = 3
def bad(): raise ValueError("broken\\nhere")
def wrong(): return 4
"""


def test_default_sampler_draws_what_it_says() -> None:
    found = recipe(
        inputs={
            "f": torch.zeros(2, 3, dtype=torch.bfloat16),
            "i": torch.tensor([4, 9], dtype=torch.uint16),
            "r": torch.zeros(2, dtype=torch.int8),
            "m": torch.zeros(2, dtype=torch.bool),
            "k": 7,
        },
        dynamic={name: {0: torch.export.Dim("b", min=1, max=9999)} for name in ("f", "i", "r", "m")},
        ranges={"r": (-3, 2)},
    )
    drawn = found.draw(5, {"b": 4000})
    assert {name: (value.dtype, tuple(value.shape)) for name, value in drawn.items() if name != "k"} == {
        "f": (torch.bfloat16, (4000, 3)),
        "i": (torch.uint16, (4000,)),
        "r": (torch.int8, (4000,)),
        "m": (torch.bool, (4000,)),
    }
    assert drawn["k"] == 7
    assert abs(drawn["f"].double().mean()) < 0.05 and abs(drawn["f"].double().std() - 1) < 0.05
    assert set(drawn["i"].long().tolist()) == {4, 5, 6, 7, 8, 9}, "the example's own lowest and highest"
    assert set(drawn["r"].tolist()) == {-3, -2, -1, 0, 1, 2}
    assert 0.45 < drawn["m"].double().mean() < 0.55
    again = found.draw(5, {"b": 4000})
    assert all(torch.equal(drawn[name], again[name]) for name in ("f", "i", "r", "m"))
    assert not torch.equal(drawn["f"], found.draw(6, {"b": 4000})["f"])


def test_own_sampler_is_given_generator_and_sizes() -> None:
    found = recipe(sample=lambda generator, sizes: {"x": torch.rand(sizes["b"], 4, generator=generator)})
    wanted = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(found.draw(1, {"b": 5})["x"], wanted)


def test_paths_and_structure_of_nested_inputs() -> None:
    nested = {"a": {"k": 1}, "p": (2, [3]), "n": Pair(4, 5)}
    assert list(leaves(nested)) == [("a.k", 1), ("p.0", 2), ("p.1.0", 3), ("n.left", 4), ("n.right", 5)]
    doubled = map_leaves(nested, lambda path, leaf: leaf * 2)
    assert doubled == {"a": {"k": 2}, "p": (4, [6]), "n": Pair(8, 10)}
    assert type(doubled["n"]) is Pair


def test_tolerances() -> None:
    found = recipe(tolerance={"float32": Tolerance(0.5, 0.25)})
    assert found.tolerance_for("float32") == Tolerance(0.5, 0.25)
    assert found.tolerance_for("bfloat16") == Tolerance(3e-2, 3e-2)
    assert found.tolerance_for("int64") == Tolerance(0.0, 0.0)


def test_build_gives_a_model_of_its_own() -> None:
    found = recipe(model=nn.Linear(4, 2).train())
    built = found.build().to(torch.bfloat16)
    assert not built.training
    assert found.model.training and found.model.weight.dtype == torch.float32
    assert torch.equal(recipe(model=lambda: nn.Linear(4, 2)).build().weight, nn_linear_of_seed_zero())


def nn_linear_of_seed_zero() -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(4, 2).weight


@pytest.mark.parametrize(("model", "words"), [(lambda: 3, "got int"), (lambda: 1 / 0, "ZeroDivisionError")])
def test_a_model_that_cannot_be_built_is_named(model, words) -> None:
    with pytest.raises(UserError, match=f"'r'.*{words}"):
        recipe(model=model).build()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "name must be"),
        ({"inputs": {}}, "no tensor inputs"),
        ({"inputs": {"k": 3}}, "no tensor inputs"),
        ({"inputs": (torch.ones(2),)}, "inputs must be a dict.*got tuple"),
        ({"inputs": {"a.b": torch.ones(2), "a": {"b": torch.ones(2)}}}, r"two inputs have the path 'a\.b'"),
        ({"inputs": {"a\n": torch.ones(2)}}, "cannot be printed"),
        ({"dynamic": {"z": {0: B}}}, "dynamic names 'z'.*there are x"),
        ({"dynamic": {"x": {2: B}}}, "names axis 2 of a tensor of rank 2"),
        ({"dynamic": {"x": {-1: B}}}, "names axis -1"),
        ({"dynamic": {"x": {0: torch.export.Dim.AUTO}}}, "expected a torch.export.Dim"),
        ({"dynamic": {"x": {0: 2 * B}}}, "expected a torch.export.Dim"),
        ({"dynamic": {"x": {0: "b"}}}, "expected a torch.export.Dim"),
        (
            {"inputs": {"x": torch.ones(1, 4)}, "dynamic": {"x": {0: B}}},
            "size 1 on the dynamic axis 0.*2 or more",
        ),
        (
            {"inputs": {"x": torch.ones(9, 4)}, "dynamic": {"x": {0: B}}},
            r"size 9 on axis 0, outside b = 1\.\.8",
        ),
        ({"ranges": {"z": (0, 1)}}, "ranges names 'z'"),
        ({"ranges": {"x": (0, 1)}}, "ranges names 'x', which is not an integer input"),
        (
            {"inputs": {"x": torch.ones(2).byte()}, "ranges": {"x": (0, 256)}},
            r"0\.\.256.*both within torch.uint8",
        ),
        (
            {"inputs": {"x": torch.ones(2).long()}, "ranges": {"x": (2, 1)}},
            r"2\.\.1, expected lowest <= highest",
        ),
        ({"tolerance": {"fp32": Tolerance(0, 0)}}, "tolerance names the dtype 'fp32'.*float32"),
        ({"tolerance": {"float32": Tolerance(-1, 0)}}, "expected finite numbers of 0 or more"),
        ({"outputs": "y"}, "outputs must be a list.*'y'"),
        ({"outputs": ["y", "y"]}, "distinct names"),
        ({"outputs": [""]}, "printable names"),
    ],
)
def test_a_wrong_recipe_is_refused_by_its_field(changes, words) -> None:
    with pytest.raises(UserError, match=words):
        check_recipe(recipe(**changes))


def test_loads_attribute_function_and_settings(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", GOOD)
    assert load_recipe(str(file), {}).name == "r"
    assert load_recipe(f"{file}:make", {"width": 5}).inputs["x"].shape == (2, 5)


@pytest.mark.parametrize(
    ("attribute", "settings", "words"),
    [
        ("nothing", {}, "has no attribute 'nothing'"),
        ("number", {}, "is a int, expected a Recipe or a function"),
        ("bad", {}, "raised ValueError: broken"),
        ("wrong", {}, "returned a int, expected a Recipe"),
        ("recipe", {"width": 3}, "takes no settings, got --set width"),
        ("make", {"height": 3}, "unexpected keyword argument 'height'"),
    ],
)
def test_load_errors_name_the_fault(tmp_path: Path, attribute, settings, words) -> None:
    file = written(tmp_path / "mine.py", GOOD)
    with pytest.raises(UserError, match=words):
        load_recipe(f"{file}:{attribute}", settings)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no/such.py", "does not exist"),
        ("no_such_module_x", "no module"),
        ("aoti_pack.nothing:recipe", "no module"),
    ],
)
def test_missing_sources_are_named(source, words) -> None:
    with pytest.raises(UserError, match=words):
        load_recipe(source, {})


@pytest.mark.parametrize("text", ["1 / 0", "def", "import no_such_module_x", "raise SystemExit(3)"])
def test_a_file_that_fails_leaves_no_trace(tmp_path: Path, text: str) -> None:
    before = list(sys.path)
    with pytest.raises(UserError, match=r"never_seen_before\.py raised"):
        load_recipe(str(written(tmp_path / "never_seen_before.py", text)), {})
    assert "aoti_recipe_never_seen_before" not in sys.modules
    assert [entry for entry in sys.path if entry not in before] in ([], [str(tmp_path)])


def test_a_recipe_file_hides_no_module(tmp_path: Path) -> None:
    import json

    load_recipe(str(written(tmp_path / "json.py", GOOD)), {})
    assert sys.modules["json"] is json
    written(tmp_path / "this_is_beside.py", "VALUE = 8")
    load_recipe(str(written(tmp_path / "user.py", "from this_is_beside import VALUE\n" + GOOD)), {})
    # A file beside a recipe that is called as a module of Python's own, not imported yet, does not stand before it.
    written(tmp_path / "colorsys.py", "raise RuntimeError('the wrong one')")
    sys.modules.pop("colorsys", None)
    import colorsys

    assert colorsys.rgb_to_hsv(1.0, 0.0, 0.0) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("stem", ["json", "my-model.v2", "1st"])
def test_a_pickle_finds_the_recipes_classes_by_a_module_that_can_be_imported(
    tmp_path: Path, stem: str
) -> None:
    file = written(tmp_path / f"{stem}.py", GOOD)
    model = load_recipe(str(file), {}).build()
    name = file_module_name(file)
    assert type(model).__module__ == name and name.isidentifier()
    assert type(pickle.loads(pickle.dumps(model))) is type(model)


def test_loading_again_reads_the_file_again(tmp_path: Path) -> None:
    file = written(tmp_path / "again.py", GOOD)
    first = load_recipe(str(file), {})
    written(file, GOOD.replace('Recipe("r"', 'Recipe("second"'))
    import os

    os.utime(file, (1, 1))
    second = load_recipe(str(file), {})
    assert (first.name, second.name) == ("r", "second")
    assert sys.path.count(str(tmp_path)) == 1
