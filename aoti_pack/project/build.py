"""Every model of a project: compiled where something changed, and written into one repository."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import aoti_pack
from aoti_pack.compiler.archive import sha256_of
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME, Manifest
from aoti_pack.progress import Progress
from aoti_pack.project.entries import ModelEntry, read_project
from aoti_pack.project.stamp import (
    Stamp,
    compile_digest,
    is_compiled,
    is_written,
    read_stamp,
    save_stamp,
    write_digest,
)
from aoti_pack.project.worker import BOOTSTRAP, STEP

COMPILED, WRITTEN, UP_TO_DATE, FAILED = "compiled", "written", "up to date", "failed"


@dataclass(frozen=True)
class Outcome:
    """What came of one model: its package compiled, `up to date` or `failed`; the same of its place in the repository,
    which is empty where it was not reached."""

    model: str
    version: int
    folder: str
    package: str
    repository: str
    seconds: float
    error: str | None = None


def build_project(
    file: Path, *, repo: Path | None = None, jobs: int = 1, force: bool = False, progress: Progress
) -> list[Outcome]:
    """Build every model of `file` into `repo` (default: what the file says); one Outcome each, in their order.

    A model that fails does not stop the others. `jobs` compile at the same time. UserError where `file` is wrong.
    """
    project = read_project(file)
    into = repo or project.repo
    if into is None:
        raise UserError(f"{file} names no repository", mend="give --repo REPO, or the key `repo`")
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, expected 1 or more")
    with _Compiler(jobs, force, progress) as compiler:
        waiting = [(entry, compiler.start(entry)) for entry in project.models]
        served: dict[tuple[str, int], str] = {}
        outcomes = []
        for entry, future in waiting:
            package, seconds, error = future.result()
            outcome = Outcome(
                entry.label, entry.version, str(entry.folder), package, "", round(seconds, 1), error
            )
            outcomes.append(outcome if error else _write(entry, outcome, into, served, force))
        return outcomes


def _write(
    entry: ModelEntry, outcome: Outcome, repo: Path, served: dict[tuple[str, int], str], force: bool
) -> Outcome:
    from aoti_pack.repository.layout import write_model

    began = time.monotonic()
    try:
        stamp = read_stamp(entry.folder)
        if stamp is None:
            raise UserError(f"the stamp of {entry.folder} is gone", mend="build again")
        own = Manifest.load(entry.folder).name
        name = entry.name or (own if entry.backend == "aoti" else f"{own}_python")
        if (other := served.setdefault((name, entry.version), entry.label)) != entry.label:
            raise UserError(
                f"{other} is version {entry.version} of {name!r} too", mend="give one of them a `name`"
            )
        outcome = replace(outcome, model=name)
        if not force and is_written(entry, stamp, repo / name):
            return replace(outcome, repository=UP_TO_DATE)
        done = write_model(
            entry.folder,
            repo,
            name=name,
            version=entry.version,
            backend=entry.backend,
            compile_twin=entry.compile_twin,
            serving=entry.serving,
        )
        version = done.path / str(done.version)
        written = dict(stamp.repository) | {str(version.resolve()): write_digest(entry, stamp, version)}
        save_stamp(entry.folder, replace(stamp, repository=written))
    except Exception as error:  # whatever it is, it is this model's, and the others go on
        return replace(outcome, repository=FAILED, error=_told(error))
    return replace(outcome, repository=WRITTEN, seconds=round(outcome.seconds + time.monotonic() - began, 1))


def _told(error: Exception) -> str:
    is_plain = isinstance(error, UserError | OSError)
    return " ".join((str(error) if is_plain else f"{type(error).__name__}: {error}").split())


class _Compiler:
    """Compiles packages, `jobs` at a time, each once; what runs is ended when this is left early."""

    def __init__(self, jobs: int, force: bool, progress: Progress) -> None:
        self._pool = ThreadPoolExecutor(jobs)
        self._force, self._progress = force, progress
        self._futures: dict[Path, Future[tuple[str, float, str | None]]] = {}
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_left = False

    def __enter__(self) -> _Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_left = True
            for process in self._running:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, entry: ModelEntry) -> Future[tuple[str, float, str | None]]:
        """What came of it, the seconds it took, and what went wrong."""
        if entry.folder not in self._futures:
            self._futures[entry.folder] = self._pool.submit(self._ensure, entry)
        return self._futures[entry.folder]

    def _ensure(self, entry: ModelEntry) -> tuple[str, float, str | None]:
        began = time.monotonic()
        try:
            if not self._force and is_compiled(entry, read_stamp(entry.folder)):
                return UP_TO_DATE, 0.0, None
            digest = compile_digest(entry)
            sources = self._compile(entry)
            # What was written from the old package is told by its manifest.
            written = stamp.repository if (stamp := read_stamp(entry.folder)) else {}
            save_stamp(entry.folder, Stamp(digest, sources, sha256_of(entry.folder / FILE_NAME), written))
        except Exception as error:
            return FAILED, time.monotonic() - began, _told(error)
        return COMPILED, time.monotonic() - began, None

    def _compile(self, entry: ModelEntry) -> dict[str, str]:
        """Compile in a process of its own; the digests of its sources. UserError with what it said."""
        with tempfile.TemporaryDirectory(prefix="aoti-pack-build-") as folder:
            result = Path(folder) / "result.json"
            root = Path(aoti_pack.__file__).resolve().parent.parent
            command = [sys.executable, "-P", "-c", BOOTSTRAP, str(root), str(result)]
            tail: list[str] = []
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as process:
                with self._lock:
                    self._running.add(process)
                    if self._is_left:
                        process.terminate()
                self._talk(process, entry, tail)
            with self._lock:
                self._running.discard(process)
            if not result.is_file():
                how = (
                    f"signal {-process.returncode}"
                    if process.returncode < 0
                    else f"code {process.returncode}"
                )
                raise UserError(f"the compiling process ended with {how}: {' '.join(tail[-3:])}")
            answer = json.loads(result.read_text(encoding="utf-8"))
        if "error" in answer:
            raise UserError(answer["error"])
        sources: dict[str, str] = answer["sources"]
        return sources

    def _talk(self, process: subprocess.Popen[str], entry: ModelEntry, tail: list[str]) -> None:
        if process.stdin is None or process.stderr is None:
            raise AssertionError("a process without pipes")
        try:
            process.stdin.write(json.dumps(entry.request() | {"folder": str(entry.folder)}))
            process.stdin.close()
        except BrokenPipeError:
            tail.append("it ended before it was told what to compile")
        for line in process.stderr:
            if line.startswith(STEP):
                self._progress(f"{entry.label}: {line.removeprefix(STEP).rstrip()}")
            elif line.strip():
                tail[:] = [*tail[-9:], line.strip()]
