"""`torch.save` with the same bytes for the same content: Python draws the order of a set of texts anew in each run."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class _SortedSets(pickle._Pickler):
    """Pickles sets in sorted order. The pickler in C cannot be told how to pickle a set."""

    dispatch = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def _save_set(self, items: set[Any]) -> None:
        self.save_reduce(set, (sorted(items, key=repr),), obj=items)  # type: ignore[attr-defined]

    def _save_frozenset(self, items: frozenset[Any]) -> None:
        self.save_reduce(frozenset, (sorted(items, key=repr),), obj=items)  # type: ignore[attr-defined]

    dispatch[set] = _save_set
    dispatch[frozenset] = _save_frozenset


def save(content: object, path: Path) -> None:
    """`torch.save(content, path)`, the same bytes in every run for content that is the same."""
    import torch

    # What torch.save takes of a pickle module.
    module: Any = SimpleNamespace(Pickler=_SortedSets, dumps=pickle.dumps, __name__=pickle.__name__)
    torch.save(content, path, pickle_module=module)
