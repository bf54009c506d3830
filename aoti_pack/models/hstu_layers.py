"""The parts of HSTU: token embedding with learned positions, and one layer."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from aoti_pack.errors import UserError
from aoti_pack.models.hstu_attention import Attention, RelativeBias
from aoti_pack.models.hstu_config import HSTUConfig


def known_or_zero(ids: Tensor, rows: int) -> Tensor:
    """`ids`, with 0 (the unknown row) for each id outside `0 … rows - 1`."""
    return torch.where((ids >= 0) & (ids < rows), ids, 0)


class TokenEmbedding(nn.Module):
    """Item, action and contextual tables, and learned positions: `embedding · √D + position`.

    Contextual feature j stands at position j; item i and action i at `features + i`; a candidate behind a
    prefix of p events at `features + p`.
    """

    def __init__(self, config: HSTUConfig) -> None:
        super().__init__()
        self.features = [name for name, _ in config.contextual]
        self.scale = config.hidden**0.5
        self.item = nn.Embedding(config.items + 1, config.hidden)
        self.action = nn.Embedding(config.actions + 1, config.hidden)
        sizes = dict(config.contextual)
        self.contextual = nn.ModuleDict({k: nn.Embedding(v + 1, config.hidden) for k, v in sizes.items()})
        self.position = nn.Embedding(len(sizes) + config.max_history + 1, config.hidden)

    def _look_up(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        scaled: Tensor = table(known_or_zero(ids, table.num_embeddings)) * self.scale
        return scaled

    def history(self, item_ids: Tensor, actions: Tensor, contextual: dict[str, Tensor]) -> Tensor:
        """Contextual and history tokens: `[b, features + 2n, D]` from ids `[b, n]` and features `[b]`."""
        if set(contextual) != set(self.features):
            raise UserError(f"contextual features must be {sorted(self.features)}, got {sorted(contextual)}")
        b, n = item_ids.shape
        first = len(self.features)
        place: Tensor = self.position.weight[first : first + n]
        item = self._look_up(self.item, item_ids) + place
        # Action buckets count from 0: shift past the unknown row, and let a negative one fall into it.
        shifted = actions.clamp(min=-1, max=self.action.num_embeddings) + 1
        action = self._look_up(self.action, shifted) + place
        events = torch.stack([item, action], dim=2).view(b, 2 * n, -1)
        if not self.features:
            return events
        tables = [cast(nn.Embedding, self.contextual[name]) for name in self.features]
        given = [contextual[name] for name in self.features]
        tokens = [self._look_up(table, ids) for table, ids in zip(tables, given, strict=True)]
        return torch.cat([torch.stack(tokens, dim=1) + self.position.weight[:first], events], dim=1)

    def candidates(self, candidate_ids: Tensor, prefix: Tensor) -> Tensor:
        """Candidate tokens `[b, g, c, D]` from ids `[b, g, c]` behind `prefix` events `[b, g]`."""
        place: Tensor = self.position(prefix + len(self.features))
        return self._look_up(self.item, candidate_ids) + place.unsqueeze(2)


class HSTULayer(nn.Module):
    """One layer. It sees tokens, not their layout: `attention` knows who sees whom."""

    def __init__(self, config: HSTUConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.heads, config.head_dim
        width = config.heads * config.head_dim
        self.norm_in = nn.LayerNorm(config.hidden, eps=config.epsilon)
        self.uvqk = nn.Linear(config.hidden, 4 * width)
        self.norm_attention = nn.LayerNorm(width, eps=config.epsilon)
        self.out = nn.Linear(width, config.hidden, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.bias = RelativeBias(
            config.position_buckets if config.position_bias else None,
            config.time_buckets if config.time_bias else None,
        )

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        """`[b, t, D]` to `[b, t, D]`."""
        b, t, _ = x.shape
        u, v, q, k = functional.silu(self.uvqk(self.norm_in(x))).chunk(4, dim=-1)
        q, k, v = (part.view(b, t, self.heads, self.head_dim) for part in (q, k, v))
        attended = attention(q, k, v, self.bias).reshape(b, t, self.heads * self.head_dim)
        result: Tensor = x + self.out(self.dropout(u * self.norm_attention(attended)))
        return result
