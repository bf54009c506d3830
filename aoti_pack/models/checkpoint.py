"""A trained HSTU on disk: `checkpoint.pt`, `items.json` and `metrics.json` in one folder."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aoti_pack.atomic import new_directory
from aoti_pack.errors import UserError
from aoti_pack.models.hstu_config import HSTUConfig

CHECKPOINT = "checkpoint.pt"
ITEMS = "items.json"
METRICS = "metrics.json"


@dataclass(frozen=True)
class Checkpoint:
    """Weights with all that a request needs besides.

    `items[k - 1]` is the original id of dense id k, and `titles` likewise. `levels` are the lower bounds of
    the rating buckets 1 …. `popular` lists dense ids from the most to the least rated in training.
    """

    config: HSTUConfig
    state: Mapping[str, Tensor]
    items: Sequence[str]
    titles: Sequence[str]
    levels: Sequence[float]
    popular: Sequence[int]

    def save(self, folder: Path, metrics: Mapping[str, Any]) -> None:
        """Write the three files; `folder` appears, or is replaced, whole. Equal content, equal bytes."""
        content = {
            "config": self.config.as_dict(),
            "state": dict(self.state),
            "items": list(self.items),
            "titles": list(self.titles),
            "levels": list(self.levels),
            "popular": list(self.popular),
        }
        buffer = io.BytesIO()  # a file's own name would go into the archive
        torch.save(content, buffer)
        catalogue = [
            {"id": index, "item": item, "title": title}
            for index, (item, title) in enumerate(zip(self.items, self.titles, strict=True), start=1)
        ]
        with new_directory(folder) as beside:
            (beside / CHECKPOINT).write_bytes(buffer.getvalue())
            (beside / ITEMS).write_text(json.dumps(catalogue, indent=1, ensure_ascii=False) + "\n", "utf-8")
            (beside / METRICS).write_text(json.dumps(dict(metrics), indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, where: Path) -> Checkpoint:
        """Read a folder written by `save`, or the `checkpoint.pt` in it. UserError when it is not one."""
        path = where / CHECKPOINT if where.is_dir() else where
        if not path.is_file():
            raise UserError(
                f"no checkpoint at {path}", mend="train one: python -m aoti_pack.models.train_hstu --out DIR"
            )
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise UserError(f"{path} is not a checkpoint: {str(error).splitlines()[0]}") from error
        wanted = ("config", "state", "items", "titles", "levels", "popular")
        missing = [key for key in wanted if not isinstance(content, dict) or key not in content]
        if missing:
            raise UserError(f"{path} is not an HSTU checkpoint: it lacks {', '.join(missing)}")
        return cls(HSTUConfig.from_dict(content["config"]), *(content[key] for key in wanted[1:]))
