"""A real server whose models come and go on request."""

from __future__ import annotations

import os
import re
import select
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tritonclient.grpc import InferenceServerClient, InferenceServerException

from aoti_pack.bench.client import ModelClient
from aoti_pack.manifest import Manifest
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.launch import TritonServer


@dataclass(frozen=True)
class ExplicitServer:
    """The server, its repository, and the folders that it may write to."""

    server: TritonServer
    repo: Path
    store: Path
    temporary: Path

    def write(self, package: Path, name: str, *, instances: int = 1, threads: int | None = 1) -> Path:
        """Write a model and return its version's folder."""
        serving = Serving(instances=instances, threads=threads)
        return write_model(package, self.repo, name=name, serving=serving).path / "1"

    def drop(self, package: Path, name: str) -> Path:
        """The same with what `aoti-pack compile` wrote, as it is, for a version's folder."""
        folder = self.write(package, name)
        shutil.rmtree(folder)
        shutil.copytree(package, folder)
        return folder

    def edit_config(self, name: str, old: str, new: str) -> None:
        path = self.repo / name / "config.pbtxt"
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} in {text}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.touch(name)

    def touch(self, name: str) -> None:
        """Make the next load a real one: the core loads again only what looks newer, by its times."""
        path = self.repo / name / "config.pbtxt"
        later = path.stat().st_mtime_ns + 1_000_000_000
        os.utime(path, ns=(later, later))

    def load(self, name: str) -> str:
        """Load, or load again. The server's words when it refuses, "" when it serves."""
        with InferenceServerClient(self.server.grpc_url) as client:
            try:
                client.load_model(name)
            except InferenceServerException as refusal:
                return refusal.message()
            return "" if client.is_model_ready(name) else f"{name} is not ready"

    def unload(self, name: str) -> None:
        """Unload, and wait until the server says that it is gone."""
        with InferenceServerClient(self.server.grpc_url) as client:
            client.unload_model(name)
            for _ in range(3000):
                states = {m.name: (m.state, m.reason) for m in client.get_model_repository_index().models}
                if states[name] == ("UNAVAILABLE", "unloaded"):
                    return
                select.select([], [], [], 0.01)  # the server has no call that waits for it
        raise AssertionError(f"{name} was not unloaded: {states[name]}")

    def client(self, name: str) -> ModelClient:
        return ModelClient(self.server.grpc_url, name, Manifest.load(self.repo / name / "1"))

    def logged(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.server.log.read_text(encoding="utf-8", errors="replace"))

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.server.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024

    @contextmanager
    def one_core(self) -> Iterator[None]:
        """Every thread of the server, and those that they start, on one core: a model that is loaded now gets
        as many runners as it has instances."""
        cores = os.sched_getaffinity(self.server.pid)
        self._pin({min(cores)})
        try:
            yield
        finally:
            self._pin(cores)

    def _pin(self, cores: set[int]) -> None:
        for task in Path(f"/proc/{self.server.pid}/task").iterdir():
            try:
                os.sched_setaffinity(int(task.name), cores)
            except ProcessLookupError:
                continue  # the thread ended meanwhile


def tree(*folders: Path) -> dict[Path, int]:
    """Every file below `folders` with its size."""
    return {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}
