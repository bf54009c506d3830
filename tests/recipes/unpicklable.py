"""A local class does not pickle; the output is 0-d."""

import torch
from torch import nn

from aoti_pack.recipe import Recipe


def recipe() -> Recipe:
    class Local(nn.Module):
        def forward(self, x):
            return x.square().sum()

    return Recipe(
        name="unpicklable",
        model=Local(),
        inputs={"x": torch.ones(3, 2)},
        dynamic={"x": {0: torch.export.Dim("n", min=1, max=8)}},
        outputs=["total"],
        batch=None,
    )
