"""The demo's course: train, prove, package, serve, recommend, compare. It prints as it goes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_pack import console
from aoti_pack.atomic import write_text
from aoti_pack.bench.client import ModelClient
from aoti_pack.bench.compare import Row, compare
from aoti_pack.bench.load import Endpoint
from aoti_pack.compiler.build import Compiled
from aoti_pack.demo.artifacts import Trained, compile_once, train_once
from aoti_pack.demo.requests import Ranking, load_requests, rank
from aoti_pack.errors import ProofError
from aoti_pack.manifest import Manifest
from aoti_pack.package_files import EAGER_FILE
from aoti_pack.paths import user_cache
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.build import backends_directory, build_backend
from aoti_pack.server.find import find_server
from aoti_pack.server.launch import TritonServer

if TYPE_CHECKING:
    from aoti_pack.models.hstu_scoring import DemoRequest
    from aoti_pack.models.ratings import Ratings


TOP = 10
CONCURRENCIES = (1, 8)


@dataclass(frozen=True)
class Options:
    """What the user may choose. `threads` are those of each served instance, on both sides."""

    ratings: Path | None = None
    user: str | None = None
    work: Path | None = None
    seed: int = 0
    rounds: int = 3
    seconds: float = 4.0
    threads: int = 1


@dataclass(frozen=True)
class Report:
    """The demo's figures."""

    trained: Trained
    manifest: Manifest
    parity_max_abs: float
    ranking_equal: bool
    rows: Sequence[Row]

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `p50_ms`, `throughput` and `speedup` are per backend and concurrency."""

        def per_backend(field: str) -> dict[str, dict[str, float]]:
            found: dict[str, dict[str, float]] = {}
            for row in self.rows:
                found.setdefault(row.model, {})[str(row.concurrency)] = getattr(row, field)
            return found

        return {
            "hr10": self.trained.hr10,
            "ndcg10": self.trained.ndcg10,
            "popularity_hr10": self.trained.popularity_hr10,
            "parity_max_abs": self.parity_max_abs,
            "ranking_equal": self.ranking_equal,
            "p50_ms": per_backend("p50_ms"),
            "p99_ms": per_backend("p99_ms"),
            "throughput": per_backend("throughput"),
            "speedup": per_backend("speedup"),
        }


def run(options: Options, json_file: Path | None) -> Report:
    """Run the demo and print it. UserError on wrong use, ProofError when served and eager rankings differ."""
    work = options.work or user_cache() / "demo"
    work.mkdir(parents=True, exist_ok=True)
    ratings = _read_ratings(options)
    with console.steps("prepare") as progress:
        binary = find_server(progress=progress)
        backends = backends_directory(binary, build_backend(progress=progress))
    with console.steps("train") as progress:
        trained = train_once(ratings, work, options.seed, progress)
    _print_quality(trained, ratings)
    with console.steps("compile") as progress:
        compiled = compile_once(trained, work, progress)
    console.show_proof(compiled.manifest)
    batching = compiled.manifest.batching
    console.out.print(f"batching proved up to {batching.max} rows\n" if batching.proved else batching.reason)

    with tempfile.TemporaryDirectory(prefix="aoti-pack-demo-") as folder:
        repo = Path(folder) / "repo"
        names = _write_repository(compiled, repo, options.threads)
        # Both sides set their threads themselves; the variable keeps libraries from starting more.
        environment = {"OMP_NUM_THREADS": str(options.threads)}
        with TritonServer(repo, binary=binary, backends=backends, env=environment) as server:
            endpoints = {
                backend: Endpoint(server.grpc_url, name, Manifest.load(repo / name / "1"))
                for backend, name in names.items()
            }
            off, equal = _recommend(compiled, trained, ratings, options.user, endpoints["aoti"])
            rows = _measure(trained, ratings, endpoints, options)
    report = Report(trained, compiled.manifest, off, equal, rows)
    _print_comparison(rows, options)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(json_file, json.dumps(report.as_dict(), indent=2) + "\n")
    if not equal:
        raise ProofError("the served ranking is not eager's; see the lines above")
    return report


def _read_ratings(options: Options) -> Ratings:
    from aoti_pack.models.ratings import from_csv, movielens

    return movielens() if options.ratings is None else from_csv(options.ratings)


def _write_repository(compiled: Compiled, repo: Path, threads: int) -> dict[str, str]:
    serving = Serving(threads=threads)
    return {
        backend: write_model(compiled.folder, repo, backend=backend, serving=serving).name
        for backend in ("aoti", "python")
    }


def _recommend(
    compiled: Compiled, trained: Trained, ratings: Ratings, user: str | None, endpoint: Endpoint
) -> tuple[float, bool]:
    from aoti_pack.models.hstu_scoring import demo_request

    request = demo_request(trained.folder, ratings, user)
    client = ModelClient(endpoint.url, endpoint.name, endpoint.manifest)
    try:
        served = client.infer(request.inputs)["scores"][0]
    finally:
        client.close()
    eager = _eager_scores(compiled, request)
    mine, theirs = rank(served), rank(eager)
    off = float((served.double() - eager.double()).abs().max())
    equal = _print_titles(request, mine, theirs, off)
    return off, equal


def _eager_scores(compiled: Compiled, request: DemoRequest) -> Any:
    import torch

    model = torch.load(compiled.folder / EAGER_FILE, weights_only=False)
    with torch.inference_mode():
        return model(**request.inputs)[0]


def _print_quality(trained: Trained, ratings: Ratings) -> None:
    lift = trained.hr10 / trained.popularity_hr10 if trained.popularity_hr10 else float("inf")
    how = "kept from an earlier run" if trained.cached else f"trained in {trained.seconds:.0f} s"
    console.out.print(
        f"HSTU on {len(ratings)} ratings ({how}), each user's last event ranked among all unseen items:\n"
        f"  HR@10 {trained.hr10:.4f}  NDCG@10 {trained.ndcg10:.4f}   popularity: "
        f"HR@10 {trained.popularity_hr10:.4f}  NDCG@10 {trained.popularity_ndcg10:.4f}   "
        f"HR@10 {lift:.2f}x\n",
        markup=False,
        soft_wrap=True,
    )


def _print_titles(request: DemoRequest, mine: Ranking, theirs: Ranking, off: float) -> bool:
    equal = mine.order[:TOP] == theirs.order[:TOP]
    show = [
        (place + 1, title, f"{mine.scores[place].item():.4f}")
        for place, title in enumerate(mine.top(request.candidates, TOP))
    ]
    console.show(
        console.table(
            f"user {request.user}, last seen: {', '.join(request.history[-3:])}; the C++ backend recommends",
            ("", "title", "score"),
            show,
        )
    )
    told = "identical to eager's" if equal else "NOT eager's"
    console.out.print(
        f"top {TOP} of {len(request.candidates)} candidates {told}; max |served - eager| {off:.2e}; "
        f"the user went on to: {request.next_item}\n",
        markup=False,
        soft_wrap=True,
    )
    return equal


def _measure(
    trained: Trained, ratings: Ratings, endpoints: dict[str, Endpoint], options: Options
) -> list[Row]:
    inputs = load_requests(trained.folder, ratings)
    with console.steps("compare") as progress:
        return compare(
            endpoints,
            inputs,
            baseline="python",
            concurrencies=CONCURRENCIES,
            rounds=options.rounds,
            seconds=options.seconds,
            progress=progress,
        )


def _print_comparison(rows: Sequence[Row], options: Options) -> None:
    cores = len(os.sched_getaffinity(0))
    title = (
        f"{options.threads} thread(s) an instance, 1 instance each, {cores} cores shared with the client; medians "
        f"of {options.rounds} interleaved rounds of {options.seconds:g} s"
    )
    cells = [
        (
            row.concurrency,
            "aoti C++" if row.model == "aoti" else "python eager",
            f"{row.p50_ms:.2f}",
            f"{row.p99_ms:.2f}",
            f"{row.throughput:.0f}",
            f"{row.speedup:.2f}x ({row.lowest:.2f}-{row.highest:.2f})",
        )
        for row in rows
    ]
    console.show(
        console.table(
            title, ("concurrency", "backend", "p50 ms", "p99 ms", "infer/s", "throughput ratio"), cells
        )
    )
