"""An exported model becomes a `.pt2` package through AOTInductor."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_pack.compiler.cpu_lowerings import cpu_lowerings
from aoti_pack.compiler.export import Exported
from aoti_pack.errors import UserError

# `dynamic_threads`: else the thread count of the compiling machine is baked into every kernel.
OPTIONS: Mapping[str, Any] = {"cpp.dynamic_threads": True}


def lower(exported: Exported, package: Path, device: str) -> None:
    """Compile `exported`, which lies on `device`, into the file `package`.

    UserError when there is no compiler or it fails.
    """
    import torch

    with _fresh_cache(), cpu_lowerings(device), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            torch._inductor.aoti_compile_and_package(
                exported.program, package_path=str(package), inductor_configs=dict(OPTIONS)
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
