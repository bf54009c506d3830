"""Independent rows, nested inputs in another order than forward's, a baked scalar, a buffer, [b] and bool outputs."""

import torch
from torch import nn

from aoti_pack.recipe import Recipe

B = torch.export.Dim("b", min=1, max=16)
N = torch.export.Dim("n", min=1, max=6)


class Rows(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, ids, x, *, options, scale):
        scores = self.layer(x + self.shift) * scale + options["bias"].unsqueeze(1)
        return {"scores": scores, "more": (torch.cat([ids, ids + 1], 1), x.sum(1), ids[:, 0] > 3)}


def recipe(width: int = 3, bias: float = 0.5) -> Recipe:
    return Recipe(
        name="rows",
        model=lambda: Rows(width),
        # Not in the order of forward's arguments: the contract keeps the order of the exported program.
        inputs={
            "options": {"bias": torch.full((3,), bias)},
            "x": torch.randn(3, 4),
            "ids": torch.arange(15).reshape(3, 5),
            "scale": 2,
        },
        dynamic={"options.bias": {0: B}, "x": {0: B}, "ids": {0: B, 1: N}},
        outputs=["scores", "pairs", "sums", "flags"],
        ranges={"ids": (0, 9)},
    )
