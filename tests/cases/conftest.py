from __future__ import annotations

from collections.abc import Iterator

import pytest
from explicit_server import ExplicitServer

from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer


@pytest.fixture(scope="session")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplicitServer]:
    """One server for the session, with no models: each test loads its own."""
    folder = tmp_path_factory.mktemp("explicit")
    repo, store, temporary = folder / "repo", folder / "store", folder / "tmp"
    for path in (repo, temporary):
        path.mkdir()
    binary = find_server()
    with TritonServer(
        repo,
        binary=binary,
        backends=backends_directory(binary, build_backend()),
        flags=["--model-control-mode=explicit"],
        env={"AOTI_PACK_STORE": str(store), "TMPDIR": str(temporary)},
    ) as server:
        yield ExplicitServer(server, repo, store, temporary)
