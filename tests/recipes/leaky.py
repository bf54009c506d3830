"""Rows that see each other: a mean over the batch."""

import torch
from torch import nn

from aoti_pack.recipe import Recipe


class Leaky(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


recipe = Recipe(
    name="leaky",
    model=Leaky(),
    inputs={"x": torch.arange(12.0).reshape(3, 4)},
    dynamic={"x": {0: torch.export.Dim("b", min=1, max=8)}},
    outputs=["y"],
)
