"""Which constants can be replaced, by which names, and that a package which keeps an old one is found out."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from aoti_pack.compiler.export import Exported, export
from aoti_pack.compiler.lower import inductor_configs
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.prove import Reference, make_reference
from aoti_pack.compiler.updatable import describe_constants, prove_updatable
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import ConstantSpec
from aoti_pack.recipe import Recipe

B = torch.export.Dim("b", min=1, max=8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.tensor(1.0))
        self.register_buffer("kept", torch.ones(4), persistent=False)

    def forward(self, x):
        return self.norm(self.two(torch.tanh(self.one(x)))) * self.scale + self.kept


@dataclass
class FakeCompiled:
    """Runs the exported module, with constants by name; `deaf` ones do not change."""

    exported: Exported
    deaf: tuple[str, ...] = ()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Weights of its own, as a package has them.
        self.module = copy.deepcopy(self.exported.program.module())

    def constant_names(self) -> list[str]:
        names = dict(self.exported.program.state_dict) | dict(self.exported.program.constants)
        # AOTInductor keeps one name of a tied tensor, and nothing that is not read.
        return sorted(set(names) - {"one.weight", "norm.num_batches_tracked"})

    def replace_constants(self, constants: dict[str, torch.Tensor]) -> None:
        own = self.module.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, value in constants.items():
                if name not in self.deaf:
                    own[name].copy_(value)

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad():
            return list(pytree.tree_leaves(self.module(inputs[0])))


def reference(model: nn.Module) -> Reference:
    model.eval()
    recipe = Recipe(
        name="net",
        model=lambda: model,  # as it is: a module that is given is copied
        inputs={"x": torch.randn(3, 4)},
        dynamic={"x": {0: B}},
        outputs=["y"],
    )
    return make_reference(recipe, export(recipe, torch.float32, "cpu"), torch.float32, "cpu")


def test_names_are_those_of_the_state_dict() -> None:
    exported = reference(Net()).exported
    constants, unread = describe_constants(exported, FakeCompiled(exported), True)  # type: ignore[arg-type]
    found = {constant.name: constant for constant in constants}
    assert found["two.weight"] == ConstantSpec("two.weight", "float32", (4, 4), True, ("one.weight",))
    assert found["scale"] == ConstantSpec("scale", "float32", (), True)
    assert found["kept"] == ConstantSpec("kept", "float32", (4,), False)
    assert {c.name for c in constants if c.updatable} == {
        "two.weight", "one.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "scale",
    }  # fmt: skip
    assert unread == ("norm.num_batches_tracked",)
    names = {name for constant in constants for name in (constant.name, *constant.aliases)}
    assert names | set(unread) == set(exported.model.state_dict()) | {"kept"}


def test_nothing_is_updatable_unless_asked() -> None:
    exported = reference(Net()).exported
    constants, _ = describe_constants(exported, FakeCompiled(exported), False)  # type: ignore[arg-type]
    assert not any(constant.updatable for constant in constants)
    assert "always_keep_tensor_constants" not in inductor_configs(CompileOptions())
    assert inductor_configs(CompileOptions(updatable=True))["always_keep_tensor_constants"] is True


class NoWeights(nn.Module):
    def forward(self, x):
        return x * 2


class Overlapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        both = torch.randn(6, 4)
        self.first, self.second = nn.Parameter(both[:4]), nn.Parameter(both[2:])

    def forward(self, x):
        return x @ self.first + x @ self.second


class Repeating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("wide", torch.ones(1, 4).expand(4, 4))

    def forward(self, x):
        return x @ self.wide


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (NoWeights(), "has no weight or persistent buffer"),
        (Overlapping(), "'first' and 'second' overlap in memory"),
        (Repeating(), "'wide' repeats elements"),
    ],
)
def test_what_cannot_be_updated_is_refused(model: nn.Module, told: str) -> None:
    exported = reference(model).exported
    with pytest.raises(UserError, match=told):
        describe_constants(exported, FakeCompiled(exported), True)  # type: ignore[arg-type]


def test_the_proof_follows_new_weights_and_puts_the_old_ones_back() -> None:
    made = reference(Net())
    compiled = FakeCompiled(made.exported)
    constants, _ = describe_constants(made.exported, compiled, True)  # type: ignore[arg-type]
    x = torch.randn(2, 4)
    before = compiled.run([x])[0]
    prove_updatable(made, compiled, constants, 1)  # type: ignore[arg-type]
    assert torch.equal(compiled.run([x])[0], before)
    assert torch.equal(made.eager({"x": x})[0], before)


@pytest.mark.parametrize(
    "name", ["two.weight", "one.bias", "norm.weight", "norm.bias", "norm.running_var", "scale"]
)
def test_a_weight_that_was_compiled_in_is_found_out(name: str) -> None:
    made = reference(Net())
    compiled = FakeCompiled(made.exported, deaf=(name,))
    constants, _ = describe_constants(made.exported, compiled, True)  # type: ignore[arg-type]
    with pytest.raises(ProofError, match="the package does not follow its weights"):
        prove_updatable(made, compiled, constants, 1)  # type: ignore[arg-type]
