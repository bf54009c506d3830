import dataclasses
import itertools

import hstu_reference as reference
import numpy as np
import pytest
import torch

from aoti_pack.errors import UserError
from aoti_pack.models.hstu import HSTU
from aoti_pack.models.hstu_attention import HIDDEN, log_boundaries
from aoti_pack.models.hstu_config import PRESETS, HSTUConfig, preset
from aoti_pack.models.hstu_requests import draw_inputs

TINY = preset("tiny")
PLAIN = dataclasses.replace(TINY, contextual=(), max_history=128)
EXACT = {"rtol": 0.0, "atol": 1e-12}


def drawn(config: HSTUConfig, b: int, n: int, c: int, seed: int = 0) -> dict:
    return draw_inputs(config, torch.Generator().manual_seed(seed), {"b": b, "n": n, "c": c})


def only(inputs: dict, rows: slice) -> dict:
    return {k: only(v, rows) if isinstance(v, dict) else v[rows] for k, v in inputs.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"contextual": ""},
        {"contextual": "region:8,device:3"},
        {"position_bias": False},
        {"time_bias": False},
        {"position_bias": False, "time_bias": False},
    ],
)
@torch.no_grad()
def test_equals_the_token_by_token_reference(settings):
    model = reference.randomised(TINY.replaced(**settings))
    inputs = drawn(model.config, 4, 6, 3)
    inputs["lengths"] = torch.tensor([0, 6, 1, 4])
    # Unordered and equal timestamps, ids outside the tables on either side.
    inputs["timestamps"][1, 2] = inputs["timestamps"][1, 0] - 5
    inputs["timestamps"][1, 4] = inputs["timestamps"][1, 3]
    inputs["item_ids"][1, :3] = torch.tensor([-7, TINY.items + 1, 0])
    inputs["actions"][3, :2] = torch.tensor([-1, TINY.actions])
    inputs["candidate_ids"][3, 0] = TINY.items + 9
    expected = reference.scores(model, inputs)
    np.testing.assert_allclose(model(**inputs).numpy(), expected, rtol=0, atol=1e-10)
    assert expected.std() > 0.1


@torch.no_grad()
def test_candidates_do_not_see_each_other():
    model = reference.randomised(TINY)
    inputs = drawn(TINY, 3, 9, 8)
    scores = model(**inputs)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    permuted = model(**inputs | {"candidate_ids": inputs["candidate_ids"][:, order]})
    torch.testing.assert_close(permuted, scores[:, order], **EXACT)
    subset = model(**inputs | {"candidate_ids": inputs["candidate_ids"][:, 2:3]})
    torch.testing.assert_close(subset, scores[:, 2:3], **EXACT)


@torch.no_grad()
def test_padding_has_no_influence():
    model = reference.randomised(PLAIN)
    inputs = drawn(PLAIN, 5, 64, 4)
    inputs["lengths"] = torch.tensor([64, 0, 1, 33, 63])
    generator = torch.Generator().manual_seed(3)
    longer = dict(inputs)
    for name, high in (("item_ids", PLAIN.items), ("actions", PLAIN.actions), ("timestamps", 2**62)):
        garbage = torch.randint(-high, high, (5, 100), generator=generator)
        real = torch.arange(100) < inputs["lengths"].unsqueeze(1)
        padded = torch.nn.functional.pad(inputs[name], (0, 36))
        longer[name] = torch.where(real, padded, garbage)
    torch.testing.assert_close(model(**longer), model(**inputs), **EXACT)


@torch.no_grad()
def test_batch_mates_have_no_influence():
    model = reference.randomised(TINY)
    inputs = drawn(TINY, 6, 12, 5)
    together = model(**inputs)
    for row in range(6):
        one = slice(row, row + 1)
        torch.testing.assert_close(model(**only(inputs, one)), together[one], **EXACT)


@torch.no_grad()
def test_a_growing_history_leaves_earlier_tokens_as_they_were():
    model = reference.randomised(TINY)
    inputs = drawn(TINY, 2, 20, 3)
    times = inputs["request_time"].unsqueeze(1)
    shared = [inputs[name] for name in ("item_ids", "actions", "timestamps")]

    def states(length: int) -> torch.Tensor:
        lengths = torch.full((2,), length)
        groups = inputs["candidate_ids"].unsqueeze(1), lengths.unsqueeze(1), times
        return model.hidden_states(*shared, lengths, *groups, inputs["contextual"])

    short, long = states(13), states(20)
    kept = len(TINY.contextual) + 2 * 13
    assert torch.equal(short[:, :kept], long[:, :kept])
    assert not torch.equal(short[:, -3:], long[:, -3:])


@torch.no_grad()
def test_groups_equal_requests_with_the_prefix_alone():
    model = reference.randomised(TINY)
    inputs = drawn(TINY, 2, 10, 4)
    inputs["lengths"] = torch.tensor([10, 7])
    prefix = torch.tensor([[0, 3, 10], [7, 1, 9]])  # 9 > 7: counts as 7
    times = inputs["request_time"].unsqueeze(1) + torch.tensor([[0, 60, 7200]])
    groups = inputs["candidate_ids"].unsqueeze(1).repeat(1, 3, 1)
    shared = [inputs[name] for name in ("item_ids", "actions", "timestamps", "lengths")]
    scores = model.score_groups(*shared, groups, prefix, times, inputs["contextual"])
    for group in range(3):
        lengths = torch.minimum(prefix[:, group], inputs["lengths"])
        alone = model(**inputs | {"lengths": lengths, "request_time": times[:, group]})
        torch.testing.assert_close(scores[:, group], alone, **EXACT)


@torch.no_grad()
def test_time_is_exact_at_the_size_of_unix_nanoseconds():
    model = reference.randomised(PLAIN)
    inputs = drawn(PLAIN, 2, 6, 3)
    inputs["lengths"] = torch.tensor([6, 6])
    scores = model(**inputs)
    shift = 1_700_000_000_000_000_003
    moved = {name: inputs[name] + shift for name in ("timestamps", "request_time")}
    assert torch.equal(model(**inputs | moved), scores)
    # One unit more between the last event and the request is another bucket, 0 against 1.
    now = {"request_time": inputs["timestamps"][:, -1]}
    later = {"request_time": now["request_time"] + 1}
    assert not torch.equal(model(**inputs | now), model(**inputs | later))
    only_place = reference.randomised(PLAIN.replaced(time_bias=False))
    assert torch.equal(only_place(**inputs | now), only_place(**inputs | later))


def test_boundaries_are_strictly_growing_integers():
    assert log_boundaries(4, 1000) == [1, 10, 100, 1000]
    dense = log_boundaries(30, 200)
    assert dense[:4] == [1, 2, 3, 4] and all(a < b for a, b in itertools.pairwise(dense))
    assert log_boundaries(1, 10) == [1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_hidden_pair_weighs_exactly_nothing(dtype):
    hidden = torch.full((4,), HIDDEN, dtype=dtype) + torch.randn(4).to(dtype)
    assert (torch.nn.functional.silu(hidden) == 0).all()


@pytest.mark.parametrize("config", [TINY, PLAIN])
@torch.no_grad()
def test_an_empty_history_is_answered(config):
    model = reference.randomised(config)
    inputs = drawn(config, 2, 1, 5)
    inputs["lengths"] = torch.zeros(2, dtype=torch.int64)
    scores = model(**inputs)
    assert scores.shape == (2, 5)
    np.testing.assert_allclose(scores.numpy(), reference.scores(model, inputs), rtol=0, atol=1e-10)
    negative = model(**inputs | {"lengths": torch.tensor([-3, -1])})
    assert torch.equal(negative, scores)


@torch.no_grad()
def test_unknown_ids_share_row_zero():
    model = reference.randomised(TINY)
    inputs = drawn(TINY, 1, 4, 1) | {"lengths": torch.tensor([4])}
    unknown = [0, -1, TINY.items + 1, 2**62, -(2**62)]
    inputs["candidate_ids"] = torch.tensor([unknown])
    scores = model(**inputs)
    torch.testing.assert_close(scores, scores[:, :1].expand_as(scores), **EXACT)
    known = model(**inputs | {"candidate_ids": torch.tensor([[1, TINY.items]])})
    assert not torch.isclose(known, scores[:, :1]).any()
    for name, low, high in (("actions", -1, TINY.actions), ("item_ids", 0, TINY.items + 1)):
        pair = [model(**inputs | {name: torch.full((1, 4), value)}) for value in (low, high, 2**63 - 1)]
        assert torch.equal(pair[0], pair[1]) and torch.equal(pair[0], pair[2])


@torch.no_grad()
def test_bfloat16_gives_float32_scores_near_float64():
    exact = HSTU(TINY).double().eval()
    half = HSTU(TINY).to(torch.bfloat16).eval()
    half.load_state_dict(exact.state_dict())
    inputs = drawn(TINY, 4, 16, 8)
    scores, expected = half(**inputs), exact(**inputs)
    assert scores.dtype == torch.float32
    assert (scores - expected).abs().max() < 0.05 * expected.abs().max()


def test_missing_context_is_named():
    inputs = drawn(TINY, 2, 3, 2)
    del inputs["contextual"]
    with pytest.raises(UserError, match=r"must be \['region'\], got \[\]"):
        HSTU(TINY)(**inputs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layres": 3}, "no setting 'layres'; choose from items"),
        ({"layers": "three"}, "layers must be int, got 'three'"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"time_bias": 1}, "time_bias must be bool, got 1"),
        ({"contextual": "region"}, "'region' is not name:size"),
        ({"contextual": "a:1,a:2"}, "names a feature twice"),
        ({"contextual": "a:0"}, "needs a vocabulary of at least 1"),
        ({"dropout": 1}, r"dropout must lie in \[0, 1\), got 1"),
        ({"time_buckets": 2}, "time_buckets must be at least 3, got 2"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        TINY.replaced(**settings)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_a_checkpoint(name):
    assert HSTUConfig.from_dict(preset(name).as_dict()) == preset(name)


def test_preset_sizes():
    large = preset("kuairand-8l")
    assert (large.hidden, large.heads, large.head_dim, large.layers, large.max_history) == (
        512,
        4,
        128,
        8,
        4096,
    )
    assert preset("kuairand-3l").layers == 3
    with pytest.raises(UserError, match="no preset 'huge'; choose from tiny"):
        preset("huge")
