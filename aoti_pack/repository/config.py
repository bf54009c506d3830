"""`config.pbtxt`, derived from the manifest: nothing in it is a second source of a name, shape or type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, TensorSpec, WireForm
from aoti_pack.repository.pbtxt import Enum, Statement, render


@dataclass(frozen=True)
class Serving:
    """How a model is to be served; what the manifest does not decide.

    instances: copies of the model that run at the same time; None for what was tuned, else 1.
    max_batch_size: most rows in one run; None for what was tuned, else all that the proof allows; 0 to join nothing.
    max_queue_delay_us: how long a request may wait for others to join it, in microseconds.
    threads: threads of each instance; None for the cores divided by the instances.
    """

    instances: int | None = None
    max_batch_size: int | None = None
    max_queue_delay_us: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("instances", self.instances, 1),
            ("max-batch-size", self.max_batch_size, 0),
            ("max-queue-delay-us", self.max_queue_delay_us, 0),
            ("threads", self.threads, 1),
        ):
            if value is not None and value < least:
                raise UserError(f"--{name} is {value}, expected {least} or more")


def tuned(manifest: Manifest, serving: Serving) -> Serving:
    """`serving` with what it leaves open taken from the manifest's tuning."""
    tuning = manifest.tuning
    if tuning is None:
        return serving
    rows = tuning.rows if manifest.batching.proved else None
    return dataclasses.replace(
        serving,
        instances=serving.instances or tuning.instances,
        max_batch_size=rows if serving.max_batch_size is None else serving.max_batch_size,
    )


@dataclass(frozen=True)
class WarmupInput:
    """One input of the warm-up request: its wire shape without the batch axis, and its data file."""

    spec: TensorSpec
    dims: tuple[int, ...]
    file: str


def wire_form(manifest: Manifest, serving: Serving) -> tuple[WireForm, int]:
    """The wire form and `max_batch_size` of `manifest` served as `serving` asks.

    UserError when more rows are asked for than the proof showed.
    """
    batching, asked = manifest.batching, serving.max_batch_size
    if asked == 0:
        return "single", 0
    if not batching.proved:
        if asked is not None:
            raise UserError(
                f"--max-batch-size {asked}: {manifest.name} must not be batched: {batching.reason}",
                mend="leave the option out; requests then run one by one",
            )
        return "single", 0
    if asked is not None and asked > batching.max:
        raise UserError(
            f"--max-batch-size {asked}: {manifest.name} is proved for up to {batching.max} rows",
            mend=f"ask for {batching.max} or less, or compile with a larger range of {batching.symbol!r}",
        )
    return "rows", asked or batching.max


def model_config(
    manifest: Manifest,
    serving: Serving,
    *,
    name: str,
    backend: str,
    warmup: Sequence[WarmupInput] = (),
    warmup_rows: int = 1,
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`config.pbtxt` for `manifest` (whose `wire` is already decided), in protobuf's JSON form."""
    form, max_batch_size = wire_form(manifest, serving)
    kind = "KIND_GPU" if manifest.target.device.startswith("cuda") else "KIND_CPU"
    config: dict[str, Any] = {
        "name": name,
        "backend": backend,
        "max_batch_size": max_batch_size,
        "input": [_tensor(spec, form) for spec in manifest.inputs],
        "output": [_tensor(spec, form) for spec in manifest.outputs],
        "instance_group": [{"count": serving.instances or 1, "kind": Enum(kind)}],
    }
    if max_batch_size > 1:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": serving.max_queue_delay_us}
    chosen = dict(parameters or {})
    if serving.threads is not None:
        chosen["threads"] = str(serving.threads)
    if chosen:
        config["parameters"] = {key: {"string_value": value} for key, value in chosen.items()}
    if warmup:
        config["model_warmup"] = [_warmup(warmup, warmup_rows)]
    return config


def config_text(config: Mapping[str, Any], comments: Mapping[Statement, Sequence[str]] | None = None) -> str:
    """The text of `config.pbtxt` for what `model_config` gave."""
    return "# Written by aoti-pack from manifest.json.\n" + render(config, comments)


def wire_dims(spec: TensorSpec, form: WireForm) -> tuple[list[int], bool]:
    """The `dims` of a tensor in config.pbtxt, and whether they need an empty `reshape`.

    The core counts the batch axis by itself and refuses an empty `dims`: what has no other axis goes as `[1]`.
    """
    shape = spec.shape[1:] if form == "rows" else spec.shape
    dims = [dim if isinstance(dim, int) else -1 for dim in shape]
    return (dims, False) if dims else ([1], True)


def _tensor(spec: TensorSpec, form: WireForm) -> dict[str, Any]:
    dims, scalar = wire_dims(spec, form)
    entry: dict[str, Any] = {"name": spec.name, "data_type": config_type(spec.datatype), "dims": dims}
    # At max_batch_size 0 an empty reshape is refused; the backend itself squeezes and answers 0-d there.
    if scalar and form == "rows":
        entry["reshape"] = {"shape": []}
    if spec.default is not None:
        entry["optional"] = True
    return entry


def config_type(datatype: str) -> Enum:
    """`TYPE_…` as config.pbtxt writes a KServe datatype."""
    return Enum(f"TYPE_{datatype}")


def _warmup(inputs: Sequence[WarmupInput], rows: int) -> dict[str, Any]:
    return {
        "name": "sample",
        "batch_size": rows,
        "inputs": {
            item.spec.name: {
                "data_type": config_type(item.spec.datatype),
                "dims": list(item.dims),
                "input_data_file": item.file,
            }
            for item in inputs
        },
    }
