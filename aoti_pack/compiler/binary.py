"""What the machine code of a package asks of a machine, read off its `.so` files by binutils' `objdump`.

objdump comes with the assembler that wrote the code, so it knows every instruction that can be in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from aoti_pack.compiler.cpu_target import CpuTarget
from aoti_pack.compiler.instruction_sets import Instruction, beyond
from aoti_pack.compiler.march import compiler
from aoti_pack.errors import UserError

_HEADER = re.compile(r"[0-9a-f]+ <(.*)>:$")
_NEEDED_GLIBC = re.compile(r"\bGLIBC_(\d+(?:\.\d+)+)$")
# A marker for code with packed relocations, which the loader of this release was the first to know.
_RELR, _RELR_GLIBC = re.compile(r"\bGLIBC_ABI_DT_RELR$"), (2, 36)


def shared_objects(folder: Path) -> list[Path]:
    """The `.so` files of a package that was unpacked into `folder`."""
    return sorted(path for path in folder.rglob("*.so") if path.is_file())


def check_instructions(libraries: Sequence[Path], target: CpuTarget) -> None:
    """UserError naming the first instruction of `libraries` that a CPU with no more than `target` cannot run.

    `native` is what this machine has: the proof ran the code here.
    """
    if target.native:
        return
    for library in libraries:
        for instruction in instructions(library):
            if needed := beyond(instruction, target.features):
                raise UserError(
                    f"the package was to run on {target.march}, and function {instruction.function} of "
                    f"{library.name} has the instruction `{instruction.text}`, which needs {needed}",
                    mend=f"look for flags that add instruction sets (CXX, a custom operator's library, "
                    f"TORCHINDUCTOR_* variables), or choose a --target-cpu that has {needed}",
                )


def instructions(library: Path) -> Iterator[Instruction]:
    """Every instruction in the executable sections of `library`, which is an ELF file."""
    function = "?"
    told = _objdump(
        "--disassemble",
        "--disassembler-options=intel",
        "--demangle",
        "--wide",
        "--insn-width=16",
        str(library),
    )
    for line in told:
        # "   1129:\t62 f1 7c 48 58 c1    \tvaddps zmm0,zmm0,zmm1"
        fields = line.split("\t", 2)
        if len(fields) == 3:
            yield Instruction(tuple(fields[1].split()), " ".join(fields[2].split()), function)
        elif header := _HEADER.match(line):
            function = header[1]


def needed_glibc(libraries: Sequence[Path]) -> str:
    """The oldest glibc that has every versioned symbol that `libraries` ask for, such as `2.34`."""
    found: set[tuple[int, ...]] = {(2, 2, 5)}  # the first glibc for x86-64
    for library in libraries:
        for line in _objdump("--private-headers", str(library)):
            if match := _NEEDED_GLIBC.search(line.strip()):
                found.add(tuple(int(part) for part in match[1].split(".")))
            elif _RELR.search(line.strip()):
                found.add(_RELR_GLIBC)
    return ".".join(map(str, max(found)))


def find_objdump() -> str:
    """binutils' objdump of the compiler's own, else of PATH; UserError when there is none."""
    told = subprocess.run(
        [compiler(), "-print-prog-name=objdump"], capture_output=True, text=True, check=False
    )
    found = shutil.which(told.stdout.strip() or "objdump") or shutil.which("objdump")
    if found is None:
        raise UserError("objdump is missing; it reads what a package needs", mend="apt-get install binutils")
    return found


def _objdump(*arguments: str) -> Iterator[str]:
    """The lines that objdump prints; UserError with its words when it fails."""
    command = [find_objdump(), *arguments]
    environment = os.environ | {"LC_ALL": "C"}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace", env=environment
        ) as process,
    ):
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        for line in process.stdout:
            yield line.rstrip("\n")
        code = process.wait()
        stderr.seek(0)
        complaint = " ".join(stderr.read().split())
    if code != 0:
        raise UserError(f"{' '.join(command)} failed: {complaint}", mend="apt-get install binutils")
