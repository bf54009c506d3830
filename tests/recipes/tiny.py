"""The smallest model that has a vectorised kernel, a library call and buffers whose order Python draws anew."""

import torch
from torch import nn

from aoti_pack.recipe import Recipe

B = torch.export.Dim("b", min=1, max=8)
SCALES = ("alpha", "beta", "gamma", "delta")


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 24)
        for number, name in enumerate(SCALES):
            # Names of buffers that are not saved lie in a set.
            self.register_buffer(name, torch.full((24,), 1.0 + number), persistent=False)

    def forward(self, x):
        scale = self.alpha * self.beta + self.gamma - self.delta
        return torch.tanh(self.layer(x)) * scale


def recipe(rows: int = 3) -> Recipe:
    return Recipe(
        name="tiny", model=Tiny, inputs={"x": torch.randn(rows, 4)}, dynamic={"x": {0: B}}, outputs=["y"]
    )
