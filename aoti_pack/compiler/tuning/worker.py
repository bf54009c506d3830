"""One serving instance's worth of work in a process of its own: run a package in a loop and count.

Python's binding of the package loader holds the interpreter's lock while a model runs, so instances that run side by
side need processes. Reads one JSON request a line from stdin and answers each with one line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_WARM_RUNS = 2


def main() -> None:
    """`load` a package with inputs, then `run` it for so many seconds on so many threads; end of input ends it."""
    import torch

    from aoti_pack.compiler.runtime import CompiledModel

    loaded: dict[str, CompiledModel] = {}
    inputs: list[torch.Tensor] = []
    model: CompiledModel | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if request["do"] == "load":
            folder = request["package"]
            if folder not in loaded:
                loaded[folder] = CompiledModel(Path(folder), request["device"])
            model = loaded[folder]
            inputs = torch.load(request["inputs"], weights_only=True, map_location=request["device"])
            torch.set_num_threads(request["threads"])
            for _ in range(_WARM_RUNS):
                model.run(inputs)
            answer: dict[str, Any] = {"ready": True}
        else:
            if model is None:
                raise RuntimeError("run before load")
            answer = _measure(model, inputs, request["seconds"])
        print(json.dumps(answer), flush=True)


def _measure(model: Any, inputs: Any, seconds: float) -> dict[str, Any]:
    times: list[float] = []
    start = last = time.perf_counter()
    while last - start < seconds:
        model.run(inputs)
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return {"runs": len(times), "seconds": last - start, "p50_s": sorted(times)[len(times) // 2]}


if __name__ == "__main__":
    main()
