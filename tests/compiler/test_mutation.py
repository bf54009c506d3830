import pytest
import torch
from torch import nn

from aoti_pack.compiler.export import export
from aoti_pack.compiler.mutation import FreshBuffers
from aoti_pack.errors import UserError
from aoti_pack.recipe import Recipe


class Stateful(nn.Module):
    def __init__(self, forward) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.plain = torch.zeros(1)
        self.norm = nn.BatchNorm1d(4)
        self.table = nn.Embedding(4, 4, max_norm=1.0)
        self.does = forward

    def forward(self, x):
        return self.does(self, x)


def made(does, mutates=()):
    recipe = Recipe("r", Stateful(does), {"x": torch.randn(3, 4)}, mutates=mutates)
    return export(recipe, torch.float32, "cpu")


def counts(m, x):
    m.count += 1
    return x + m.count


def assigns(m, x):
    m.count = m.count + 1
    return x + m.count


def writes(_, x):
    x[:, 0].mul_(2)
    return x + 1


def both(m, x):
    m.count.copy_(x[0, :1])
    x.add_(m.count)
    return x * 1


def statistics(m, x):
    return nn.functional.batch_norm(x, m.norm.running_mean, m.norm.running_var, training=True)


def hides(m, x):
    m.plain = m.plain + 1
    return x + m.plain


def hides_in_place(m, x):
    m.plain += 1
    return x + m.plain


def renormalises(m, x):
    return m.table((x > 0).long())


@pytest.mark.parametrize(
    ("does", "mutates", "words"),
    [
        (counts, (), "changes its buffer 'count' in place.*mutates="),
        (assigns, (), "changes its buffer 'count' in place"),
        (writes, (), "changes its input 'x' in place"),
        (both, ("count",), "changes its input 'x' in place"),
        (both, ("x",), "changes its buffer 'count' in place"),
        (statistics, ("norm.running_mean",), "changes its buffer 'norm.running_var' in place"),
        (hides, (), "keeps state between calls.*self.plain"),
        (hides_in_place, (), "plain is mutated"),
        (renormalises, (), "changes its weight 'table.weight' in place"),
        (
            counts,
            ("count", "x"),
            "mutates names 'x', and the model does not write into it; it writes into count",
        ),
        (writes, ("x", "z"), "mutates names 'z', and the model has no input and no buffer of that name"),
        (lambda m, x: x + 1, ("count",), "mutates names 'count'.*writes into nothing"),
    ],
)
def test_what_is_written_must_be_named_and_what_is_named_written(does, mutates, words) -> None:
    with pytest.raises(UserError, match=words):
        made(does, mutates)


@pytest.mark.parametrize("does", [counts, assigns])
def test_every_run_finds_a_buffer_as_it_was_compiled(does) -> None:
    exported = made(does, ("count",))
    x = torch.randn(3, 4)
    program = exported.program.module()
    for run in (program, program, exported.model, exported.model):
        found = run(x)
        assert torch.equal(found[0] if isinstance(found, tuple) else found, x + 1)
    assert isinstance(exported.model, FreshBuffers) and not exported.inputs[0].mutated
    assert exported.program.state_dict["count"].item() == 0


def test_a_written_input_is_told_in_the_contract() -> None:
    assert made(writes, ("x",)).inputs[0].mutated
    assert made(both, ("x", "count")).inputs[0].mutated
    assert made(statistics, ("norm.running_mean", "norm.running_var")).inputs[0].mutated is False
