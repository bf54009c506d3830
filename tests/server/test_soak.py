"""Minutes of everything at once: good requests, malformed ones, reloads that succeed and reloads that fail.

No wrong answer, no refusal of a good request, and memory that stays where it was after warm-up. What counts is the
median of the resident set over the last sixth of the time against that over the second sixth, and glibc keeps two
arenas: with its default of eight a core, each new thread of a reloaded model fills another one, which looks like a
leak for as long as arenas are left.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from attack import Connections, judge
from malformed import MODELS, good, wrong
from packages import CPP_RECIPES, cpp_package
from resident import resident_bytes
from rich.progress import Progress
from safetensors.torch import save_model
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from aoti_pack.bench.client import ModelClient
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import silent
from aoti_pack.recipe import load_recipe
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.find import ServerBinary
from aoti_pack.server.launch import TritonServer
from aoti_pack.weights.push import push_weights

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
ALLOWED_GROWTH = 5 << 20
REPORT = Path(__file__).parents[2] / "build" / "soak.json"
_PERIOD_S = 0.25
# The server itself keeps 3.5 kB of each load that fails (as many where the backend does not exist), so only some do.
_FAILS_EACH = 50
UPDATED = "tower"


@pytest.fixture
def server(binary: ServerBinary, backends: Path, tmp_path: Path) -> Iterator[TritonServer]:
    repo = tmp_path / "repo"
    for name in (*MODELS, UPDATED):
        instances = 2 if name == "arith" else 1
        write_model(cpp_package(name), repo, serving=Serving(instances=instances, threads=1))
    flags = ("--model-control-mode=explicit", "--load-model=*")
    env = {"MALLOC_ARENA_MAX": "2"}
    with TritonServer(repo, binary=binary, backends=backends, flags=flags, env=env) as running:
        yield running


class Soak:
    """What the threads share."""

    def __init__(self, server: TritonServer) -> None:
        self.server = server
        self.over = threading.Event()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def counts(self) -> Counter[str]:
        with self._lock:
            return Counter(self._counts)

    def infer(self, seed: int) -> None:
        rng, connections = random.Random(seed), Connections(self.server)
        while not self.over.is_set():
            case = good(rng)
            problem = judge(case, connections.send(case))
            assert problem is None, f"{problem}: {case}"[:2000]
            self.count("right answers")
        connections.close()

    def attack(self, seed: int) -> None:
        rng, connections = random.Random(seed), Connections(self.server)
        while not self.over.is_set():
            case = wrong(rng)
            answer = connections.send(case)
            problem = judge(case, answer)
            assert problem is None, f"{problem}: {case}"[:2000]
            self.count("malformed refused" if isinstance(answer, str) else "odd ones answered")
        connections.close()

    def reload(self, seed: int) -> None:
        """Load each model again and again, now and then from a manifest that nobody can read."""
        control = InferenceServerClient(self.server.grpc_url)
        names = sorted(MODELS)
        turn = seed
        while not self.over.is_set():
            turn += 1
            name = names[turn % len(names)]
            manifest = self.server.repository / name / "1" / "manifest.json"
            text = manifest.read_text(encoding="utf-8")
            if turn % _FAILS_EACH == 0:
                manifest.write_text(text.replace('"schema": "2.', '"schema": "9.'), encoding="utf-8")
                with pytest.raises(InferenceServerException, match=r"schema"):
                    control.load_model(name)
                self.count("reloads refused")
            # A new time on a version's file is what makes the server load it anew; one on config.pbtxt alone is not.
            manifest.write_text(text, encoding="utf-8")
            control.load_model(name)
            self.count("reloads")
        control.close()

    def push(self, seed: int) -> None:
        """New weights again and again, and now and then a file that is none; answers are those of one set, whole."""
        rng = torch.Generator().manual_seed(seed)
        recipe = load_recipe(f"{CPP_RECIPES}:{UPDATED}", {})
        model, folder = recipe.build(), self.server.repository.parent / "weights"
        folder.mkdir()
        client = ModelClient(
            self.server.grpc_url, UPDATED, Manifest.load(self.server.repository / UPDATED / "1")
        )
        while not self.over.is_set():
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=rng))
            file = folder / "new.safetensors"
            save_model(model, file)
            done = push_weights(self.server.repository, UPDATED, file, timeout_s=60, progress=silent)
            assert done.state == "swapped", done
            inputs = recipe.draw(done.weights_version, {"b": 3, "n": 5})
            with torch.no_grad():
                expected = model(**inputs)
            torch.testing.assert_close(client.infer(inputs)["scores"], expected, rtol=1e-4, atol=1e-4)
            self.count("pushes")
            if done.weights_version % 10 == 0:
                file.write_bytes(file.read_bytes()[:-1])
                with pytest.raises(UserError, match=r"new\.safetensors"):
                    push_weights(self.server.repository, UPDATED, file, timeout_s=60, progress=silent)
                self.count("pushes refused")
        client.close()


def test_everything_at_once(server: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
    soak = Soak(server)
    pid, started = server.pid, time.monotonic()
    memory: list[tuple[float, int]] = []
    work: list[Callable[[int], None]] = [soak.infer, soak.infer, soak.attack, soak.reload, soak.push]
    with capsys.disabled(), Progress(transient=True) as bar, ThreadPoolExecutor(len(work)) as pool:
        task = bar.add_task("soak", total=SECONDS)
        jobs = [pool.submit(one, seed) for seed, one in enumerate(work)]
        try:
            while (spent := time.monotonic() - started) < SECONDS and not any(job.done() for job in jobs):
                memory.append((spent, resident_bytes(pid)))
                counts = soak.counts()
                told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
                bar.update(task, completed=spent, description=f"{memory[-1][1] / 2**20:.0f} MiB, {told}")
                soak.over.wait(_PERIOD_S)
        finally:
            soak.over.set()
        for job in jobs:
            job.result()
    counts = soak.counts()
    early, late = _median(memory, 1), _median(memory, 5)
    REPORT.parent.mkdir(exist_ok=True)
    report = {"seconds": SECONDS, "counts": counts, "early": early, "late": late, "resident_bytes": memory}
    REPORT.write_text(json.dumps(report), encoding="utf-8")
    with capsys.disabled():
        print(f"\n{'soak':20}{SECONDS:>10.0f} s")
        for what, number in sorted(counts.items()):
            print(f"{what:20}{number:>10}")
        for part in range(6):
            print(f"{f'MiB, part {part + 1} of 6':20}{_median(memory, part) / 2**20:>10.1f}")
        print(f"{'growth, MiB':20}{(late - early) / 2**20:>+10.1f}")
    assert server.wait(0) is None
    assert (
        min(counts[what] for what in ("right answers", "malformed refused", "reloads", "reloads refused")) > 2
    )
    assert late - early < ALLOWED_GROWTH


def _median(memory: list[tuple[float, int]], part: int) -> float:
    """The median of the resident set over one sixth of the time, 0 to 5, in bytes."""
    length = memory[-1][0] / 6
    return statistics.median(size for when, size in memory if part * length <= when <= (part + 1) * length)
