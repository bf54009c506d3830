"""Relative bias and pointwise attention of HSTU in padded (dense) form.

Zhai et al. 2024, "Actions Speak Louder than Words", equation 3: `A = SiLU(Q Kᵀ / √d + rab) / N`, masked.
A layer hands its q, k, v and its bias tables to an attention object; which pairs exist, and how tokens are
laid out in memory, is known here alone. A ragged or a cached attention takes the same four arguments.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN = -1e4  # a hidden pair's bias: SiLU of it is 0 exactly, in every dtype
NO_DISTANCE = 0  # bucket of a pair whose key is a contextual token: it has neither place nor time


def log_boundaries(count: int, span: int) -> list[int]:
    """`count` strictly growing integers from 1 to about `span`, geometric where integers allow it.

    Integers, so that a distance falls into the same bucket eager and compiled, on every device.
    """
    bounds = [1]
    for step in range(1, count):
        bounds.append(max(bounds[-1] + 1, round(span ** (step / (count - 1)))))
    return bounds


class Buckets(nn.Module):
    """Turns distances of tokens (in places, and in time) into one bucket id a pair, in int64 throughout.

    Position bucket 0 (and time bucket 0) is `NO_DISTANCE`, 1 is "no gap or the wrong way round", the last is
    "span or more". A kind that is None is switched off and has the one bucket 0. The id of a pair is
    `position * time_buckets + time`; the id behind all of these means "hidden". One id, because every layer
    looks it up once for each pair: two tables and a mask would cost each layer three passes.
    """

    position_bounds: Tensor
    time_bounds: Tensor

    def __init__(
        self, position_buckets: int | None, max_tokens: int, time_buckets: int | None, time_span: int
    ) -> None:
        super().__init__()
        self.by_position, self.by_time = position_buckets is not None, time_buckets is not None
        self.position_buckets, self.time_buckets = position_buckets or 1, time_buckets or 1
        position = log_boundaries(self.position_buckets - 2, max_tokens) if self.by_position else []
        time = log_boundaries(self.time_buckets - 2, time_span) if self.by_time else []
        self.register_buffer("position_bounds", torch.tensor(position), persistent=False)
        self.register_buffer("time_bounds", torch.tensor(time), persistent=False)

    def forward(
        self,
        query_place: Tensor,
        query_time: Tensor,
        key_place: Tensor,
        key_time: Tensor,
        timed: Tensor,
        visible: Tensor,
    ) -> Tensor:
        """Bucket ids of all pairs of queries `[..., q]` and keys `[..., k]`: `[..., q, k]`.

        `timed` (bool, `[k]`) is false for contextual keys; `visible` (bool) broadcasts to the result. The time
        gap is the difference of two int64 timestamps: Unix seconds do not survive a float32.
        """
        pair = torch.zeros_like(visible, dtype=torch.int64)
        if self.by_position:
            places = query_place.unsqueeze(-1) - key_place.unsqueeze(-2)
            bucket = 1 + torch.bucketize(places, self.position_bounds, right=True)
            pair = pair + self.time_buckets * torch.where(timed, bucket, NO_DISTANCE)
        if self.by_time:
            gaps = query_time.unsqueeze(-1) - key_time.unsqueeze(-2)
            bucket = 1 + torch.bucketize(gaps, self.time_bounds, right=True)
            pair = pair + torch.where(timed, bucket, NO_DISTANCE)
        return torch.where(visible, pair, self.position_buckets * self.time_buckets)


class RelativeBias(nn.Module):
    """`rab` of one layer, shared by its heads: one learned number a position bucket, one a time bucket."""

    def __init__(self, position_buckets: int | None, time_buckets: int | None) -> None:
        super().__init__()
        self.position = None if position_buckets is None else nn.Parameter(torch.zeros(position_buckets))
        self.time = None if time_buckets is None else nn.Parameter(torch.zeros(time_buckets))

    def forward(self, pairs: Tensor, like: Tensor) -> Tensor:
        """The bias of each pair of `Buckets`, in `like`'s dtype; `HIDDEN` where it is hidden."""
        nothing = like.new_zeros(1)
        position = nothing if self.position is None else self.position
        time = nothing if self.time is None else self.time
        table = (position.unsqueeze(1) + time).flatten()
        return torch.cat([table, like.new_full((1,), HIDDEN)])[pairs]


class Attention(Protocol):
    """What a layer calls: q, k, v `[b, t, heads, d]` over all tokens, to `A V` of the same shape."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """Attend from every token to the tokens that it may see."""


def pointwise(scores: Tensor, v: Tensor, normaliser: int) -> Tensor:
    """`SiLU(scores) / N · V`; dividing after the product is the same sum and a smaller tensor."""
    return functional.silu(scores) @ v / normaliser


class DenseAttention:
    """Attention over `[history of s tokens | g groups of c candidates]`, padded.

    History sees history causally (an s by s matrix); a candidate sees the part of the history that its group
    may see (c by s) and itself (a diagonal). No candidate-by-candidate matrix exists.
    """

    def __init__(self, *, history: Tensor, candidates: Tensor, itself: Tensor, normaliser: int) -> None:
        """Pairs of `Buckets`: history `[b, s, s]`; candidates `[b, g, s]`, shared by a group; itself `[1, 1]`."""
        self.history = history
        self.candidates = candidates
        self.itself = itself
        self.normaliser = normaliser

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """See `Attention`; t = s + g · c."""
        s = self.history.shape[-1]
        q = q.transpose(1, 2) * q.shape[-1] ** -0.5
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        past_k, past_v = k[:, :, :s], v[:, :, :s]
        history = self._history(q[:, :, :s], past_k, past_v, bias)
        past = self._past(q[:, :, s:], past_k, past_v, bias)
        itself = (q[:, :, s:] * k[:, :, s:]).sum(-1, keepdim=True) + bias(self.itself, q)
        candidates = past + functional.silu(itself) / self.normaliser * v[:, :, s:]
        return torch.cat([history, candidates], dim=2).transpose(1, 2)

    def _history(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        rab = bias(self.history, q).unsqueeze(1)
        return pointwise(q @ k.transpose(-1, -2) + rab, v, self.normaliser)

    def _past(self, q: Tensor, k: Tensor, v: Tensor, bias: RelativeBias) -> Tensor:
        """What candidates take from the history. The bias of a pair depends on the group alone."""
        b, g, s = self.candidates.shape
        rab = bias(self.candidates, q)[:, None, :, None, :]
        scores = q @ k.transpose(-1, -2)
        grouped = scores.view(b, q.shape[1], g, q.shape[2] // g, s) + rab
        return pointwise(grouped.view(scores.shape), v, self.normaliser)
