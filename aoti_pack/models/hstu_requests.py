"""Requests for an HSTU model: drawn at random for proofs and load, or a given history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aoti_pack.models.hstu_config import HSTUConfig

_START = 1_600_000_000  # Unix seconds: past the integers that float32 holds, as real timestamps are
_SPREAD = 100_000_000  # seconds, about three years
_LONGEST_GAP = 30 * 24 * 3600


def _zipf(generator: torch.Generator, items: int, *shape: int) -> Tensor:
    """Ids 1 … items, id k about as often as 1 / k."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return ((items + 1) ** uniform).long().clamp(1, items)


def _gaps(generator: torch.Generator, *shape: int) -> Tensor:
    """Seconds between events, 0 … 30 days, log-uniform: most events fall into sessions."""
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    return ((_LONGEST_GAP + 1) ** uniform).long() - 1


def draw_inputs(config: HSTUConfig, generator: torch.Generator, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Inputs of `HSTU.forward` for exactly `sizes` b, n and c.

    Item ids are Zipf-like, timestamps grow, lengths are spread over 0 … n, and padding is zero.
    """
    b, n, c = sizes["b"], sizes["n"], sizes["c"]
    lengths = torch.randint(0, n + 1, (b,), generator=generator)
    real = torch.arange(n) < lengths.unsqueeze(1)
    start = _START + torch.randint(0, _SPREAD, (b, 1), generator=generator)
    timestamps = start + _gaps(generator, b, n).cumsum(1)
    last = torch.where(real, timestamps, start).amax(1)
    inputs: dict[str, Any] = {
        "item_ids": torch.where(real, _zipf(generator, config.items, b, n), 0),
        "actions": torch.where(real, torch.randint(0, config.actions, (b, n), generator=generator), 0),
        "timestamps": torch.where(real, timestamps, 0),
        "lengths": lengths,
        "candidate_ids": _zipf(generator, config.items, b, c),
        "request_time": last + _gaps(generator, b),
    }
    if config.contextual:
        inputs["contextual"] = {
            name: torch.randint(1, size + 1, (b,), generator=generator) for name, size in config.contextual
        }
    return inputs
