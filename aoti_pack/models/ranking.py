"""Full ranking of unseen items: HR@10 and NDCG@10 of a model and of the popularity baseline."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aoti_pack.models.ratings import History, Ids, Split

TOP = 10
Scorer = Callable[[History, int], NDArray[np.float64]]
"""(visible history, request time) to the scores of all items, `[items]`, entry i for dense id i + 1."""


@dataclass(frozen=True)
class Quality:
    """Means over users with one held-out event each: hit rate and NDCG of the 10 best unseen items."""

    hr10: float
    ndcg10: float
    users: int


def popularity(split: Split, items: int) -> Ids:
    """How often each item was rated in the training data, `[items]`."""
    counts: Ids = np.zeros(items, dtype=np.int64)
    for history in split.train:
        np.add.at(counts, history.item - 1, 1)
    return counts


def rank_of(scores: NDArray[np.float64], target: int, seen: Ids) -> float:
    """Rank (0 is best) of dense id `target` among the items not in `seen`; ties count half.

    A constant scorer must look like chance, so a tied item neither helps nor hurts.
    """
    rivals = np.ones(len(scores), dtype=bool)
    rivals[seen - 1] = False
    rivals[target - 1] = False
    others = scores[rivals]
    mine = scores[target - 1]
    return float((others > mine).sum() + (others == mine).sum() / 2)


def evaluate(
    split: Split, score: Scorer, each: Callable[[], None] = lambda: None, workers: int = 1
) -> Quality:
    """Rank every user's held-out item among all items that the user had not rated before it.

    `score` sees the training history and the time of the held-out event, nothing later; `workers` threads call
    it at the same time. `each` is called after every user. The result does not depend on `workers`.
    """

    def rank(user: int) -> float:
        history, held_out = split.train[user], split.held_out[user]
        scores = score(history, int(held_out.timestamp[0]))
        return rank_of(scores, int(held_out.item[0]), history.item)

    hits, gains = [], []
    with ThreadPoolExecutor(workers) as pool:
        for place in pool.map(rank, range(len(split.train))):
            hits.append(place < TOP)
            gains.append(1 / np.log2(place + 2) if place < TOP else 0.0)
            each()
    return Quality(float(np.mean(hits)), float(np.mean(gains)), len(hits))
