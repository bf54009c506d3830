"""The value that fills an optional input: what a dtype can hold, said once for recipe and manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# The largest finite value; float64 holds every finite number of Python's and of JSON's.
_LARGEST: Mapping[str, float] = {
    "float16": 65504.0,
    "bfloat16": 2.0**127 * (2 - 2.0**-7),
    "float32": 2.0**127 * (2 - 2.0**-23),
    "float64": 2.0**1023 * (2 - 2.0**-52),
}


def fill_fault(dtype: str, value: object) -> str | None:
    """What was expected instead of `value` as the fill of an input of `dtype` (torch's name), None if it fits."""
    if dtype == "bool":
        return None if isinstance(value, bool) else "True or False"
    if found := re.fullmatch(r"(u?)int(\d+)", dtype):
        bits = int(found[2])
        low, high = (0, (1 << bits) - 1) if found[1] else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a whole number from {low} to {high}"
    largest = _LARGEST[dtype]
    # Neither an infinity nor a NaN is at most the largest.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= largest:
        return None
    return f"a finite number that {dtype} holds"


def filled(
    shape: Sequence[int], value: int | float | bool, dtype: torch.dtype, device: str = "cpu"
) -> torch.Tensor:
    """A tensor of `value` everywhere, as the backend fills an input that a request leaves out."""
    import torch

    # torch.full takes no scalar beyond int64; as a tensor it is exact.
    return torch.tensor(value, dtype=dtype, device=device).expand(list(shape)).contiguous()
