"""An exported model becomes a `.pt2` package through AOTInductor."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_pack.compiler.cpu_lowerings import cpu_lowerings
from aoti_pack.compiler.export import Exported
from aoti_pack.compiler.options import CompileOptions
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
    return configs


def lower(exported: Exported, package: Path, options: CompileOptions) -> None:
    """Compile `exported`, which lies on the device of `options`, into the file `package`.

    UserError when there is no compiler or it fails.
    """
    import torch

    with _fresh_cache(), cpu_lowerings(options.device), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            torch._inductor.aoti_compile_and_package(
                exported.program, package_path=str(package), inductor_configs=inductor_configs(options)
            )
        except Exception as error:
            if _is_missing_compiler(error):
                raise UserError(
                    "no C++ compiler was found; AOTInductor needs g++",
                    mend="`apt-get install g++`, or set CXX; `aoti-pack doctor` checks the rest",
                ) from error
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UserError(
                f"AOTInductor could not compile the model: {type(error).__name__}: {' '.join(lines[:3])}",
                mend="`--debug` shows the whole trace",
            ) from error


def _is_missing_compiler(error: Exception) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ == "InvalidCxxCompiler" or "InvalidCxxCompiler" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextmanager
def _fresh_cache() -> Iterator[None]:
    """Compile in an empty inductor cache: a stale one could slip in code of other options.

    The compiler's own temporary files go there too, so that an interrupted compile leaves none behind.
    """
    names = ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="aoti-pack-inductor-") as folder:
        os.environ.update(dict.fromkeys(names, folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
