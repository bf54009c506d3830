import pytest
import torch
from torch import nn

from aoti_pack.compiler.export import export, place
from aoti_pack.errors import UserError
from aoti_pack.manifest import BakedScalar, Symbol, TensorSpec
from aoti_pack.recipe import Recipe

Dim = torch.export.Dim
B, N = Dim("b", min=1, max=8), Dim("n", min=1, max=6)


def exported(forward, inputs, dynamic, outputs=("y",), dtype=torch.float32, **parts):
    kind = type("Made", (nn.Module,), {"forward": forward})
    model = kind()
    for name, part in parts.items():
        setattr(model, name, part)
    return export(Recipe("made", model, inputs, outputs, dynamic), dtype, "cpu")


def x(*shape):
    return torch.ones(*shape)


def test_names_are_paths_and_scalars_are_baked() -> None:
    def forward(self, x, *, options, pair, k=3, flag=False, none=None):
        return {"u": x * options["key"] + pair[0], "v": (pair[1] * k,)}

    inputs = {
        "pair": (x(3, 5), x(3, 5)),
        "x": x(3, 5),
        "options": {"key": x(3, 5)},
        "k": 4,
        "flag": True,
        "none": None,
    }
    paths = ("pair.0", "pair.1", "x", "options.key")
    found = exported(forward, inputs, {path: {0: B} for path in paths}, ("u", "v"))
    assert {spec.name for spec in found.inputs} == set(paths)
    assert all(spec.shape == ("b", 5) and spec.datatype == "FP32" for spec in found.inputs)
    assert found.outputs == (
        TensorSpec("u", "float32", "FP32", ("b", 5)),
        TensorSpec("v", "float32", "FP32", ("b", 5)),
    )
    assert set(found.baked) == {BakedScalar("k", 4), BakedScalar("flag", True), BakedScalar("none", None)}
    assert found.symbols == (Symbol("b", 1, 8),)
    given = {"pair.0": inputs["pair"][0], "pair.1": inputs["pair"][1], "x": inputs["x"]}
    given["options.key"] = inputs["options"]["key"]
    flat = found.flatten(inputs)
    assert all(tensor is given[spec.name] for tensor, spec in zip(flat, found.inputs, strict=True))


@pytest.mark.parametrize(
    ("forward", "shape"),
    [
        (lambda self, x: torch.cat([x, x], 1), ("b", "2*n")),
        (lambda self, x: x.reshape(-1) + 1, ("b*n",)),
        (lambda self, x: x.t() + 1, ("n", "b")),
        (lambda self, x: x.sum(), ()),
        (lambda self, x: torch.nn.functional.pad(x, (1, 2)), ("b", "n + 3")),
        (lambda self, x: x, ("b", "n")),
    ],
)
def test_sizes_of_outputs_are_told_in_symbols(forward, shape) -> None:
    assert exported(forward, {"x": x(3, 5)}, {"x": {0: B, 1: N}}).outputs[0].shape == shape


def test_symbols_named_as_torchs_own_do_not_mix() -> None:
    dims = {0: Dim("s1", min=1, max=9), 1: Dim("s0", min=1, max=9)}
    found = exported(lambda self, x: x.t() + 1, {"x": x(3, 5)}, {"x": dims})
    assert (found.inputs[0].shape, found.outputs[0].shape) == (("s1", "s0"), ("s0", "s1"))


def test_dtype_goes_to_floating_inputs_only() -> None:
    inputs = {"x": x(3, 5).double(), "i": torch.ones(3, dtype=torch.int32)}
    found = exported(
        lambda self, x, i: x * i[:, None], inputs, {"x": {0: B}, "i": {0: B}}, dtype=torch.bfloat16
    )
    assert [spec.dtype for spec in found.inputs + found.outputs] == ["bfloat16", "int32", "bfloat16"]
    assert place({"x": x(3, 5).t()}, torch.float32, "cpu")["x"].is_contiguous()


def count(self, x):
    self.count.add_(1)
    return x * self.count


@pytest.mark.parametrize(
    ("forward", "dynamic", "outputs", "words"),
    [
        (lambda self, x: x.reshape(3, 5) + 1, {0: B}, ("y",), "b.*constant"),
        (lambda self, x: x + 1, {0: Dim("b")}, ("y",), "Dim 'b' has no upper bound.*max="),
        (lambda self, x: x.add_(1), {0: B}, ("y",), "changes its input 'x' in place"),
        (count, {0: B}, ("y",), "changes its buffer 'count' in place"),
        (lambda self, x: x.nonzero(), {0: B}, ("y",), "axis 0 of 'y'.*depends on the data"),
        (lambda self, x: (x + 1, x.shape[0]), {0: B}, ("y", "n"), "output 'n'.*expected a tensor"),
        (lambda self, x: (x, x + 1), {0: B}, ("y",), "gives 2 outputs, the recipe names 1"),
        (lambda self, x: x + 1, {0: B}, ("y", "z"), "gives 1 outputs, the recipe names 2"),
        (lambda self, x: torch.complex(x, x), {0: B}, ("y",), "'y' has dtype complex64"),
        (lambda self, z: z, {0: B}, ("y",), "cannot be exported"),
    ],
)
def test_refused_with_a_name(forward, dynamic, outputs, words) -> None:
    with pytest.raises(UserError, match=words):
        exported(forward, {"x": x(3, 5)}, {"x": dynamic}, outputs, count=nn.Buffer(torch.zeros(())))


def test_writing_into_a_temporary_is_no_mutation() -> None:
    def forward(self, x):
        y = x * 2
        y[:, 0] = 7
        return y.relu_()

    assert exported(forward, {"x": x(3, 5)}, {"x": {0: B}}).outputs[0].shape == ("b", 5)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), torch.float32])
def test_a_baked_value_that_no_manifest_holds_is_refused(value) -> None:
    with pytest.raises(UserError, match=r"'v' is|torch\.dtype"):
        exported(lambda self, x, v: x + 1, {"x": x(3, 5), "v": value}, {"x": {0: B}})


def test_exporting_twice_in_one_process_keeps_the_weights() -> None:
    layer = nn.Linear(5, 2)
    before = layer.weight.detach().clone()
    recipe = Recipe("twice", layer, {"input": x(3, 5)}, ["y"], {"input": {0: B}})
    export(recipe, torch.bfloat16, "cpu")
    again = export(recipe, torch.float32, "cpu")
    assert torch.equal(again.program.state_dict["weight"], before)
