"""One real server for all cases; each loads and unloads models of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from explicit import ExplicitServer

from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer


@pytest.fixture(scope="session")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplicitServer]:
    repo = tmp_path_factory.mktemp("cases") / "repo"
    repo.mkdir()
    binary = find_server()
    backends = backends_directory(binary, build_backend())
    flags = ["--model-control-mode=explicit"]
    with TritonServer(repo, binary=binary, backends=backends, flags=flags) as server:
        yield ExplicitServer(server, repo)
