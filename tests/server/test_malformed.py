"""Ten thousand malformed requests to a real server, with good ones among them: each is answered as it must be, and
the server lives on with no more memory than before."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from attack import Connections, judge
from malformed import REGION, REGION_BYTES, good, wrong
from resident import resident_bytes
from stand import Stand
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import shared_memory as shm

pytestmark = pytest.mark.server

REQUESTS = 10_000
THREADS = 4
# What the heap's arenas still take after the first quarter of the requests. A leak of 1 KiB a request would be 7.5.
ALLOWED_GROWTH = 5 << 20


def test_ten_thousand_malformed_requests(stand: Stand) -> None:
    done = threading.Event()
    seed = int(os.environ.get("MALFORMED_SEED", "20"))

    def attack(part: int) -> Counter[tuple[str, str]]:
        rng = random.Random(f"{seed} {part}")
        connections = Connections(stand.server)
        counts: Counter[tuple[str, str]] = Counter()
        for _ in range(REQUESTS // 4 // THREADS):
            case = wrong(rng)
            answer = connections.send(case)
            problem = judge(case, answer)
            assert problem is None, f"{problem}: {case}"[:2000]
            counts[case.kinds[0], "refused" if isinstance(answer, str) else "answered"] += 1
        connections.close()
        return counts

    def go_on() -> int:
        rng = random.Random(seed)
        connections = Connections(stand.server)
        answered = 0
        while not done.is_set():
            case = good(rng)
            problem = judge(case, connections.send(case))
            assert problem is None, f"{problem}: {case}"[:2000]
            answered += 1
        connections.close()
        return answered

    control = InferenceServerClient(stand.server.grpc_url)
    key = f"/aoti_pack_malformed_{os.getpid()}"
    region = shm.create_shared_memory_region(REGION, key, REGION_BYTES)
    pid, memory, counts = stand.server.pid, [], Counter[tuple[str, str]]()
    try:
        control.register_system_shared_memory(REGION, key, REGION_BYTES)
        with ThreadPoolExecutor(THREADS + 1) as pool:
            going_on = pool.submit(go_on)
            try:
                for quarter in range(4):
                    for found in pool.map(attack, range(THREADS * quarter, THREADS * (quarter + 1))):
                        counts += found
                    memory.append(resident_bytes(pid))
            finally:
                done.set()
            answered = going_on.result()
    finally:
        control.unregister_system_shared_memory(REGION)
        shm.destroy_shared_memory_region(region)
        control.close()
    assert sum(counts.values()) == REQUESTS
    assert answered > 100
    assert stand.server.pid == pid
    assert stand.server.wait(0) is None
    # The generator does what it says: of each kind many, and hardly one that was no fault after all.
    refused = Counter({kind: n for (kind, how), n in counts.items() if how == "refused"})
    assert all(
        refused[kind] > 100 for kind in ("datatype", "size", "rank", "bytes", "inputs", "region", "ids")
    )
    assert counts["not_finite", "answered"] > 100
    grown = max(memory[1:]) - memory[0]
    print(f"\nmalformed: {dict(refused)}, {answered} good ones; MiB after each quarter: "
          f"{[round(m / 2**20, 1) for m in memory]}")  # fmt: skip
    assert grown < ALLOWED_GROWTH
