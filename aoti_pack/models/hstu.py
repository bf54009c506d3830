"""HSTU: a generative recommender that ranks candidates against a user's history of actions.

Zhai et al. 2024, "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
Recommendations". Tokens: `[contextual | item, action, item, action, … | candidates]`.

What a token becomes depends on the tokens before it and on nothing else: positions are counted from the
start, the time bias uses the two tokens' own timestamps, N is a constant. So keys and values of a prefix
stay valid while a history grows.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from aoti_pack.errors import UserError
from aoti_pack.models.checkpoint import Checkpoint
from aoti_pack.models.hstu_attention import Buckets, DenseAttention
from aoti_pack.models.hstu_config import HSTUConfig, preset
from aoti_pack.models.hstu_layers import HSTULayer, TokenEmbedding
from aoti_pack.models.hstu_requests import draw_inputs
from aoti_pack.recipe import Recipe


class HSTU(nn.Module):
    """The ranker. `forward` answers requests; `score_groups` also trains many cut points in one pass.

    Ids outside a table (and items equal to 0) mean "unknown" and never read out of bounds; lengths beyond the
    padded length count as the padded length, negative ones as 0.
    """

    def __init__(self, config: HSTUConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config)
        self.dropout = nn.Dropout(config.dropout)
        self.buckets = Buckets(
            config.position_buckets if config.position_bias else None,
            config.max_tokens,
            config.time_buckets if config.time_bias else None,
            config.time_span,
        )
        self.layers = nn.ModuleList(HSTULayer(config) for _ in range(config.layers))
        self.norm_out = nn.LayerNorm(config.hidden, eps=config.epsilon)
        self.head = nn.Linear(config.hidden, 1)
        for module in self.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(
        self,
        item_ids: Tensor,
        actions: Tensor,
        timestamps: Tensor,
        lengths: Tensor,
        candidate_ids: Tensor,
        request_time: Tensor,
        contextual: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Scores `[b, c]` (float32; float64 in a float64 model) of candidates, each scored on its own.

        All inputs are int64: `item_ids`, `actions`, `timestamps` `[b, n]` padded behind `lengths` `[b]`;
        `candidate_ids` `[b, c]`; `request_time` `[b]` in the unit of the timestamps; `contextual` one `[b]`
        per feature of the configuration.
        """
        scores = self.score_groups(
            item_ids,
            actions,
            timestamps,
            lengths,
            candidate_ids.unsqueeze(1),
            lengths.unsqueeze(1),
            request_time.unsqueeze(1),
            contextual,
        )
        return scores.squeeze(1)

    def score_groups(
        self,
        item_ids: Tensor,
        actions: Tensor,
        timestamps: Tensor,
        lengths: Tensor,
        candidate_ids: Tensor,
        prefix: Tensor,
        times: Tensor,
        contextual: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Scores `[b, g, c]`: group g's candidates see the first `prefix[b, g]` events, at `times[b, g]`."""
        x = self.hidden_states(
            item_ids, actions, timestamps, lengths, candidate_ids, prefix, times, contextual
        )
        first = len(self.config.contextual) + 2 * item_ids.shape[1]
        x = self.norm_out(x[:, first:])
        # Scores order thousands of candidates: 8 bits of mantissa would tie them.
        precise = torch.promote_types(x.dtype, torch.float32)
        scores = (x.to(precise) * self.head.weight[0].to(precise)).sum(-1) + self.head.bias.to(precise)
        grouped: Tensor = scores.view(candidate_ids.shape)
        return grouped

    def hidden_states(
        self,
        item_ids: Tensor,
        actions: Tensor,
        timestamps: Tensor,
        lengths: Tensor,
        candidate_ids: Tensor,
        prefix: Tensor,
        times: Tensor,
        contextual: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """The last layer's output for all tokens, `[b, features + 2n + g · c, D]`; see `score_groups`."""
        b, n = item_ids.shape
        event = torch.arange(n, device=item_ids.device)
        seen = event < torch.minimum(prefix, lengths.unsqueeze(1)).unsqueeze(2)
        behind = seen.sum(-1)
        history = self.embedding.history(item_ids, actions, contextual or {})
        candidates = self.embedding.candidates(candidate_ids, behind)
        attention = self._dense_attention(timestamps, seen, behind, times)
        x: Tensor = self.dropout(torch.cat([history, candidates.view(b, -1, history.shape[-1])], dim=1))
        for layer in self.layers:
            x = layer(x, attention)
        return x

    def _dense_attention(
        self, timestamps: Tensor, seen: Tensor, behind: Tensor, times: Tensor
    ) -> DenseAttention:
        # Sizes come from one input: torch.export would guard on a difference between two.
        b, _, n = seen.shape
        features = len(self.config.contextual)
        place = torch.arange(features + 2 * n, device=timestamps.device)
        timed = place >= features
        both = _twice(timestamps)
        time = torch.cat([both.new_zeros(b, features), both], dim=1)
        zero = place.new_zeros(1)
        # Padding stands behind every real event, so causality alone hides it.
        causal = (place.unsqueeze(1) >= place).expand(b, -1, -1)
        visible = _with_features(_twice(seen), features)
        return DenseAttention(
            history=self.buckets(place, time, place, time, timed, causal),
            candidates=self.buckets(features + 2 * behind, times, place, time, timed, visible),
            itself=self.buckets(zero, zero, zero, zero, timed[-1:], timed[-1:].unsqueeze(0)),
            normaliser=self.config.normaliser,
        )


def _twice(per_event: Tensor) -> Tensor:
    """`[..., n]` to `[..., 2n]`: an event's value for its item token and for its action token."""
    return torch.stack([per_event, per_event], dim=-1).flatten(-2)


def _with_features(visible: Tensor, features: int) -> Tensor:
    """Put `features` visible contextual tokens before `visible` `[..., 2n]`."""
    return torch.cat([visible.new_ones(*visible.shape[:-1], features), visible], dim=-1)


def recipe(config: str = "tiny", checkpoint: str = "", seed: int = 0, **overrides: object) -> Recipe:
    """The recipe of an HSTU ranker: a preset with random weights, or a trained checkpoint.

    config: a preset's name (ignored with a checkpoint, which brings its own).
    checkpoint: a folder written by `aoti_pack.models.train_hstu`, or its `checkpoint.pt`.
    seed: of the random weights and of the example.
    overrides: settings of `HSTUConfig`; with a checkpoint only `max_batch` and `max_candidates`.
    """
    if checkpoint:
        saved = Checkpoint.load(Path(checkpoint))
        refused = sorted(set(overrides) - {"max_batch", "max_candidates"})
        if refused:
            raise UserError(
                f"a trained checkpoint fixes {', '.join(refused)}",
                mend="override max_batch or max_candidates",
            )
        sizes = saved.config.replaced(**overrides)
    else:
        saved, sizes = None, preset(config).replaced(**overrides)

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = HSTU(sizes)
        if saved is not None:
            model.load_state_dict(saved.state)
        return model.eval()

    dim = torch.export.Dim
    b = dim("b", min=1, max=sizes.max_batch)
    n = dim("n", min=1, max=sizes.max_history)
    c = dim("c", min=1, max=sizes.max_candidates)
    rows = {0: b}
    example = {
        "b": min(3, sizes.max_batch),
        "n": min(7, sizes.max_history),
        "c": min(5, sizes.max_candidates),
    }
    name = "trained" if saved is not None else config.replace("-", "_")
    return Recipe(
        name=f"hstu_{name}",
        model=build,
        inputs=draw_inputs(sizes, torch.Generator().manual_seed(seed), example),
        outputs=["scores"],
        dynamic={
            **{path: {0: b, 1: n} for path in ("item_ids", "actions", "timestamps")},
            "lengths": rows,
            "candidate_ids": {0: b, 1: c},
            "request_time": rows,
            **{f"contextual.{feature}": rows for feature, _ in sizes.contextual},
        },
        sample=lambda generator, drawn: draw_inputs(sizes, generator, drawn),
    )
