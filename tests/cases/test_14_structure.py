"""Case 14: positional-only, `*args`, keyword-only and nested arguments, and nested results, each bound right."""

import enum

import pytest
import torch
from structures import assert_equal
from torch import nn

from aoti_pack.compiler.export import export
from aoti_pack.compiler.verify import verify
from aoti_pack.errors import UserError
from aoti_pack.progress import silent
from aoti_pack.recipe import Recipe
from aoti_pack.recipe_check import check_recipe
from aoti_pack.structure import leaves, map_leaves

TENSORS = (
    "x", "pair.left", "pair.right", "rest.0", "rest.1", "twin_b", "options.shift", "options.deep.0.bias", "ids",
    "user.age", "user.height", "scratch", "twin_a",
)  # fmt: skip


def test_names_by_path(structures) -> None:
    manifest = structures.package.manifest
    assert sorted(spec.name for spec in manifest.inputs) == sorted(TENSORS)
    names = ["logits", "aux.0", "aux.1", "aux.2.left", "aux.2.right", "prior", "ones", "total"]
    assert [spec.name for spec in manifest.outputs] == names
    assert {
        spec.name: spec.shape for spec in manifest.outputs if spec.name in ("prior", "total", "logits")
    } == {
        "logits": ("b", 4),
        "prior": (3,),
        "total": (),
    }
    assert [spec.name for spec in manifest.inputs if spec.mutated] == ["scratch"]


@pytest.mark.parametrize("sizes", [{"b": 1, "n": 2}, {"b": 5, "n": 8}, {"b": 16, "n": 3}])
def test_each_input_is_bound_to_its_own_name(structures, sizes) -> None:
    inputs = structures.draw(7, **sizes)
    assert_equal(structures.package(**inputs), structures.expected(inputs))


@pytest.mark.parametrize("path", TENSORS)
def test_each_input_alone_changes_what_eager_changes(structures, path) -> None:
    """Two inputs exchanged somewhere would show: each has a factor of its own, and changes alone."""
    inputs = structures.draw(7, b=3, n=4)
    changed = map_leaves(inputs, lambda at, leaf: leaf + 1 if at == path else leaf)
    before, after = structures.package(**inputs), structures.package(**changed)
    assert not torch.equal(before["logits"], after["logits"]) or path in ("twin_a", "twin_b")
    assert_equal(after, structures.expected(changed))


def test_flat_dotted_names_are_the_same_call(structures) -> None:
    inputs = structures.draw(9, b=3, n=4)
    assert_equal(structures.package(**dict(leaves(inputs))), structures.expected(inputs))


def test_outputs_are_the_callers_own(structures) -> None:
    """`aux.0` is an input unchanged, `aux.1` and `aux.2.right` are `logits`, `prior` is a buffer."""
    inputs = structures.draw(9, b=3, n=4)
    kept = {path: leaf.clone() for path, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)}
    wanted = structures.expected(inputs)
    first = structures.package(**inputs)
    for name, tensor in first.items():
        others = {key: value.clone() for key, value in first.items() if key != name}
        tensor.fill_(77)
        assert all(torch.equal(first[key], value) for key, value in others.items()), name
    assert all(torch.equal(leaf, kept[path]) for path, leaf in leaves(inputs) if path in kept)
    assert_equal(structures.package(**inputs), wanted)


def test_what_the_model_writes_is_lost(structures) -> None:
    """It adds 1 to a buffer, which it adds to the answer, and multiplies an input in place."""
    inputs = structures.draw(11, b=2, n=2)
    scratch = inputs["scratch"].clone()
    one, two = structures.package(**inputs), structures.package(**inputs)
    assert torch.equal(one["logits"], two["logits"]) and torch.equal(inputs["scratch"], scratch)
    assert_equal(two, structures.expected(inputs))


def test_verify_finds_it_again(structures) -> None:
    assert verify(structures.folder, seed=5, progress=silent).proof.seed == 5


class Color(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("leaf", "words"),
    [(Color.RED, "the input 'o.k' is a Color"), (object(), "'o.k' is a object"), (1j, "'o.k' is a complex")],
)
def test_another_kind_of_leaf_is_refused_by_name(leaf, words) -> None:
    with pytest.raises(UserError, match=words):
        check_recipe(Recipe("r", nn.Identity(), {"x": torch.ones(2), "o": {"k": leaf}}))


def model(forward):
    return type("Made", (nn.Module,), {"forward": forward})()


@pytest.mark.parametrize(
    ("forward", "names"),
    [
        (lambda self, x: x + 1, ["output"]),
        (lambda self, x: (x + 1,), ["output.0"]),
        (
            lambda self, x: [x + 1, {"a": x, "b": (x, x)}],
            ["output.0", "output.1.a", "output.1.b.0", "output.1.b.1"],
        ),
        (lambda self, x: {"logits": x, "aux": (x * 2,)}, ["logits", "aux.0"]),
    ],
)
def test_outputs_without_names_are_named_by_their_place(forward, names) -> None:
    exported = export(Recipe("r", model(forward), {"x": torch.ones(2)}), torch.float32, "cpu")
    assert [spec.name for spec in exported.outputs] == names
    given = [f"o{i}" for i in range(len(names))]
    named = export(Recipe("r", model(forward), {"x": torch.ones(2)}, given), torch.float32, "cpu")
    assert [spec.name for spec in named.outputs] == given


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda self, x: {"a.b": x, "a": {"b": x}}, r"two outputs have the name 'a\.b'"),
        (lambda self, x: {"a": x, "k": 3}, "output 'k' is 3, expected a tensor"),
        (lambda self, x: {"a": x, "k": None}, "output 'k' is None, expected a tensor"),
    ],
)
def test_outputs_that_have_no_name_or_are_no_tensors(forward, words) -> None:
    with pytest.raises(UserError, match=words):
        export(Recipe("r", model(forward), {"x": torch.ones(2)}), torch.float32, "cpu")
