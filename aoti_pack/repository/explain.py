"""Why `config.pbtxt` says what it says: the comments of `aoti-pack config`."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_pack.manifest import Manifest, TensorSpec, WireForm, size_names
from aoti_pack.repository.config import Serving, wire_dims, wire_form
from aoti_pack.repository.pbtxt import Statement


def explain(
    manifest: Manifest, serving: Serving, *, backend: str, name: str
) -> dict[Statement, Sequence[str]]:
    """Lines of comment for each statement of the configuration that `model_config` makes of the same arguments."""
    form, rows = wire_form(manifest, serving)
    comments: dict[Statement, Sequence[str]] = {
        ("name", 0): [f"The model's folder in the repository must be called {name} too."],
        ("backend", 0): [_backend(backend)],
        ("max_batch_size", 0): _max_batch_size(manifest, serving, rows),
        ("instance_group", 0): _instances(manifest, serving),
        ("dynamic_batching", 0): [
            "Requests that wait for a free instance are joined; microseconds that one waits for others even when one "
            f"is free (--max-queue-delay-us): {serving.max_queue_delay_us}."
        ],
        ("model_warmup", 0): [
            "The recipe's example runs before the model is ready; `aoti-pack package` writes its files into warmup/."
        ],
    }
    for kind, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        for index, spec in enumerate(specs):
            comments[kind, index] = _tensor(manifest, spec, form)
    if manifest.baked:
        told = ", ".join(f"{scalar.name} = {scalar.value!r}" for scalar in manifest.baked)
        comments["input", 0] = [
            f"Compiled in, no inputs: {told}. A request parameter of that name and another value is refused.",
            *comments["input", 0],
        ]
    if backend == "python":
        comments["parameters", 0] = [
            "What the twin runs: the eager model, or torch.compile of it (--compile)."
        ]
    if serving.threads is not None:
        last = 1 if backend == "python" else 0
        comments["parameters", last] = [
            f"Threads of an instance (--threads): {serving.threads}; without it, the cores divided by the instances."
        ]
    return comments


def _backend(backend: str) -> str:
    if backend == "python":
        return "Triton's Python backend: the eager twin of the package, the baseline."
    return "libtriton_aoti.so, which takes this package's manifest.json and checks every request against it."


def _max_batch_size(manifest: Manifest, serving: Serving, rows: int) -> Sequence[str]:
    batching = manifest.batching
    if not batching.proved:
        return [f"Not batched, one request a run: {batching.reason}"]
    proof = f"rows are proved not to see each other, up to {batching.max} of {batching.symbol!r}"
    if rows == 0:
        return [f"Not batched, as --max-batch-size 0 asks; {proof}."]
    asked = "all of them" if serving.max_batch_size is None else f"--max-batch-size asks for {rows}"
    return [f"Rows of different requests share a run: {proof}; {asked}."]


def _instances(manifest: Manifest, serving: Serving) -> Sequence[str]:
    place = f"the package is compiled for {manifest.target.device}"
    threads = (
        "" if serving.threads else "; each computes with the cores divided by them (--threads says else)"
    )
    return [f"Instances that run at a time (--instances): {serving.instances}{threads}. The kind: {place}."]


def _tensor(manifest: Manifest, spec: TensorSpec, form: WireForm) -> Sequence[str]:
    """The tensor as the model has it, the ranges of its symbols, and how it goes on the wire."""
    shape = ", ".join(map(str, spec.shape))
    used = {name for dim in spec.shape for name in size_names(dim)}
    ranges = ", ".join(f"{s.name} is {s.min} to {s.max}" for s in manifest.symbols if s.name in used)
    line = f"{spec.name}: {spec.dtype} [{shape}]" + (f", {ranges}" if ranges else "") + "."
    _, scalar = wire_dims(spec, form)
    if scalar:
        wire = f"[{spec.shape[0]}, 1]" if form == "rows" else "[1]"
        line += f" It goes as {wire}: the server wants an axis " + (
            "beside the rows." if form == "rows" else "at least."
        )
    elif form == "rows":
        line += f" The server counts the axis {spec.shape[0]} by itself."
    if spec.default is None:
        return [line]
    return [line, f"A request may leave it out: it is {spec.default!r} everywhere then."]
