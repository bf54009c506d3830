"""Relative bias and pointwise attention of HSTU in padded (dense) form.

Zhai et al. 2024, "Actions Speak Louder than Words", equation 3: `A = SiLU(Q Kᵀ / √d + rab) / N`, masked.
A layer hands its q, k, v and its bias tables to an attention object; which pairs exist, and how tokens are
laid out in memory, is known here alone. A ragged or a cached attention takes the same four arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN = -1e4
NO_DISTANCE = 0  # bucket of a pair whose key is a contextual token: it has neither place nor time


def log_boundaries(count: int, span: int) -> list[int]:
    """`count` strictly growing integers from 1 to about `span`, geometric where integers allow it.

    Integers, so that a distance falls into the same bucket eager and compiled, on every device.
    """
    bounds = [1]
    for step in range(1, count):
        bounds.append(max(bounds[-1] + 1, round(span ** (step / (count - 1)))))
    return bounds


@dataclass(frozen=True)
class Pairs:
    """Bucket ids (int64) of query-key pairs; the two broadcast against each other."""

    position: Tensor
    time: Tensor


class Buckets(nn.Module):
    """Turns distances of tokens (in places, and in time) into bucket ids, in int64 throughout.

    Bucket 0 is `NO_DISTANCE`, bucket 1 is "no gap or the wrong way round", the last is "span or more".
    """

    position_bounds: Tensor
    time_bounds: Tensor

    def __init__(self, position_buckets: int, max_tokens: int, time_buckets: int, time_span: int) -> None:
        super().__init__()
        position = torch.tensor(log_boundaries(position_buckets - 2, max_tokens))
        time = torch.tensor(log_boundaries(time_buckets - 2, time_span))
        self.register_buffer("position_bounds", position, persistent=False)
        self.register_buffer("time_bounds", time, persistent=False)

    def forward(
        self, query_place: Tensor, query_time: Tensor, key_place: Tensor, key_time: Tensor, timed: Tensor
    ) -> Pairs:
        """Buckets of all pairs of queries `[..., q]` and keys `[..., k]`: `[..., q, k]`.

        `timed` (bool, `[k]`) is false for contextual keys. The time gap is the difference of two int64
        timestamps: Unix seconds do not survive a float32.
        """
        places = query_place.unsqueeze(-1) - key_place.unsqueeze(-2)
        gaps = query_time.unsqueeze(-1) - key_time.unsqueeze(-2)
        position = 1 + torch.bucketize(places, self.position_bounds, right=True)
        time = 1 + torch.bucketize(gaps, self.time_bounds, right=True)
        return Pairs(torch.where(timed, position, NO_DISTANCE), torch.where(timed, time, NO_DISTANCE))


class RelativeBias(nn.Module):
    """`rab` of one layer, shared by its heads: one learned number a position bucket, one a time bucket."""

    def __init__(self, position_buckets: int | None, time_buckets: int | None) -> None:
        super().__init__()
        self.position = None if position_buckets is None else nn.Parameter(torch.zeros(position_buckets))
        self.time = None if time_buckets is None else nn.Parameter(torch.zeros(time_buckets))

    def forward(self, pairs: Pairs, like: Tensor) -> Tensor:
        """The bias of each pair, `[..., q, k]`; zero, of `like`'s dtype, when both kinds are switched off."""
        position = None if self.position is None else self.position[pairs.position]
        time = None if self.time is None else self.time[pairs.time]
        if position is not None and time is not None:
            return position + time
        one = time if position is None else position
        return like.new_zeros(1) if one is None else one


class Attention(Protocol):
    """What a layer calls: q, k, v `[b, t, heads, d]` over all tokens, to `A V` of the same shape."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """Attend from every token to the tokens that it may see."""


def pointwise(scores: Tensor, v: Tensor, normaliser: int) -> Tensor:
    """`SiLU(scores) / N · V`; dividing after the product is the same sum and a smaller tensor."""
    return functional.silu(scores) @ v / normaliser


def masked(rab: Tensor, visible: Tensor) -> Tensor:
    """`rab`, and `HIDDEN` where a pair must weigh nothing: `SiLU(HIDDEN)` is 0 exactly, in every dtype."""
    return torch.where(visible, rab, HIDDEN)


class DenseAttention:
    """Attention over `[history of s tokens | g groups of c candidates]`, padded.

    History sees history causally (an s by s matrix); a candidate sees the part of the history that its group
    may see (c by s) and itself (a diagonal). No candidate-by-candidate matrix exists.
    """

    def __init__(
        self,
        *,
        history: Pairs,
        history_visible: Tensor,
        candidates: Pairs,
        candidates_visible: Tensor,
        itself: Pairs,
        normaliser: int,
    ) -> None:
        """Pairs and masks: history `[s, s]` (its times `[b, s, s]`), candidates `[b, g, s]`, itself `[1, 1]`."""
        self.history = history
        self.history_visible = history_visible
        self.candidates = candidates
        self.candidates_visible = candidates_visible
        self.itself = itself
        self.normaliser = normaliser

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """See `Attention`; t = s + g · c."""
        s = self.history_visible.shape[-1]
        q = q.transpose(1, 2) * q.shape[-1] ** -0.5
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        past_k, past_v = k[:, :, :s], v[:, :, :s]
        history = self._history(q[:, :, :s], past_k, past_v, bias)
        past = self._past(q[:, :, s:], past_k, past_v, bias)
        itself = (q[:, :, s:] * k[:, :, s:]).sum(-1, keepdim=True) + bias(self.itself, q)
        candidates = past + functional.silu(itself) / self.normaliser * v[:, :, s:]
        return torch.cat([history, candidates], dim=2).transpose(1, 2)

    def _history(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        rab = masked(bias(self.history, q), self.history_visible).unsqueeze(-3)
        return pointwise(q @ k.transpose(-1, -2) + rab, v, self.normaliser)

    def _past(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """What candidates take from the history. The bias of a pair depends on the group alone."""
        b, g, s = self.candidates_visible.shape
        rab = masked(bias(self.candidates, q), self.candidates_visible)[:, None, :, None, :]
        scores = q @ k.transpose(-1, -2)
        grouped = scores.view(b, q.shape[1], g, q.shape[2] // g, s) + rab
        return pointwise(grouped.view(scores.shape), v, self.normaliser)
