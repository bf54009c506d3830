"""Every way in which arguments and results nest, values that are compiled in, outputs that share memory, mutation."""

import torch
from structure_parts import Pair, User, blend
from torch import nn

from aoti_pack.recipe import Recipe

B = torch.export.Dim("b", min=1, max=16)
N = torch.export.Dim("n", min=2, max=8)


class Structure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("prior", torch.arange(3.0))
        self.register_buffer("calls", torch.zeros(1))

    def forward(
        self,
        x,
        /,
        pair,
        *rest,
        options,
        user,
        scratch,
        ids,
        twin_a,
        twin_b,
        scale,
        mode,
        loud,
        rate,
        nothing=None,
    ):
        self.calls += 1
        scratch.mul_(3)
        y = self.layer(x) * scale + blend(pair) + 4 * rest[0] - 5 * rest[1]
        y = y + options["deep"][0]["bias"][:, None] * rate + options["shift"] + user.age - 6 * user.height
        if loud and mode == "sum" and nothing is None:
            y = y + ids.sum(1, keepdim=True) + self.calls + scratch
        return {
            "logits": y,
            "aux": (x, y, Pair(twin_a * 7 - twin_b, y)),
            "prior": self.prior,
            "ones": torch.ones(2, dtype=torch.int64),
            "total": y.sum(),
        }


def example() -> dict:
    x, twin = torch.randn(3, 4), torch.rand(3, 4)
    return {
        # Not in the order of forward's parameters, and the twins are one tensor.
        "twin_b": twin,
        "options": {"shift": x + 1, "deep": [{"bias": torch.randn(3)}]},
        "rate": 0.5,
        "ids": torch.arange(15).reshape(3, 5),
        "user": User(age=x + 2, note=None, height=x + 3),
        "x": x,
        "rest": (x + 4, x + 5),
        "scale": 2,
        "pair": Pair(x + 6, x + 7),
        "mode": "sum",
        "loud": True,
        "nothing": None,
        "scratch": torch.randn(3, 4),
        "twin_a": twin,
    }


_ROWS = (
    "x",
    "pair.left",
    "pair.right",
    "rest.0",
    "rest.1",
    "options.shift",
    "options.deep.0.bias",
    "user.age",
)
_MORE_ROWS = ("user.height", "scratch", "twin_a", "twin_b")

recipe = Recipe(
    name="structure",
    model=Structure,
    inputs=example(),
    dynamic={path: {0: B} for path in (*_ROWS, *_MORE_ROWS)} | {"ids": {0: B, 1: N}},
    ranges={"ids": (0, 99)},
    mutates=["scratch", "calls"],
)
