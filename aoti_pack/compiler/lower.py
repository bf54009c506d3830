"""An exported model becomes a `.pt2` package through AOTInductor."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_pack.compiler.cpu_lowerings import cpu_lowerings
from aoti_pack.compiler.cpu_target import cpu_target, inductor_for
from aoti_pack.compiler.environment import environment
from aoti_pack.compiler.export import Exported
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.repack import repack
from aoti_pack.compiler.stable_cxx import stable_compiler
from aoti_pack.compiler.updatable import inductor_settings
from aoti_pack.errors import UserError


def inductor_configs(options: CompileOptions) -> dict[str, Any]:
    """AOTInductor's own settings for `options`."""
    configs: dict[str, Any] = {
        "cpp.dynamic_threads": options.dynamic_threads,
        "freezing": options.freezing,
        "max_autotune": options.max_autotune,
        **inductor_settings(options.updatable),
    }
    return configs | cpu_target(options.target_cpu).configs()


def lower(exported: Exported, package: Path, options: CompileOptions) -> None:
    """Compile `exported`, which lies on the device of `options`, into the file `package`.

    The same model and options on the same machine give the same bytes (but for `max_autotune`, which measures).
    UserError when there is no compiler or it fails.
    """
    import torch

    with (
        _fresh_cache() as build,
        stable_compiler(build) as stable,
        inductor_for(cpu_target(options.target_cpu)),
        cpu_lowerings(options.device),
        warnings.catch_warnings(),
        _without_fallback_notes(),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)  # inductor marks appended weights by a random number
        raw = build / package.name
        try:
            torch._inductor.aoti_compile_and_package(
                exported.program, package_path=str(raw), inductor_configs=inductor_configs(options) | stable
            )
        except UserError:
            raise
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UserError(
                f"AOTInductor could not compile the model: {type(error).__name__}: {' '.join(lines[:3])}",
                mend="`--debug` shows the whole trace",
            ) from error
        repack(raw, package, build=build, keep_sources=options.keep_sources)


@contextmanager
def _without_fallback_notes() -> Iterator[None]:
    """Keep torch from telling, operator by operator, that what `cpu_lowerings` sends to ATen goes to ATen."""

    def wanted(record: logging.LogRecord) -> bool:
        return "proxy executor" not in record.getMessage()

    logger = logging.getLogger("torch._inductor.ir")
    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


@contextmanager
def _fresh_cache() -> Iterator[Path]:
    """Compile in an empty inductor cache, whose folder is yielded: a stale one could slip in code of other options.

    The compiler's own temporary files go there too, so that an interrupted compile leaves none behind.
    """
    names = ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR")
    with (
        tempfile.TemporaryDirectory(prefix="aoti-pack-inductor-") as folder,
        environment(dict.fromkeys(names, folder)),
    ):
        yield Path(folder)
