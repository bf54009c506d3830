"""HSTU by the book: float64 loops over single tokens, sharing no code with the model but its weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from aoti_pack.models.hstu import HSTU
from aoti_pack.models.hstu_config import HSTUConfig


def randomised(config: HSTUConfig, seed: int = 0) -> HSTU:
    """A float64 model in which every parameter matters (biases and norms too)."""
    model = HSTU(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return model


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _norm(x: np.ndarray, weights: dict[str, np.ndarray], name: str, epsilon: float) -> np.ndarray:
    centred = x - x.mean()
    return (
        centred / math.sqrt((centred**2).mean() + epsilon) * weights[f"{name}.weight"]
        + weights[f"{name}.bias"]
    )


def _row(table: np.ndarray, identity: int) -> np.ndarray:
    return table[identity] if 0 <= identity < len(table) else table[0]


def scores(model: HSTU, inputs: dict[str, Any]) -> np.ndarray:
    """Scores `[b, c]`; each candidate of each user in a sequence of its own, without any padding."""
    rows = []
    for user in range(inputs["item_ids"].shape[0]):
        one = {name: value[user].tolist() for name, value in inputs.items() if name != "contextual"}
        features = {name: int(value[user]) for name, value in inputs.get("contextual", {}).items()}
        rows.append([_score(model, one, features, candidate) for candidate in one["candidate_ids"]])
    return np.array(rows)


def _score(model: HSTU, one: dict[str, Any], features: dict[str, int], candidate: int) -> float:
    config = model.config
    w = {name: value.numpy() for name, value in model.state_dict().items()}
    root = math.sqrt(config.hidden)
    place_table = w["embedding.position.weight"]
    # A token: vector, index in the sequence, time (None for a contextual one).
    tokens: list[tuple[np.ndarray, int, int | None]] = []
    for place, (name, _) in enumerate(config.contextual):
        row = _row(w[f"embedding.contextual.{name}.weight"], features[name])
        tokens.append((row * root + place_table[place], place, None))
    first = len(tokens)
    for event in range(one["lengths"]):
        item, action, time = (one[name][event] for name in ("item_ids", "actions", "timestamps"))
        place = place_table[first + event]
        tokens.append((_row(w["embedding.item.weight"], item) * root + place, first + 2 * event, time))
        row = _row(w["embedding.action.weight"], action + 1)
        tokens.append((row * root + place, first + 2 * event + 1, time))
    vector = _row(w["embedding.item.weight"], candidate) * root + place_table[first + one["lengths"]]
    tokens.append((vector, first + 2 * one["lengths"], one["request_time"]))

    x = [vector for vector, _, _ in tokens]
    for layer in range(config.layers):
        p = f"layers.{layer}"
        parts = []
        for vector in x:
            inner = _norm(vector, w, f"{p}.norm_in", config.epsilon)
            parts.append(np.split(_silu(w[f"{p}.uvqk.weight"] @ inner + w[f"{p}.uvqk.bias"]), 4))
        new = []
        for i, (u, _, q, _) in enumerate(parts):
            attended = np.zeros(config.heads * config.head_dim)
            for j in range(i + 1):
                bias = _bias(model, w, p, tokens[i][1:], tokens[j][1:])
                _, v, _, k = parts[j]
                for head in range(config.heads):
                    h = slice(head * config.head_dim, (head + 1) * config.head_dim)
                    weight = _silu(q[h] @ k[h] / math.sqrt(config.head_dim) + bias) / config.normaliser
                    attended[h] += weight * v[h]
            gated = u * _norm(attended, w, f"{p}.norm_attention", config.epsilon)
            new.append(x[i] + w[f"{p}.out.weight"] @ gated)
        x = new
    last = _norm(x[-1], w, "norm_out", config.epsilon)
    return float(w["head.weight"][0] @ last + w["head.bias"][0])


def _bias(
    model: HSTU,
    w: dict[str, np.ndarray],
    p: str,
    query: tuple[int, int | None],
    key: tuple[int, int | None],
) -> float:
    place, time = 0, 0
    if key[1] is not None and query[1] is not None:
        place = 1 + sum(bound <= query[0] - key[0] for bound in model.buckets.position_bounds.tolist())
        time = 1 + sum(bound <= query[1] - key[1] for bound in model.buckets.time_bounds.tolist())
    total = 0.0
    if model.config.position_bias:
        total += w[f"{p}.bias.position"][place]
    if model.config.time_bias:
        total += w[f"{p}.bias.time"][time]
    return float(total)
