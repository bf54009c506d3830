import pytest
import torch
from torch import nn

from aoti_pack.compiler.export import export
from aoti_pack.compiler.prove import compare, make_reference, max_abs, prove
from aoti_pack.compiler.prove_batching import prove_batching
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import Batching
from aoti_pack.progress import silent
from aoti_pack.recipe import Recipe, Tolerance

Dim = torch.export.Dim


class Fake:
    """Stands for a compiled package: runs the eager model and lets `spoil` change its outputs."""

    def __init__(self, reference, spoil=lambda outputs: outputs):
        self.reference, self.spoil, self.sizes = reference, spoil, []

    def run(self, inputs):
        self.sizes.append(tuple(inputs[0].shape))
        model_inputs = dict(zip([s.name for s in self.reference.exported.inputs], inputs, strict=True))
        return self.spoil([out.clone() for out in self.reference.eager(model_inputs)])


def reference(forward, inputs, outputs=("y",), dim=None, axis=0, dtype=torch.float32, **changes):
    kind = type("Made", (nn.Module,), {"forward": forward})
    dim = dim or Dim("b", min=1, max=8)
    recipe = Recipe("made", kind(), inputs, outputs, {name: {axis: dim} for name in inputs}, **changes)
    return make_reference(recipe, export(recipe, dtype, "cpu"), dtype, "cpu")


def two(self, x):
    return torch.tanh(x) * 3, (x > 0).long().cumsum(1)


def made(**changes):
    return reference(two, {"x": torch.ones(3, 4)}, ("y", "n"), **changes)


def test_a_good_package_passes_and_the_proof_holds_its_errors() -> None:
    ref = made()

    def off(outputs):
        outputs[0][0, 0] += 2e-6
        return outputs

    fake = Fake(ref, off)
    proof = prove(ref, fake, 7, silent)
    assert [dict(case.sizes) for case in proof.cases] == [{"b": 3}, {"b": 1}, {"b": 2}, {"b": 8}]
    assert fake.sizes == [(3, 4), (1, 4), (2, 4), (8, 4)]
    assert (proof.seed, proof.rtol, proof.atol, proof.skipped) == (7, 1e-4, 1e-5, ())
    for case in proof.cases:
        y, n = case.outputs
        assert (y.name, n.name) == ("y", "n")
        assert y.compiled_eager == pytest.approx(2e-6, rel=0.2)
        assert 0 < y.eager_float64 < 1e-6 and y.compiled_float64 < 4e-6
        assert (n.compiled_eager, n.compiled_float64, n.eager_float64) == (0.0, None, None)
    assert proof.max_abs == max(case.outputs[0].compiled_eager for case in proof.cases)
    # The figures are those of these inputs: computed again here, in float64.
    x = ref.recipe.draw(7, {"b": 3})["x"]
    exact = torch.tanh(x.double()) * 3
    assert proof.cases[0].outputs[0].eager_float64 == float((torch.tanh(x) * 3 - exact).abs().max())


def one_element(outputs):
    if outputs[0].shape[0] == 8:
        outputs[0][7, 3] += 1e-2
    return outputs


def nan(outputs):
    outputs[0][0, 1] = torch.nan
    return outputs


def off_by_one(outputs):
    outputs[1][0, 2] += 1
    return outputs


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (one_element, r"output 'y' at b=8 \(seed 10\): 1 of 32 elements differ, first at \[7, 3\]"),
        (nan, r"output 'y' at b=3 .*first at \[0, 1\]: got nan"),
        (off_by_one, r"output 'n' at b=3 .*first at \[0, 2\]"),
        (lambda outs: [outs[0].double(), outs[1]], "output 'y' at b=3.*compiled gives torch.float64"),
        (lambda outs: [outs[0], outs[1].int()], "output 'n' at b=3.*compiled gives torch.int32"),
        (
            lambda outs: [outs[0][:, :3], outs[1]],
            r"output 'y' at b=3.*\[3, 3\], eager torch.float32 \[3, 4\]",
        ),
        (lambda outs: outs[:1], "gives 1 outputs at b=3.*expected 2"),
        (lambda outs: 1 / 0, "compiled model raised at b=3"),
    ],
)
def test_a_wrong_package_fails_by_output_and_sizes(spoil, words) -> None:
    ref = made()
    with pytest.raises(ProofError, match=words):
        prove(ref, Fake(ref, spoil), 7, silent)


@pytest.mark.parametrize(
    ("got", "wanted", "equal"),
    [
        (torch.tensor([2**60 + 1]), torch.tensor([2**60]), False),
        (torch.tensor([2**60]), torch.tensor([2**60]), True),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), True),
        (torch.tensor([torch.inf]), torch.tensor([-torch.inf]), False),
        (torch.tensor([torch.inf]), torch.tensor([torch.inf]), True),
        (torch.tensor([1.0]), torch.tensor([torch.nan]), False),
        (torch.tensor(1.0), torch.tensor(1.5), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.tensor([2**63 + 1], dtype=torch.uint64), torch.tensor([2**63 + 3], dtype=torch.uint64), False),
    ],
)
def test_compare(got, wanted, equal) -> None:
    exact = Tolerance(0.0, 0.0)
    if equal:
        assert compare("y", got, wanted, exact) == 0.0
    else:
        with pytest.raises(ProofError, match="y: 1 of 1 elements differ"):
            compare("y", got, wanted, exact)


def test_max_abs_leaves_out_what_is_not_finite() -> None:
    assert max_abs(torch.tensor([1.0, torch.inf]), torch.tensor([3.5, 0.0])) == 2.5
    assert max_abs(torch.empty(0), torch.empty(0)) == 0.0


def test_overflow_in_the_models_own_dtype_is_not_held_against_the_package() -> None:
    ref = reference(lambda self, x: torch.exp(x * 1e3), {"x": torch.ones(3, 4)})
    proof = prove(ref, Fake(ref), 1, silent)
    assert proof.max_abs == 0.0


def test_a_model_that_does_not_run_in_float64_is_told() -> None:
    ref = reference(lambda self, x: x @ torch.ones(4, 2), {"x": torch.ones(3, 4)})
    proof = prove(ref, Fake(ref), 1, silent)
    assert proof.skipped == ("float64: the model does not run in float64; compared with eager alone",)
    assert proof.cases[0].outputs[0].compiled_float64 is None


def test_bfloat16_has_its_own_tolerance() -> None:
    ref = made(dtype=torch.bfloat16)

    def off(outputs):
        outputs[0] *= 1.01
        return outputs

    proof = prove(ref, Fake(ref, off), 1, silent)
    assert (proof.rtol, proof.atol) == (3e-2, 3e-2)
    assert 1e-3 < proof.max_abs < 1e-1


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (
            lambda g, s: {"x": torch.ones(s["b"], 5)},
            r"drew 'x' as float32 \[3, 5\], expected float32 \[3, 4\]",
        ),
        (lambda g, s: {"x": torch.ones(s["b"], 4).long()}, "drew 'x' as int64"),
        (lambda g, s: {}, "drew no tensor called 'x'"),
        (lambda g, s: 1 / 0, "drawing inputs of b=3 raised ZeroDivisionError"),
    ],
)
def test_a_wrong_sample_is_named(sample, words) -> None:
    ref = made(sample=sample)
    with pytest.raises(UserError, match=words):
        prove(ref, Fake(ref), 1, silent)


def test_inputs_that_the_model_refuses_ask_for_ranges() -> None:
    table = torch.ones(4, 2)
    ref = reference(
        lambda self, i: torch.nn.functional.embedding(i, table.to(torch.float32)),
        {"i": torch.tensor([0, 1, 2])},
        ranges={"i": (0, 90)},
    )
    with pytest.raises(UserError, match=r"IndexError.*give `ranges`"):
        prove(ref, Fake(ref), 1, silent)


FLOATS = {"x": torch.arange(12.0).reshape(3, 4)}
INTS = {"x": torch.arange(12).reshape(3, 4)}
SEES = "rows see each other: output 'y'"


@pytest.mark.parametrize(
    ("forward", "inputs", "reason"),
    [
        (lambda self, x: x - x.mean(0), FLOATS, SEES),
        (lambda self, x: x.cumsum(0), INTS, SEES),
        (lambda self, x: x * (x.max() > 8), INTS, SEES),
        (lambda self, x: x.flip(0), FLOATS, SEES),
        (lambda self, x: x + torch.arange(x.shape[0])[:, None], INTS, SEES),
        (lambda self, x: x + 1e-6 * x.mean(0), FLOATS, SEES),
        (lambda self, x: x @ x.t(), FLOATS, "output 'y' has 'b' on a later axis too"),
        (lambda self, x: x.t() + 1, FLOATS, "axis 0 of output 'y' does not count 'b'"),
        (lambda self, x: x.sum(), FLOATS, "axis 0 of output 'y' does not count 'b'"),
        (lambda self, x: torch.cat([x, x]), FLOATS, "axis 0 of output 'y' does not count 'b'"),
    ],
)
def test_rows_that_see_each_other_are_not_proved_and_the_reason_told(forward, inputs, reason) -> None:
    ref = reference(forward, inputs)
    found = prove_batching(ref, Fake(ref), 3, silent)
    assert (found.proved, found.symbol, found.max) == (False, "b", 0)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("inputs", [FLOATS, INTS])
def test_independent_rows_are_proved_up_to_the_symbols_end(inputs) -> None:
    ref = reference(lambda self, x: (x * 2 + x.cumsum(1)) * (x > 1), inputs)
    fake = Fake(ref)
    assert prove_batching(ref, fake, 3, silent) == Batching(True, "b", 8)
    assert {shape[0] for shape in fake.sizes} == {1, 5, 8}


def test_a_leak_of_the_compiled_code_alone_is_found() -> None:
    ref = reference(lambda self, x: x * 2, FLOATS)

    def leak(outputs):
        return [outputs[0] + outputs[0][:1]]

    found = prove_batching(ref, Fake(ref, leak), 3, silent)
    assert not found.proved and found.reason.startswith(SEES)


def test_other_reasons_not_to_batch() -> None:
    ref = reference(lambda self, x: x * 2, FLOATS, batch=None)
    assert prove_batching(ref, Fake(ref), 3, silent).reason == "the recipe names no batch symbol"
    ref = reference(lambda self, x: x * 2, FLOATS, batch="rows")
    assert prove_batching(ref, Fake(ref), 3, silent).reason == "no input has a dynamic axis called 'rows'"
    ref = reference(lambda self, x: x * 2, FLOATS, axis=1)
    assert prove_batching(ref, Fake(ref), 3, silent).reason == "axis 0 of input 'x' does not count 'b'"
    ref = reference(lambda self, x: x * 2, FLOATS, dim=Dim("b", min=2, max=8))
    assert "begins at 2" in prove_batching(ref, Fake(ref), 3, silent).reason


def test_a_symbol_whose_name_holds_the_batchs_is_another_symbol() -> None:
    kind = type("Made", (nn.Module,), {"forward": lambda self, x: x + 1})
    dims = {"x": {0: Dim("b", min=1, max=8), 1: Dim("nb", min=1, max=8)}}
    recipe = Recipe("made", kind(), FLOATS, ["y"], dims)
    ref = make_reference(recipe, export(recipe, torch.float32, "cpu"), torch.float32, "cpu")
    assert prove_batching(ref, Fake(ref), 3, silent) == Batching(True, "b", 8)


def test_lost_precision_fails_though_it_is_within_the_tolerance() -> None:
    """5e-5 relative passes rtol 1e-4 and is a hundred times eager's own distance from float64."""
    fake = Fake(made(), lambda outs: [outs[0] * (1 + 5e-5), outs[1]])
    with pytest.raises(
        ProofError, match=r"output 'y' at b=\d.*from float64, eager at most .*allowed 10 times"
    ):
        prove(made(), fake, 7, silent)


@pytest.mark.parametrize(
    "leak",
    [
        lambda _, x: torch.where(x.amax() > 50, torch.zeros_like(x), x),
        lambda _, x: x + (torch.nan_to_num(x) > 10).any(),
        lambda _, x: torch.where(x.amin() < -50, torch.zeros_like(x), x),
    ],
)
def test_a_leak_behind_a_threshold_is_found(leak) -> None:
    """NaN is neither above nor below a threshold; one client's large value would change everyone's answer."""
    ref = reference(leak, {"x": torch.ones(3, 4)}, ("y",))
    found = prove_batching(ref, Fake(ref), 3, silent)
    assert not found.proved
    assert "poisoned" in found.reason


def test_ids_that_travel_as_floats_are_batched() -> None:
    """NaN is no id: a poison that eager does not take says nothing about the rows."""
    table = torch.arange(20.0).reshape(10, 2)
    ref = reference(
        lambda _, x: table.to(x.dtype)[x.abs().clamp(max=9).long()].sum(-1), {"x": torch.ones(3, 4)}, ("y",)
    )
    assert prove_batching(ref, Fake(ref), 3, silent).proved
