"""Minutes of mixed traffic: good requests of all sizes, bad ones among them; no wrong answer, flat memory."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from stand import Stand

from aoti_pack.errors import UserError

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
CLIENTS = 6
ALLOWED_GROWTH = 5 << 20


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def test_mixed_traffic(stand: Stand) -> None:
    stop = threading.Event()
    counts = {"good": 0, "refused": 0}
    lock = threading.Lock()

    def client(index: int) -> None:
        name = ("arith", "lookup", "hstu")[index % 3]
        model, connection = stand.models[name], stand.client(name)
        symbols = {symbol.name: symbol for symbol in model.manifest.symbols}
        turn = 0
        while not stop.is_set():
            turn += 1
            sizes = {n: 1 + (turn * 7 + index) % min(s.max, 16) for n, s in symbols.items()}
            inputs = model.draw(1000 * index + turn, **sizes)
            if turn % 5 == 0:
                spoiled = dict(inputs)
                first = model.manifest.inputs[0].name
                spoiled[first] = inputs[first].repeat(1, 40)
                with pytest.raises(UserError, match=first):
                    connection.infer(spoiled)
                kind = "refused"
            else:
                got, wanted = connection.infer(inputs), model.expected(inputs)
                for output, tensor in wanted.items():
                    torch.testing.assert_close(got[output], tensor, rtol=1e-4, atol=1e-5)
                kind = "good"
            with lock:
                counts[kind] += 1
        connection.close()

    torch.set_num_threads(1)
    with ThreadPoolExecutor(CLIENTS) as pool:
        jobs = [pool.submit(client, index) for index in range(CLIENTS)]
        # The first third is warm-up: arenas and caches fill.
        deadline = time.monotonic() + SECONDS / 3
        while time.monotonic() < deadline and not any(job.done() for job in jobs):
            stop.wait(0.5)
        warm = resident_bytes(stand.server.pid)
        deadline = time.monotonic() + 2 * SECONDS / 3
        while time.monotonic() < deadline and not any(job.done() for job in jobs):
            stop.wait(0.5)
        grown = resident_bytes(stand.server.pid) - warm
        stop.set()
        for job in jobs:
            job.result()
    print(f"\nsoak: {counts['good']} right answers, {counts['refused']} refusals, {grown / 2**20:+.1f} MiB")
    assert counts["good"] > 100
    assert counts["refused"] > 20
    assert grown < ALLOWED_GROWTH
