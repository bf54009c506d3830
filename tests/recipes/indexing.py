"""Every kind of look-up by index, a bool mask among them, and linear layers with and without a bias."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from aoti_pack.recipe import Recipe


class Indexing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 8, padding_idx=0)
        self.hidden = nn.Linear(8, 6)
        self.out = nn.Linear(6, 4, bias=False)
        self.grid = nn.Parameter(torch.randn(5, 100))

    def forward(
        self,
        ids: torch.Tensor,
        columns: torch.Tensor,
        slots: torch.Tensor,
        divisors: torch.Tensor,
        values: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """ids, columns, slots, divisors [b, 3] int64, values [b, 10] float."""
        rows = self.table(ids).sum(1)
        dense = self.out(torch.tanh(self.hidden(rows)))
        picked = self.grid[:, ids].sum((0, 2))
        gathered = values.gather(1, columns)
        scattered = torch.zeros_like(values).scatter_add(1, slots, gathered)
        masked = torch.where(values > 0, values, values * 0.5)
        placed = torch.zeros_like(values)
        placed[torch.arange(ids.shape[0]).unsqueeze(1), slots] = gathered
        quotient = torch.div(ids, divisors, rounding_mode="trunc")
        return dense, picked, gathered, scattered, masked, placed, quotient, ids % divisors


b = Dim("b", min=1, max=16)
recipe = Recipe(
    name="indexing",
    model=Indexing,
    inputs={
        "ids": torch.randint(0, 100, (3, 3)),
        "columns": torch.randint(0, 10, (3, 3)),
        "slots": torch.randint(0, 10, (3, 3)),
        "divisors": torch.randint(1, 5, (3, 3)),
        "values": torch.randn(3, 10),
    },
    dynamic={name: {0: b} for name in ("ids", "columns", "slots", "divisors", "values")},
    outputs=["dense", "picked", "gathered", "scattered", "masked", "placed", "quotient", "remainder"],
    ranges={"ids": (0, 99), "columns": (0, 9), "slots": (0, 9), "divisors": (1, 9)},
)
