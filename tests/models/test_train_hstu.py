import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from aoti_pack.errors import UserError
from aoti_pack.models.checkpoint import CHECKPOINT, ITEMS, METRICS, Checkpoint
from aoti_pack.models.hstu import recipe
from aoti_pack.models.hstu_config import preset
from aoti_pack.models.hstu_training import (
    Batch,
    Sampler,
    Schedule,
    action_levels,
    bucketed,
    rate_share,
    sampled_softmax,
)
from aoti_pack.models.ranking import popularity
from aoti_pack.models.ratings import Ratings, leave_last_out
from aoti_pack.models.train_hstu import demo_request, train

ITEMS_IN_ALL, USERS, EVENTS = 60, 40, 15
CONFIG = preset("tiny").replaced(contextual="", hidden=32, dropout=0.0)
SCHEDULE = Schedule(epochs=25, batch=8, cuts=8, negatives=7)


def ring(last: int = 0) -> Ratings:
    """Each user walks a ring of items from their own start, one step an event; `last` shifts the last step."""
    user = np.repeat(np.arange(USERS), EVENTS)
    step = np.tile(np.arange(EVENTS), USERS)
    item = (user * 7 + step + last * (step == EVENTS - 1)) % ITEMS_IN_ALL + 1
    return Ratings(
        user=user,
        item=item,
        rating=(step % 4 + 1).astype(np.float64),
        timestamp=1_600_000_000 + user * 1000 + step * 60,
        users=[f"u{name}" for name in range(USERS)],
        items=[str(100 + name) for name in range(ITEMS_IN_ALL)],
        titles=[f"Title {name}" if name % 2 else "" for name in range(ITEMS_IN_ALL)],
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    seen = []
    folder = tmp_path_factory.mktemp("hstu") / "out"
    before = torch.random.get_rng_state()
    result = train(
        ring(), folder, seed=3, progress=lambda *step: seen.append(step), config=CONFIG, schedule=SCHEDULE
    )
    assert torch.equal(before, torch.random.get_rng_state())
    return result, seen


def test_it_learns_the_ring(trained):
    result, _ = trained
    # Chance: 10 of the 46 unseen items. The item that follows is always the same one.
    assert result.model.hr10 > 0.9 and result.model.ndcg10 > 0.6
    assert result.popularity.hr10 < 0.6
    assert result.lift == result.model.hr10 / result.popularity.hr10
    assert result.losses[-1] < 0.5 * result.losses[0]


def test_progress_reaches_the_end_of_both_stages(trained):
    result, seen = trained
    steps = len(result.losses) * (USERS * (EVENTS - 1) // 64)
    assert [step for step in seen if step[0] == "train"] == [("train", i + 1, steps) for i in range(steps)]
    assert seen[-1] == ("evaluate", USERS, USERS)


def test_the_same_seed_gives_the_same_file_and_the_held_out_item_no_other(trained, tmp_path):
    result, _ = trained
    wanted = (result.folder / CHECKPOINT).read_bytes()
    changed = ring(last=20)
    again = train(changed, tmp_path / "again", seed=3, config=CONFIG, schedule=SCHEDULE)
    # Only held-out events differ, so the weights must not: nothing of them leaks into training.
    assert (tmp_path / "again" / CHECKPOINT).read_bytes() == wanted
    assert again.losses == result.losses and again.model.hr10 < result.model.hr10
    quick = dataclasses.replace(SCHEDULE, epochs=1)
    other = train(ring(), tmp_path / "other", seed=4, config=CONFIG, schedule=quick)
    assert (other.folder / CHECKPOINT).read_bytes() != wanted


def test_the_folder_holds_what_serving_needs(trained):
    result, _ = trained
    catalogue = json.loads((result.folder / ITEMS).read_text())
    assert catalogue[1] == {"id": 2, "item": "101", "title": "Title 1"} and len(catalogue) == ITEMS_IN_ALL
    metrics = json.loads((result.folder / METRICS).read_text())
    assert metrics["model"]["hr10"] == result.model.hr10 and metrics["schedule"]["epochs"] == 25
    saved = Checkpoint.load(result.folder)
    assert saved.config.items == ITEMS_IN_ALL and saved.config.max_candidates == ITEMS_IN_ALL
    assert saved.levels == [1.5, 2.5, 3.5]


@torch.no_grad()
def test_a_request_of_a_real_user_finds_what_came_next(trained):
    result, _ = trained
    asked = demo_request(result.folder, ring(), "u1")
    # u1 starts at dense id 8 and has seen 14 items; the next is 22, "Title 21".
    assert asked.inputs["item_ids"].tolist() == [list(range(8, 22))]
    assert asked.inputs["actions"].tolist() == [[step % 4 for step in range(14)]]
    assert asked.inputs["request_time"].tolist() == [1_600_001_000 + 14 * 60]
    assert asked.history[:2] == ["Title 7", "item 108"] and asked.next_item == "Title 21"
    assert set(asked.inputs["candidate_ids"][0].tolist()) == set(range(1, 61)) - set(range(8, 22))
    model = recipe(checkpoint=str(result.folder)).build()
    best = model(**asked.inputs)[0].topk(10).indices
    assert "Title 21" in [asked.candidates[index] for index in best]
    few = recipe(checkpoint=str(result.folder / CHECKPOINT), max_candidates=5)
    assert few.dynamic["candidate_ids"][1].max == 5
    assert len(demo_request(result.folder, ring()).history) == EVENTS - 1


def test_requests_that_do_not_fit_are_refused(trained, tmp_path):
    result, _ = trained
    with pytest.raises(UserError, match="no user 'nobody'"):
        demo_request(result.folder, ring(), "nobody")
    other = dataclasses.replace(ring(), items=[str(name) for name in range(ITEMS_IN_ALL)])
    with pytest.raises(UserError, match="the ratings that the checkpoint was trained on"):
        demo_request(result.folder, other, "u1")
    with pytest.raises(UserError, match="a trained checkpoint fixes layers"):
        recipe(checkpoint=str(result.folder), layers=3)
    broken = tmp_path / CHECKPOINT
    broken.write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="is not a checkpoint"):
        Checkpoint.load(broken)
    torch.save({"config": {}}, broken)
    with pytest.raises(UserError, match="lacks state, items"):
        Checkpoint.load(broken)


def test_batches_hold_a_window_its_targets_and_honest_negatives():
    split = leave_last_out(ring())
    counts = popularity(split, ITEMS_IN_ALL)
    buckets = [bucketed(history.rating, [1.5, 2.5, 3.5]) for history in split.train]
    sampler = Sampler(split.train, buckets, counts, 6, SCHEDULE, seed=0)
    for batch in (sampler.draw() for _ in range(20)):
        assert batch.item_ids.shape == (8, 6) and (batch.lengths == 6).all()
        for row in range(8):
            window = batch.item_ids[row].tolist()
            start = window[0]
            follow = (start + 5) % ITEMS_IN_ALL + 1
            assert window == [(start - 1 + i) % ITEMS_IN_ALL + 1 for i in range(6)]
            for group in range(8):
                if not batch.real[row, group]:
                    continue
                target, *negatives = batch.candidates[row, group].tolist()
                place = int(batch.prefix[row, group])
                assert target == [*window, follow][place]
                assert batch.times[row, group] == batch.timestamps[row, 0] + 60 * place
                clean = [item not in [*window, follow] for item in negatives]
                assert batch.allowed[row, group].tolist() == [True, *clean]
            assert batch.real[row].sum() == 7  # a window of 7 events has 7 targets
            assert sorted(batch.prefix[row][batch.real[row]].tolist()) == list(range(7))


def test_sampled_softmax_by_hand():
    zero = torch.zeros(1, 1, dtype=torch.int64)
    batch = Batch(
        item_ids=zero,
        actions=zero,
        timestamps=zero,
        lengths=zero[0],
        candidates=torch.tensor([[[2, 1, 3], [1, 1, 1]]]),
        prefix=zero,
        times=zero,
        allowed=torch.tensor([[[True, True, False], [True, True, True]]]),
        real=torch.tensor([[True, False]]),
    )
    chance = torch.tensor([0.5, 0.25, 0.25]).log()
    loss = sampled_softmax(torch.tensor([[[1.0, 2.0, 9.0], [5.0, 5.0, 5.0]]]), batch, chance)
    mine, rival = np.exp(1.0) / 0.25, np.exp(2.0) / 0.5
    assert float(loss) == pytest.approx(-np.log(mine / (mine + rival)), rel=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 19, 20, 21, 1000])
def test_the_rate_rises_and_falls_for_any_number_of_steps(steps):
    shares = [rate_share(step, steps, 0.05) for step in range(steps)]
    assert all(0 < share <= 1 for share in shares)
    top = shares.index(max(shares))
    assert top <= 0.05 * steps
    assert shares == sorted(shares[:top]) + sorted(shares[top:], reverse=True)


def test_ratings_fall_into_buckets():
    stars = np.array([0.5, 1.0, 5.0, 1.0])
    assert action_levels(stars, 10) == [0.75, 3.0]
    assert bucketed(stars, [0.75, 3.0]).tolist() == [0, 1, 2, 1]
    many = np.arange(1000.0)
    spread = np.bincount(bucketed(many, action_levels(many, 5)), minlength=5)
    assert len(spread) == 5 and spread.min() >= 120


def test_a_wrong_file_ends_with_one_line(tmp_path):
    file = tmp_path / "bad.csv"
    file.write_text("user,item\n1,2\n")
    command = [sys.executable, "-m", "aoti_pack.models.train_hstu"]
    done = subprocess.run(
        [*command, "--ratings", str(file), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "lacks the column rating, timestamp" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_sums_are_added_in_a_fixed_order_while_training(tmp_path):
    """On two threads the gradient of a look-up depends on who comes first, unless torch is told otherwise."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    seen = set()

    def progress(stage, _done, _total):
        if stage == "train":
            seen.add((torch.get_num_threads() <= 2, torch.are_deterministic_algorithms_enabled()))

    train(ring(), tmp_path / "out", progress=progress, config=CONFIG, schedule=SCHEDULE)
    assert seen == {(True, True)}
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
