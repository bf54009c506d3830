"""What tests/recipes/structure.py imports from beside itself."""

from dataclasses import dataclass
from typing import NamedTuple

import torch


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class User:
    age: torch.Tensor
    note: torch.Tensor | None
    height: torch.Tensor


torch.export.register_dataclass(User)


def blend(pair: Pair) -> torch.Tensor:
    return pair.left - 2 * pair.right
