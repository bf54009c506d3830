"""How a source is compiled, as `compile` takes it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
    click.option("--dtype", help="float32 or bfloat16 (default: what the recipe's model is in)."),
    click.option(
        "--target-cpu",
        default="native",
        show_default=True,
        metavar="CPU",
        help="native, x86-64-v2, x86-64-v3, x86-64-v4 or another -march of the compiler's.",
    ),
    click.option("--static-threads", is_flag=True, help="Compile in this machine's number of threads."),
    click.option("--freezing", is_flag=True, help="Let the optimiser fold and repack the weights."),
    click.option(
        "--max-autotune", is_flag=True, help="Choose kernels by measuring; not the same bytes each time."
    ),
    click.option("--updatable", is_flag=True, help="Weights can be replaced in a running server."),
    click.option("--keep-sources", is_flag=True, help="Ship the generated C++ in the package."),
)


def compile_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options; it gets them as `options`, a `CompileOptions`."""

    @functools.wraps(command)
    def with_options(
        *,
        device: str,
        dtype: str | None,
        target_cpu: str,
        static_threads: bool,
        freezing: bool,
        max_autotune: bool,
        updatable: bool,
        keep_sources: bool,
        **rest: Any,
    ) -> None:
        from aoti_pack.compiler.options import CompileOptions

        options = CompileOptions(
            device, dtype, target_cpu, not static_threads, freezing, max_autotune, updatable, keep_sources
        )
        command(options=options, **rest)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
