"""The compiler as AOTInductor is to call it, so that a package's code does not depend on where it was compiled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_pack.compiler.environment import environment
from aoti_pack.compiler.march import compiler
from aoti_pack.errors import UserError

_COMMANDS = Path(__file__).resolve().parent / "cxx"


@contextmanager
def stable_compiler(build: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings that make inductor, which works in the folder `build`, call the compiler through `cxx/`.

    The command is the same for every `build`: inductor keeps precompiled headers by it. Names of generated files
    are fixed too, where inductor takes them from a hash over paths. UserError when there is no compiler.
    """
    import torch

    real = compiler()
    command = _COMMANDS / ("clang++" if "clang" in Path(real).name else "g++")
    if not os.access(command, os.X_OK):
        raise UserError(f"{command} cannot be executed", mend="reinstall aoti-pack where programs may run")
    packages = Path(torch.__file__).parents[1]  # the compiler is given torch's headers by this name
    variables = {
        "AOTI_PACK_CXX": real,
        "AOTI_PACK_BUILD_DIR": str(build),
        "AOTI_PACK_SITE_DIR": str(packages),
        "AOTI_PACK_REAL_SITE_DIR": str(packages.resolve()),
    }
    with environment(variables):
        yield {"cpp.cxx": str(command), "aot_inductor.model_name_for_generated_files": "model"}
