"""Closed-loop load: a number of clients that each send the next request when the last one is answered."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoti_pack.bench.client import ModelClient
from aoti_pack.manifest import Manifest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Measured:
    """One run of a load. Latencies are client-side, in milliseconds; throughput is requests a second."""

    p50_ms: float
    p99_ms: float
    throughput: float
    requests: int


@dataclass(frozen=True)
class Endpoint:
    """A served model."""

    url: str
    name: str
    manifest: Manifest


def closed_loop(
    endpoint: Endpoint,
    inputs: Sequence[Mapping[str, torch.Tensor]],
    *,
    concurrency: int,
    seconds: float,
) -> Measured:
    """`concurrency` clients, each on a connection of its own, for `seconds`; client i starts at input i.

    The first answer of each client is not counted. An error of any request ends the load and is raised.
    """
    # Two phases: all connected and warm, then all started together.
    barrier = threading.Barrier(concurrency)
    latencies: list[list[float]] = [[] for _ in range(concurrency)]
    spans: list[tuple[float, float]] = [(0.0, 0.0)] * concurrency
    failures: list[BaseException] = []

    def client(index: int) -> None:
        try:
            connection = ModelClient(endpoint.url, endpoint.name, endpoint.manifest)
            try:
                requests = [connection.prepare(one) for one in inputs]
                connection.send(requests[index % len(requests)])
                barrier.wait()
                start = now = time.perf_counter()
                turn = index
                while now - start < seconds:
                    connection.send(requests[turn % len(requests)])
                    turn += 1
                    then, now = now, time.perf_counter()
                    latencies[index].append(1e3 * (now - then))
                spans[index] = (start, now)
            finally:
                connection.close()
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=client, args=(index,)) for index in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        real = [error for error in failures if not isinstance(error, threading.BrokenBarrierError)]
        raise (real or failures)[0]
    merged = sorted(latency for one in latencies for latency in one)
    elapsed = max(end for _, end in spans) - min(start for start, _ in spans)
    return Measured(
        statistics.median(merged),
        merged[min(len(merged) - 1, int(0.99 * len(merged)))],
        len(merged) / elapsed,
        len(merged),
    )
