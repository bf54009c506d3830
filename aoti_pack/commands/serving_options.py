"""How a model is to be served, as `package` and `config` take it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--name", help="Name of the served model (default: the recipe's; NAME_python for the twin)."
    ),
    click.option("--backend", type=click.Choice(["aoti", "python"]), default="aoti", show_default=True),
    click.option("--instances", type=int, help="Copies that run at a time (default: as tuned, else 1)."),
    click.option("--threads", type=int, help="Threads of an instance (default: cores / instances)."),
    click.option(
        "--max-batch-size",
        type=int,
        help="Most rows in one run (default: as tuned, else what is proved; 0: none).",
    ),
    click.option(
        "--max-queue-delay-us", type=int, default=0, show_default=True, help="Wait for batch-mates."
    ),
)


def serving_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options; it gets `name`, `backend` and `serving`, a `Serving`."""

    @functools.wraps(command)
    def with_serving(
        *,
        instances: int | None,
        threads: int | None,
        max_batch_size: int | None,
        max_queue_delay_us: int,
        **rest: Any,
    ) -> None:
        from aoti_pack.repository.config import Serving

        command(serving=Serving(instances, max_batch_size, max_queue_delay_us, threads), **rest)

    for option in reversed(_OPTIONS):
        with_serving = option(with_serving)
    return with_serving
