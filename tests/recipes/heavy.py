"""A model whose weights, 32 MB of them, show in a process's memory."""

import torch
from torch import nn

from aoti_pack.recipe import Recipe

B = torch.export.Dim("b", min=1, max=8)


class Heavy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2048, 4096, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


recipe = Recipe(
    name="heavy",
    model=Heavy,
    inputs={"x": torch.randn(3, 2048)},
    dynamic={"x": {0: B}},
    outputs=["y"],
)
