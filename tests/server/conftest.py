"""One real server for the whole session: every small model in our backend, three of them as Python twins too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from packages import CPP_MODELS, CPP_RECIPES, compiled_package, cpp_package
from stand import Served, Stand

from aoti_pack.manifest import Manifest
from aoti_pack.package_files import EAGER_FILE
from aoti_pack.recipe import load_recipe
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import ServerBinary, find_server
from aoti_pack.server.launch import TritonServer


@pytest.fixture(scope="session")
def binary() -> ServerBinary:
    return find_server()


@pytest.fixture(scope="session")
def backends(binary: ServerBinary) -> Path:
    return backends_directory(binary, build_backend())


@pytest.fixture(scope="session")
def stand(binary: ServerBinary, backends: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    repo = tmp_path_factory.mktemp("stand") / "repo"
    models: dict[str, Served] = {}
    sources = {name: f"{CPP_RECIPES}:{name}" for name in CPP_MODELS} | {
        "hstu": "aoti_pack.models.hstu:recipe"
    }
    for key, source in sources.items():
        folder = compiled_package(source) if key == "hstu" else cpp_package(key)
        recipe = load_recipe(source, {})
        eager = torch.load(folder / EAGER_FILE, weights_only=False)
        for backend in ("aoti", "python") if key in ("arith", "hstu", "scale") else ("aoti",):
            name = key if backend == "aoti" else f"{key}_python"
            # Two instances of one thread: what one process must get right when they run at the same time.
            serving = Serving(instances=2 if key == "arith" else 1, threads=1, max_queue_delay_us=500)
            write_model(folder, repo, name=name, backend=backend, serving=serving)
            models[name] = Served(name, Manifest.load(repo / name / "1"), recipe, eager)
    with TritonServer(repo, binary=binary, backends=backends) as server:
        yield Stand(server, models)
