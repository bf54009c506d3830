"""One small package, compiled by the command line several times over: each time in a process of its own, with its
own temp folder, order of sets and output folder."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packages import RECIPES

TARGET = "x86-64-v3"


@dataclass(frozen=True)
class Run:
    """A compile under way, and where it writes and works."""

    process: subprocess.Popen[str]
    folder: Path
    temp: Path

    def done(self) -> Path:
        """The package's folder, once the compile has ended well."""
        told, _ = self.process.communicate(timeout=500)
        assert self.process.returncode == 0, told
        return self.folder


def start(root: Path, name: str, *options: str) -> Run:
    """Start to compile tests/recipes/tiny.py into `root/NAME/package`."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # Of a length and an order of sets of its own.
    temp = root / name / ("t" * (3 + len(name)))
    temp.mkdir(parents=True)
    # Inductor keeps precompiled headers there, which take longer to make than all else.
    shared = Path(default_cache_dir())
    shared.mkdir(exist_ok=True)
    (temp / shared.name).symlink_to(shared)
    env = os.environ | {"TMPDIR": str(temp), "PYTHONHASHSEED": str(sum(name.encode()))}
    program = "from aoti_pack.cli import main; main()"
    source, folder = f"{RECIPES / 'tiny.py'}:recipe", root / name / "package"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "compile", source, "-o", str(folder), *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Run(process, folder, temp)
