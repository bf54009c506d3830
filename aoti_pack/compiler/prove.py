"""The proof that a compiled package equals eager PyTorch, on fresh inputs over a sweep of sizes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_pack.compiler.export import Exported, place
from aoti_pack.compiler.runtime import CompiledModel
from aoti_pack.compiler.sizes import Sizes, example_sizes, graph_cost, sweep
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import OutputError, Proof, ProofCase, TensorSpec
from aoti_pack.progress import Progress
from aoti_pack.recipe import DEFAULT_TOLERANCE, Inputs, Recipe, Tolerance
from aoti_pack.structure import call, leaves, map_leaves

if TYPE_CHECKING:
    import torch
    from torch import nn

# How much further than eager the compiled result may lie from float64, and roundings of the largest value.
_FLOAT64_FACTOR = 10.0
_ROUNDINGS = 64


@dataclass(frozen=True)
class Reference:
    """The eager model, in the package's dtype and (where it can run so) in float64."""

    recipe: Recipe
    exported: Exported
    model: nn.Module
    double: nn.Module | None
    dtype: torch.dtype
    device: str

    def draw(self, seed: int, sizes: Mapping[str, int]) -> Inputs:
        """Fresh placed inputs of `sizes`, their shapes checked against the contract."""
        try:
            drawn = self.recipe.draw(seed, sizes)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"recipe {self.recipe.name!r}: drawing inputs of {sizes_text(sizes)} raised "
                f"{type(error).__name__}: {error}"
            ) from error
        inputs = place(drawn, self.dtype, self.device)
        check_shapes(self.recipe, self.exported.inputs, inputs, sizes)
        return inputs

    def eager(self, inputs: Inputs) -> list[torch.Tensor]:
        """The eager model's flat outputs, in its own dtype. UserError when it does not take the inputs."""
        try:
            return _call(self.model, self._kept(inputs))
        except Exception as error:
            raise UserError(
                f"recipe {self.recipe.name!r}: the model raised {type(error).__name__} on drawn inputs: {error}",
                mend="give `ranges` for integer inputs, or a `sample` that draws valid ones",
            ) from error

    def compiled(self, compiled: CompiledModel, inputs: Inputs, where: str) -> list[torch.Tensor]:
        """The package's flat outputs. ProofError when it raises or gives another number of them."""
        try:
            found = compiled.run(self.exported.flatten(self._kept(inputs)))
        except Exception as error:
            raise ProofError(f"the compiled model raised at {where}: {error}") from error
        if len(found) != len(self.exported.outputs):
            raise ProofError(
                f"the compiled model gives {len(found)} outputs at {where}, expected {len(self.exported.outputs)}"
            )
        return found

    def _kept(self, inputs: Inputs) -> Inputs:
        """`inputs`, copied where the model writes into them: eager and the package must find the same ones."""
        mutated = {spec.name for spec in self.exported.inputs if spec.mutated}
        kept: Inputs = map_leaves(inputs, lambda path, leaf: leaf.clone() if path in mutated else leaf)
        return kept

    def tolerance(self, spec: TensorSpec) -> Tolerance:
        """How far `spec` may be off: for floating outputs the looser of its own dtype's and the model's."""
        own = self.recipe.tolerance_for(spec.dtype)
        if spec.dtype not in DEFAULT_TOLERANCE:
            return own
        models = self.recipe.tolerance_for(str(self.dtype).removeprefix("torch."))
        return Tolerance(max(own.rtol, models.rtol), max(own.atol, models.atol))

    def float64(self, inputs: Inputs) -> list[torch.Tensor] | None:
        """The eager model's flat outputs in float64, or None where it does not run in float64."""
        import torch

        if self.double is None:
            return None
        return _call(self.double, self._kept(place(inputs, torch.float64, self.device)))


def make_reference(recipe: Recipe, exported: Exported, dtype: torch.dtype, device: str) -> Reference:
    """The reference for `exported`, both models tried once on the recipe's example.

    UserError when eager itself does not take it.
    """
    double = copy.deepcopy(exported.model).double()
    reference = Reference(recipe, exported, exported.model, double, dtype, device)
    example = place(recipe.inputs, dtype, device)
    reference.eager(example)
    try:
        reference.float64(example)
    except Exception:
        # A model that fixes a dtype inside (or uses an operator without float64) has no float64 reference;
        # the proof says so and still compares with eager.
        return dataclasses.replace(reference, double=None)
    return reference


def _call(model: nn.Module | None, inputs: Inputs) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    if model is None:
        raise AssertionError("no model to call")
    with torch.no_grad():
        return list(pytree.tree_leaves(call(model, inputs)))


def check_shapes(
    recipe: Recipe, specs: Sequence[TensorSpec], inputs: Inputs, sizes: Mapping[str, int]
) -> None:
    """UserError when what `sample` drew is not what the contract says."""
    import torch

    found = dict(leaves(inputs))
    for spec in specs:
        wanted = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        tensor = found.get(spec.name)
        if not isinstance(tensor, torch.Tensor):
            raise UserError(f"recipe {recipe.name!r}: sample() drew no tensor called {spec.name!r}")
        got, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if got != wanted or dtype != spec.dtype:
            raise UserError(
                f"recipe {recipe.name!r}: sample() drew {spec.name!r} as {dtype} {list(got)}, "
                f"expected {spec.dtype} {list(wanted)} for {dict(sizes)}"
            )


def prove(reference: Reference, compiled: CompiledModel, seed: int, progress: Progress) -> Proof:
    """Compare `compiled` with eager at every case of the sweep.

    Source of the criterion: elementwise |compiled - eager| <= atol + rtol |eager|, as in
    `torch.testing.assert_close`; and see `check_float64`. Integers and bools must be equal. NaNs must stand in
    the same places.

    Raises ProofError naming the output, the sizes and how far off it is.
    """
    recipe, exported = reference.recipe, reference.exported
    cost = graph_cost(recipe, exported)
    cases, skipped = sweep(exported.symbols, example_sizes(recipe), cost)
    if reference.double is None:
        skipped.append("float64: the model does not run in float64; compared with eager alone")
    proved: list[ProofCase] = []
    for number, sizes in enumerate(cases):
        progress(f"proof {number + 1}/{len(cases)} {sizes_text(sizes)}")
        proved.append(_prove_case(reference, compiled, seed + number, sizes))
    check_float64(exported.outputs, proved, reference.dtype)
    tolerance = recipe.tolerance_for(str(reference.dtype).removeprefix("torch."))
    worst = max((o.compiled_eager for case in proved for o in case.outputs), default=0.0)
    return Proof(seed, tolerance.rtol, tolerance.atol, worst, tuple(proved), tuple(skipped))


def _prove_case(reference: Reference, compiled: CompiledModel, seed: int, sizes: Sizes) -> ProofCase:
    inputs = reference.draw(seed, sizes)
    # Eager first: it says what is wrong with an input where compiled code may read beyond its memory.
    eager = reference.eager(inputs)
    got = reference.compiled(compiled, inputs, f"{sizes_text(sizes)} (seed {seed})")
    exact = reference.float64(inputs)
    errors = []
    for index, spec in enumerate(reference.exported.outputs):
        tolerance = reference.tolerance(spec)
        where = f"output {spec.name!r} at {sizes_text(sizes)} (seed {seed})"
        errors.append(_compare(where, spec, got[index], eager[index], exact and exact[index], tolerance))
    return ProofCase(dict(sizes), tuple(errors))


def _compare(
    where: str, spec: TensorSpec, got: Any, eager: Any, exact: Any | None, tolerance: Tolerance
) -> OutputError:
    if got.shape != eager.shape or got.dtype != eager.dtype:
        raise ProofError(
            f"{where}: compiled gives {got.dtype} {list(got.shape)}, eager {eager.dtype} {list(eager.shape)}"
        )
    off = compare(where, got, eager, tolerance)
    if exact is None or not exact.is_floating_point():
        return OutputError(spec.name, off, None, None, None)
    # Where eager overflows or is NaN in its own dtype, float64 has no say: `got` equals eager there by now.
    exact = exact.where(eager.isfinite(), eager.to(exact.dtype))
    largest = max_abs(exact, exact.new_zeros(()))
    return OutputError(spec.name, off, max_abs(got, exact), max_abs(eager, exact), largest)


def check_float64(specs: Sequence[TensorSpec], cases: Sequence[ProofCase], dtype: torch.dtype) -> None:
    """ProofError when the compiled output is much further from float64 than eager is.

    The tolerance has no say here: a result that lost precision on the way (a narrower accumulator, a coarse
    exp) stays within it, and shows by its distance from float64 beside eager's. Both distances are the worst
    over the whole sweep: in one small case eager may be right by luck.
    """
    import torch

    for index, spec in enumerate(specs):
        found = [(case.sizes, case.outputs[index]) for case in cases]
        measured = [(o.compiled_float64, o.eager_float64, o.largest, sizes) for sizes, o in found]
        known = [(c, e, m, s) for c, e, m, s in measured if c is not None and e is not None and m is not None]
        if not known:
            continue
        off, _, _, sizes = max(known, key=lambda one: one[0])
        of_eager = max(one[1] for one in known)
        # A model in bfloat16 may well answer in float32.
        eps = max(torch.finfo(dtype).eps, torch.finfo(getattr(torch, spec.dtype)).eps)
        rounding = _ROUNDINGS * eps * max(one[2] for one in known)
        if off > _FLOAT64_FACTOR * of_eager + rounding:
            raise ProofError(
                f"output {spec.name!r} at {sizes_text(sizes)}: compiled is {off:.3g} from float64, eager at most "
                f"{of_eager:.3g}; allowed {_FLOAT64_FACTOR:g} times eager's and {rounding:.3g} of rounding"
            )


def compare(where: str, got: torch.Tensor, wanted: torch.Tensor, tolerance: Tolerance) -> float:
    """Max |got - wanted|; ProofError when an element is further off than `tolerance`."""
    import torch

    a, b = got.to(torch.float64), wanted.to(torch.float64)
    if wanted.is_floating_point() or tolerance.rtol or tolerance.atol:
        bad = ~torch.isclose(a, b, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    else:
        # Not in float64: it holds integers exactly only up to 2^53.
        bad = got.to(torch.int64) != wanted.to(torch.int64)
    if bool(bad.any()):
        first = torch.nonzero(bad)[0].tolist()
        raise ProofError(
            f"{where}: {int(bad.sum())} of {bad.numel()} elements differ, first at {first}: got "
            f"{a[tuple(first)].item():.9g}, expected {b[tuple(first)].item():.9g}; largest difference "
            f"{max_abs(got, wanted):.3g}, allowed {tolerance.atol:g} + {tolerance.rtol:g} x |expected|"
        )
    return max_abs(got, wanted)


def max_abs(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest |a - b| where both are finite, in float64; 0 for empty tensors."""
    import torch

    off = (a.to(torch.float64) - b.to(torch.float64)).abs()
    off = off[torch.isfinite(off)]
    return float(off.max()) if off.numel() else 0.0


def sizes_text(sizes: Mapping[str, int]) -> str:
    """`b=2 n=5`, or `fixed sizes` where nothing varies."""
    return " ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed sizes"
