"""The backend compiles against Triton's own headers as well as against ours, where both are there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aoti_pack.paths import source_root
from aoti_pack.server.toolchain import find_compiler, find_torch, nlohmann_include

INCLUDE = Path(os.environ.get("TRITON_INCLUDE_DIR", "/opt/tritonserver/include"))


@pytest.mark.skipif(
    not (INCLUDE / "triton/core/tritonbackend.h").is_file(),
    reason="Triton's headers are not at /opt/tritonserver/include, and TRITON_INCLUDE_DIR does not name them",
)
def test_every_file_that_speaks_the_abi_compiles_against_both() -> None:
    root, torch = source_root(), find_torch().folder
    files = [
        path
        for path in sorted((root / "cpp" / "src").glob("*.cc"))
        if "TRITON" in path.read_text(encoding="utf-8") and "ATen" not in path.read_text(encoding="utf-8")
    ]
    assert len(files) >= 5
    for define in ([], ["-DAOTI_PACK_OFFICIAL_TRITON_HEADERS", f"-isystem{INCLUDE}"]):
        command = [
            str(find_compiler().path),
            "-std=c++20",
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Werror",
            *define,
            f"-I{root / 'cpp/include'}",
            f"-I{root / 'cpp/src'}",
            f"-isystem{nlohmann_include()}",
            f"-isystem{torch / 'include'}",
        ]
        for path in files:
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
