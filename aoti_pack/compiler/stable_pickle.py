"""`torch.save` with the same bytes for the same content: Python draws the order of a set of texts anew in each run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar


class _SortedSets(pickle._Pickler):
    """Pickles sets in sorted order. The pickler in C cannot be told how to pickle a set."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = {
        **pickle._Pickler.dispatch,
        set: lambda self, items: self._save_sorted(set, items),
        frozenset: lambda self, items: self._save_sorted(frozenset, items),
    }

    def _save_sorted(self, kind: type, items: set[Any] | frozenset[Any]) -> None:
        self.save_reduce(kind, (sorted(items, key=repr),), obj=items)  # type: ignore[attr-defined]


def save(content: object, path: Path) -> None:
    """`torch.save(content, path)`, the same bytes in every run for content that is the same."""
    import torch

    # What torch.save takes of a pickle module.
    module: Any = SimpleNamespace(Pickler=_SortedSets, dumps=pickle.dumps, __name__=pickle.__name__)
    torch.save(content, path, pickle_module=module)
