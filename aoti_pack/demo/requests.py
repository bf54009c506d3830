"""Requests for the demo: one user's whole catalogue, and many users' shortlists of one size for the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from aoti_pack.models.ratings import Ratings

# The load's requests: 100 candidates each, a common shortlist. Histories are full, so all have one shape.
SHORTLIST = 100
LOAD_USERS = 32


@dataclass(frozen=True)
class Ranking:
    """Candidates from the best to the worst, and their scores in that order."""

    order: list[int]
    scores: torch.Tensor

    def top(self, titles: Sequence[str], count: int) -> list[str]:
        """The titles of the best `count`."""
        return [titles[index] for index in self.order[:count]]


def rank(scores: torch.Tensor) -> Ranking:
    """Rank one user's scores `[c]`; equal scores keep the candidates' order."""
    import torch

    ordered, order = torch.sort(scores, descending=True, stable=True)
    return Ranking(order.tolist(), ordered)


def load_requests(checkpoint: Path, ratings: Ratings) -> list[Mapping[str, torch.Tensor]]:
    """Requests of real users with full histories, each with `SHORTLIST` candidates: one shape for all.

    Without ragged input the server joins only requests of equal shape, on both sides.
    """
    from aoti_pack.models.checkpoint import Checkpoint
    from aoti_pack.models.hstu_scoring import demo_request
    from aoti_pack.models.ratings import histories

    full = Checkpoint.load(checkpoint).config.max_history
    known = sorted(histories(ratings), key=len, reverse=True)
    users = [history.user for history in known if len(history) > full] or [known[0].user]
    requests: list[Mapping[str, torch.Tensor]] = []
    for user in users[:LOAD_USERS]:
        inputs = dict(demo_request(checkpoint, ratings, user).inputs)
        inputs["candidate_ids"] = inputs["candidate_ids"][:, :SHORTLIST].contiguous()
        requests.append(inputs)
    shape = requests[0]["item_ids"].shape
    return [one for one in requests if one["item_ids"].shape == shape]
