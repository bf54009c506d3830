"""One real server for all cases, with no models at first: each case loads and unloads its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from explicit_server import ExplicitServer
from rest_server import RestServer
from structures import Structures, structures

from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer


@pytest.fixture(scope="session")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplicitServer]:
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


@pytest.fixture(scope="session")
def rest(explicit: ExplicitServer) -> RestServer:
    """The same server, asked in JSON."""
    return RestServer(explicit.server, explicit.repo)


@pytest.fixture(scope="session", name="structures")
def _structures() -> Structures:
    return structures()
