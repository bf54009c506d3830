"""Scoring real histories with a trained HSTU: the whole catalogue, and one user's request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aoti_pack.errors import UserError
from aoti_pack.models.checkpoint import Checkpoint
from aoti_pack.models.hstu import HSTU
from aoti_pack.models.hstu_training import bucketed
from aoti_pack.models.ratings import History, Ratings, histories

CHUNK = 1024  # candidates a pass: the attention weights stay in cache


@dataclass(frozen=True)
class DemoRequest:
    """A real user's request: `inputs` of `HSTU.forward` with b = 1, and names to print.

    `history` are the titles of the visible events, oldest first; `candidates` the titles behind
    `inputs["candidate_ids"]`. `next_item` is the title that the user in fact went on to.
    """

    user: str
    inputs: dict[str, Tensor]
    history: Sequence[str]
    candidates: Sequence[str]
    next_item: str


def request(
    history: History, candidates: Tensor, time: int, levels: Sequence[float], max_history: int
) -> dict[str, Tensor]:
    """Inputs for one user, b = 1: the last `max_history` events, or one row of padding if there are none."""
    recent = slice(max(0, len(history) - max_history), None)
    item, stamp = history.item[recent], history.timestamp[recent]
    action = bucketed(history.rating[recent], list(levels))
    padding = 0 if len(item) else 1
    rows = [torch.from_numpy(np.pad(part, (0, padding))).unsqueeze(0) for part in (item, action, stamp)]
    return {
        "item_ids": rows[0],
        "actions": rows[1],
        "timestamps": rows[2],
        "lengths": torch.tensor([len(item)]),
        "candidate_ids": candidates.unsqueeze(0),
        "request_time": torch.tensor([time]),
    }


def score_catalogue(model: HSTU, levels: Sequence[float], history: History, time: int) -> NDArray[np.float64]:
    """Scores of every item, `[items]`, at `time`, given the history."""
    items = torch.arange(1, model.config.items + 1)
    parts = []
    with torch.inference_mode():
        for candidates in torch.split(items, CHUNK):
            parts.append(model(**request(history, candidates, time, levels, model.config.max_history))[0])
    scores: NDArray[np.float64] = torch.cat(parts).double().numpy()
    return scores


def demo_request(checkpoint: Path, ratings: Ratings, user: str | None = None) -> DemoRequest:
    """The request that ends with `user`'s last event held out; all unseen items are candidates.

    Candidates come from the most to the least popular, at most `max_candidates`. Without a user, the one
    with the most typical (median) number of events. `ratings` must be those of the training. Raises
    UserError for an unknown user or other ratings.
    """
    saved = Checkpoint.load(checkpoint)
    if list(ratings.items) != list(saved.items):
        raise UserError(
            f"the ratings have {len(ratings.items)} items, not the {len(saved.items)} of {checkpoint}",
            mend="give the ratings that the checkpoint was trained on",
        )
    known = [history for history in histories(ratings) if len(history) >= 2]
    if user is None:
        chosen = sorted(known, key=len)[len(known) // 2]
    else:
        found = [history for history in known if history.user == user]
        if not found:
            raise UserError(f"no user {user!r} with two events or more", mend=f"try {known[0].user}")
        chosen = found[0]
    past = chosen.first(len(chosen) - 1)
    popular = np.array(saved.popular, dtype=np.int64)
    unseen = popular[~np.isin(popular, past.item)][: saved.config.max_candidates]
    inputs = request(
        past, torch.from_numpy(unseen), int(chosen.timestamp[-1]), saved.levels, saved.config.max_history
    )
    shown = past.item[-saved.config.max_history :]
    return DemoRequest(
        user=chosen.user,
        inputs=inputs,
        history=[_name(saved, item) for item in shown],
        candidates=[_name(saved, item) for item in unseen],
        next_item=_name(saved, chosen.item[-1]),
    )


def _name(saved: Checkpoint, item: int) -> str:
    return saved.titles[item - 1] or f"item {saved.items[item - 1]}"
