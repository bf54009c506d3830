"""What the server tests stand on: a running server and the eager models behind what it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aoti_pack.bench.client import ModelClient
from aoti_pack.manifest import Manifest
from aoti_pack.recipe import Recipe
from aoti_pack.server.launch import TritonServer


@dataclass(frozen=True)
class Served:
    """A model on the running server."""

    name: str
    manifest: Manifest
    recipe: Recipe
    eager: torch.nn.Module

    def expected(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What eager says, by output name."""
        with torch.inference_mode():
            flat = pytree.tree_leaves(self.eager(**inputs))
        return dict(zip((spec.name for spec in self.manifest.outputs), flat, strict=True))

    def draw(self, seed: int, **sizes: int) -> dict[str, Any]:
        return dict(self.recipe.draw(seed, sizes))


@dataclass(frozen=True)
class Stand:
    """The server and what it serves."""

    server: TritonServer
    models: dict[str, Served]

    def client(self, name: str) -> ModelClient:
        return ModelClient(self.server.grpc_url, name, self.models[name].manifest)
