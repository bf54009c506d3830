"""Case 4: a tensor whose memory is laid out otherwise than the one that was compiled for gives right answers."""

import pytest
import torch
from structures import assert_equal


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def every_second(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x + 100], -1)[..., 0]


def expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand_as(x)


def inside_another(x: torch.Tensor) -> torch.Tensor:
    """Rows of a larger tensor, at an address that is no multiple of 16."""
    held = torch.zeros(x.shape[0] + 1, x.shape[1] + 3)
    held[1:, 3:] = x
    return held[1:, 3:]


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, and 4 bytes past an aligned address."""
    held = torch.zeros(x.numel() + 1)
    held[1:] = x.flatten()
    return held[1:].view(x.shape)


def negated(x: torch.Tensor) -> torch.Tensor:
    """A view that is negative by a flag alone: its memory holds -x."""
    return torch._neg_view(-x)


@pytest.mark.parametrize("change", [transposed, every_second, expanded, inside_another, shifted, negated])
@pytest.mark.parametrize("path", ["x", "scratch"])
def test_other_strides_than_compiled(structures, change, path) -> None:
    inputs = structures.draw(3, b=4, n=3)
    inputs[path] = change(inputs[path])
    before = inputs[path].clone()
    assert_equal(structures.package(**inputs), structures.expected(inputs))
    assert torch.equal(inputs[path], before)


def test_the_manifest_tells_the_strides(structures) -> None:
    assert {spec.dim_order for spec in structures.package.manifest.inputs} == {(0, 1), (0,)}
