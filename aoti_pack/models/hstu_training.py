"""Next-item training of HSTU: many cut points of one sequence in one pass, sampled softmax at each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from aoti_pack.models.hstu import HSTU
from aoti_pack.models.ratings import History, Ids


@dataclass(frozen=True)
class Schedule:
    """How long and how hard to train.

    A step draws `batch` windows of at most `max_history + 1` events, a user with m events as often as
    m ^ `windows_power`. In each, up to `cuts` events are predicted from those before them, against `negatives`
    items drawn by (popularity + 1) ^ `negative_power`. An epoch has about a cut for each event. `rate` is the
    peak learning rate, reached after the share `warm_up` of all steps.
    """

    epochs: int = 3
    batch: int = 8
    cuts: int = 24
    negatives: int = 15
    negative_power: float = 1.0
    rate: float = 3e-3
    warm_up: float = 0.05
    weight_decay: float = 0.01
    windows_power: float = 0.5


@dataclass(frozen=True)
class Batch:
    """`[b, n]` history, `[b]` lengths, and g cut points: `candidates` `[b, g, 1 + negatives]`, positive first.

    `allowed` (bool, as candidates) is false where a drawn negative is the positive or an item of the window.
    """

    item_ids: Tensor
    actions: Tensor
    timestamps: Tensor
    lengths: Tensor
    candidates: Tensor
    prefix: Tensor
    times: Tensor
    allowed: Tensor
    real: Tensor


class Sampler:
    """Draws batches from training histories (and from nothing else), in an order given by a seed."""

    def __init__(
        self,
        train: list[History],
        buckets: list[Ids],
        counts: Ids,
        max_history: int,
        schedule: Schedule,
        seed: int,
    ) -> None:
        """`buckets` are the action ids of each history, `counts` how often each item occurs in them."""
        self.train, self.buckets = train, buckets
        self.max_history = max_history
        self.schedule = schedule
        self.random = np.random.default_rng(seed)
        weight = (counts + 1.0) ** schedule.negative_power
        self.items = len(counts)
        chance = weight / weight.sum()
        self.cumulative = np.cumsum(chance)
        self.log_chance = torch.from_numpy(np.log(chance)).float()
        share = np.array([len(history) for history in train], dtype=np.float64) ** schedule.windows_power
        self.share = share / share.sum()
        total = sum(len(history) for history in train)
        self.steps = max(1, total // (schedule.batch * schedule.cuts))

    def epoch(self) -> Iterator[Batch]:
        """About as many cut points as there are events."""
        for _ in range(self.steps):
            yield self.draw()

    def _negatives(self, *shape: int) -> Ids:
        drawn = np.searchsorted(self.cumulative, self.random.random(shape)) + 1
        return np.minimum(drawn, self.items).astype(np.int64)

    def draw(self) -> Batch:
        """One batch."""
        size, cuts = self.schedule.batch, self.schedule.cuts
        users = self.random.choice(len(self.train), size, p=self.share)
        windows = []
        for user in users:
            count = len(self.train[user])
            length = min(count, self.max_history + 1)
            start = int(self.random.integers(0, count - length + 1))
            windows.append((user, start, length))
        n = max(max(length for _, _, length in windows) - 1, 1)
        item, action, time = (np.zeros((size, n), dtype=np.int64) for _ in range(3))
        target, prefix, times = (np.zeros((size, cuts), dtype=np.int64) for _ in range(3))
        real = np.zeros((size, cuts), dtype=bool)
        in_window = np.zeros((size, self.items + 1), dtype=bool)
        for row, (user, start, length) in enumerate(windows):
            history, part = self.train[user], slice(start, start + length)
            ids, when = history.item[part], history.timestamp[part]
            item[row, : length - 1] = ids[:-1]
            action[row, : length - 1] = self.buckets[user][part][:-1]
            time[row, : length - 1] = when[:-1]
            chosen = np.sort(self.random.permutation(length)[:cuts])
            target[row, : len(chosen)] = ids[chosen]
            prefix[row, : len(chosen)] = chosen
            times[row, : len(chosen)] = when[chosen]
            real[row, : len(chosen)] = True
            in_window[row, ids] = True
        negatives = self._negatives(size, cuts, self.schedule.negatives)
        clash = in_window[np.arange(size)[:, None, None], negatives]
        allowed = np.concatenate([np.ones((size, cuts, 1), dtype=bool), ~clash], axis=2)
        candidates = np.concatenate([target[:, :, None], negatives], axis=2)
        arrays = [
            item,
            action,
            time,
            np.array([length - 1 for _, _, length in windows]),
            candidates,
            prefix,
            times,
            allowed,
            real,
        ]
        return Batch(*(torch.from_numpy(array) for array in arrays))


def sampled_softmax(scores: Tensor, batch: Batch, log_chance: Tensor) -> Tensor:
    """Mean cross-entropy of the positives, with the correction `- log q` for the way negatives were drawn.

    Bengio and Senécal 2008, "Adaptive Importance Sampling to Accelerate Training of a Neural Probabilistic
    Language Model"; the positive takes its own chance of being drawn.
    """
    corrected = scores - log_chance[(batch.candidates - 1).clamp(min=0)]
    logits = corrected.masked_fill(~batch.allowed, float("-inf"))[batch.real]
    return functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))


def rate_share(step: int, steps: int, warm_up: float) -> float:
    """Share of the peak rate at `step` (from 0): linear up to 1 over `warm_up` of all steps, cosine to 0."""
    return min(1.0, (step + 1) / max(1.0, warm_up * steps)) * (1 + math.cos(math.pi * step / steps)) / 2


def fit(model: HSTU, sampler: Sampler, each: Callable[[float], None]) -> list[float]:
    """Train `model` in place by AdamW with warm-up and cosine decay; the mean loss of each epoch.

    `each` is called after every step with its loss.
    """
    schedule = sampler.schedule
    steps = schedule.epochs * sampler.steps
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=schedule.rate,
        weight_decay=schedule.weight_decay,
        betas=(0.9, 0.98),
        fused=True,
    )
    decay = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: rate_share(step, steps, schedule.warm_up)
    )
    model.train()
    losses = []
    for _ in range(schedule.epochs):
        total = 0.0
        for batch in sampler.epoch():
            scores = model.score_groups(
                batch.item_ids,
                batch.actions,
                batch.timestamps,
                batch.lengths,
                batch.candidates,
                batch.prefix,
                batch.times,
            )
            loss = sampled_softmax(scores, batch, sampler.log_chance)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            decay.step()
            total += float(loss.detach())
            each(float(loss.detach()))
        losses.append(total / sampler.steps)
    model.eval()
    return losses


def action_levels(rating: NDArray[np.float64], actions: int) -> list[float]:
    """The lower bounds of rating buckets 1 … : midpoints of the distinct ratings, or quantiles if many."""
    distinct = np.unique(rating)
    if len(distinct) > actions:
        distinct = np.unique(np.quantile(rating, np.linspace(0, 1, actions)))
    return [float(value) for value in (distinct[1:] + distinct[:-1]) / 2]


def bucketed(rating: NDArray[np.float64], levels: list[float]) -> Ids:
    """Action ids 0 … len(levels) of ratings."""
    return np.searchsorted(np.array(levels), rating, side="right").astype(np.int64)
