"""Small models, one for each thing that the backend must get right."""

from __future__ import annotations

import torch
from torch.export import Dim

from aoti_pack.recipe import Recipe

B = Dim("b", min=1, max=64)
N = Dim("n", min=1, max=32)


class Arith(torch.nn.Module):
    """`sin(x) * 2 + y`, and the sum of each row."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, y: float32 [b, 16] -> [b, 16] and [b]."""
        out = torch.sin(x) * 2 + y
        return out, out.sum(1)


class Select(torch.nn.Module):
    """Integers and bools through a mask, and its opposite."""

    def forward(self, values: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """values: int32 [b, 8], mask: bool [b, 8] -> int32 [b, 8], bool [b, 8]."""
        return torch.where(mask, values * 3, -values), ~mask


class Half(torch.nn.Module):
    """Two dtypes at once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: bfloat16 [b, 4] -> bfloat16 [b, 4]."""
        return x + x


class Lookup(torch.nn.Module):
    """A table look-up with a length for each row; an id past the table throws."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
        with torch.no_grad():
            self.table.weight.copy_(torch.arange(800, dtype=torch.float32).reshape(100, 8))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """ids: int64 [b, n], lengths: int64 [b] -> float32 [b, n]; 0 from `lengths` on."""
        rows = self.table(ids).sum(-1)
        return torch.where(torch.arange(ids.shape[1]) < lengths[:, None], rows, 0.0)


class Scale(torch.nn.Module):
    """A tensor with no axes in and out, which cannot be joined."""

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: float32 [n], factor: float32 [] -> float32 [n], float32 []."""
        out = x * factor
        return out, out.sum()


class Tower(torch.nn.Module):
    """A user's history scores candidates: a tied table, a buffer without axes, one that no output reads."""

    def __init__(self, rows: int) -> None:
        """`rows` items in the table."""
        super().__init__()
        self.items = torch.nn.Embedding(rows, 16)
        self.candidates = torch.nn.Embedding(rows, 16)
        self.candidates.weight = self.items.weight
        self.norm = torch.nn.BatchNorm1d(16)
        self.mix = torch.nn.Linear(16, 16)
        self.gain = torch.nn.Parameter(torch.tensor([1.5]))
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("places", torch.linspace(0.5, 1.5, 4).unsqueeze(1), persistent=False)

    def forward(self, history: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """history: int64 [b, 4], candidates: int64 [b, n] -> float32 [b, n]."""
        seen = self.norm((self.items(history) * self.places).mean(1))
        user = torch.tanh(self.mix(seen)) * self.gain + torch.tensor([0.25] * 16)
        return (self.candidates(candidates) * user.unsqueeze(1)).sum(-1) * self.scale


def tower(rows: int = 100) -> Recipe:
    """A model whose weights are replaced while it serves."""
    torch.manual_seed(0)
    return Recipe(
        name="tower",
        model=lambda: Tower(rows),
        inputs={"history": torch.arange(12).reshape(3, 4), "candidates": torch.arange(15).reshape(3, 5)},
        dynamic={"history": {0: B}, "candidates": {0: B, 1: N}},
        outputs=["scores"],
        ranges={"history": (0, rows - 1), "candidates": (0, rows - 1)},
    )


arith = Recipe(
    name="arith",
    model=Arith,
    inputs={"x": torch.randn(3, 16), "y": torch.randn(3, 16)},
    dynamic={"x": {0: B}, "y": {0: B}},
    outputs=["out", "total"],
)
select = Recipe(
    name="select",
    model=Select,
    inputs={
        "values": torch.arange(24, dtype=torch.int32).reshape(3, 8),
        "mask": torch.arange(24).reshape(3, 8) % 2 == 0,
    },
    dynamic={"values": {0: B}, "mask": {0: B}},
    outputs=["chosen", "rest"],
)
half = Recipe(
    name="half",
    model=Half,
    inputs={"x": torch.randn(3, 4, dtype=torch.bfloat16)},
    dynamic={"x": {0: B}},
    outputs=["out"],
)
lookup = Recipe(
    name="lookup",
    model=Lookup,
    inputs={"ids": torch.arange(12).reshape(3, 4), "lengths": torch.tensor([4, 2, 1])},
    dynamic={"ids": {0: B, 1: N}, "lengths": {0: B}},
    outputs=["scores"],
    ranges={"ids": (0, 99), "lengths": (0, 32)},
)
scale = Recipe(
    name="scale",
    model=Scale,
    inputs={"x": torch.randn(5), "factor": torch.tensor(2.0)},
    dynamic={"x": {0: N}},
    outputs=["out", "total"],
    batch=None,
)
