"""Case 5: a 32 MB model loaded and unloaded again and again. Elsewhere memory and disk grow each time."""

from __future__ import annotations

import pytest
import torch
from explicit_server import ExplicitServer, tree
from packages import RECIPES, compiled_package

from aoti_pack.manifest import Manifest
from aoti_pack.package_files import EAGER_FILE
from aoti_pack.recipe import load_recipe

pytestmark = pytest.mark.server

WARM_UP, RELOADS = 10, 100
# The weights are 32 MB: a load that leaves them, or its copy of the code, shows at once, and so do 100 leaks of
# 0.1 MB. What is left is the allocator's: the same work on other threads' heaps.
MOST_GROWTH = 8 << 20


def test_memory_and_disk_stay_flat(explicit: ExplicitServer) -> None:
    package = compiled_package("heavy")
    explicit.drop(package, "heavy")
    x = torch.linspace(-1, 1, 2048).reshape(1, 2048)
    load_recipe(f"{RECIPES / 'heavy'}.py:recipe", {})  # the module that the pickled model is of
    eager = torch.load(package / EAGER_FILE, weights_only=False).double()
    expected = eager(x.double())

    def cycle() -> None:
        explicit.touch("heavy")
        assert explicit.load("heavy") == ""
        explicit.touch("heavy")
        assert explicit.load("heavy") == ""  # while the old one serves
        explicit.unload("heavy")

    for _ in range(WARM_UP):
        cycle()
    # All that the server may write to: its store, and TMPDIR, where torch's own loader would unpack to.
    folders = (explicit.store, explicit.temporary)
    memory, disk = explicit.resident_bytes(), tree(*folders)
    for _ in range(RELOADS):
        cycle()
    grown = explicit.resident_bytes() - memory
    print(f"resident: {memory / 2**20:.1f} MiB, {grown / 2**20:+.1f} MiB after {RELOADS} reloads")
    assert grown < MOST_GROWTH
    assert tree(*folders) == disk
    # One copy of the package, in one entry.
    entry = explicit.store / Manifest.load(package).package.sha256
    assert [path.parent for path in disk if path.name == "files"].count(entry) == 1
    assert not [path for path in disk if path.is_relative_to(explicit.temporary)]

    assert explicit.load("heavy") == ""
    client = explicit.client("heavy")
    torch.testing.assert_close(client.infer({"x": x})["y"].double(), expected, rtol=1e-4, atol=1e-5)
    client.close()
    explicit.unload("heavy")
