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
from dataclasses import dataclass
from pathlib import Path

from aoti_pack.compiler.cpu_target import CpuTarget
from aoti_pack.compiler.march import compiler
from aoti_pack.errors import UserError

# By feature, what the encoding does not tell: the instructions that a compiler may use for plain C++. (`tzcnt` is
# not here: it is `bsf` with a prefix, which older CPUs skip.)
_BY_NAME = (
    (("cx16",), re.compile(r"cmpxchg16b")),
    (("lahf_lm",), re.compile(r"[ls]ahf")),
    (("ssse3",), re.compile(r"pshufb|palignr|pabs[bwd]|ph(add|sub)s?[wd]|pmulhrsw|pmaddubsw|psign[bwd]")),
    (("sse4_1",), re.compile(r"blendv?p[sd]|pblendw|pblendvb|round[ps][sd]|pm(in|ax)(sb|sd|uw|ud)|pmulld|pmuldq"
                             r"|pmov[sz]x(bw|bd|bq|wd|wq|dq)|ptest|insertps|extractps|pinsr[bdq]|pextr[bdq]|dpp[sd]"
                             r"|mpsadbw|packusdw|pcmpeqq|phminposuw|movntdqa")),
    (("sse4_2",), re.compile(r"crc32|pcmpgtq|pcmp[ei]str[im]")),
    (("avx2",), re.compile(r"vpbroadcast[bwdq]|v(insert|extract|broadcast)i128|vperm(2i128|d|q|ps|pd)|vps[lr]lv[dq]"
                           r"|vpsravd|vpmaskmov[dq]|vpblendd|vp?gather[dq](ps|pd|d|q)")),
    (("avx512f",), re.compile(r"k(mov|and|andn|or|xor|xnor|not|add|shiftl|shiftr|test|ortest|unpck)(b|w|d|q|bw|wd|dq)")),
    (("amx_tile",), re.compile(r"ldtilecfg|sttilecfg|tile\w+|tdp\w+")),
    (("avx512_vnni", "avx_vnni"), re.compile(r"vpdpbusds?|vpdpwssds?")),
    (("avx512_bf16",), re.compile(r"vcvtne2?ps2?\w*bf16|vdpbf16ps")),
    (("avx512_fp16",), re.compile(r"v\w+(ph|sh)")),
    (("avx512ifma",), re.compile(r"vpmadd52[lh]uq")),
    (("avx512vbmi",), re.compile(r"vpermb|vperm[it]2b|vpmultishiftqb")),
    (("avx512_vbmi2",), re.compile(r"vpshrdv?[wdq]|vpshldv?[wdq]|vpexpand[bw]|vpcompress[bw]")),
    (("avx512_bitalg", "avx512_vpopcntdq"), re.compile(r"vpopcnt[bwdq]|vpshufbitqmb")),
    (("gfni",), re.compile(r"v?gf2p8\w+")),
    (("fma",), re.compile(r"vfn?m(add|sub|addsub|subadd)(132|213|231)[ps][sd]")),
    (("fma4",), re.compile(r"vfn?m(add|sub|addsub|subadd)[ps][sd]")),
    (("f16c",), re.compile(r"vcvtph2ps|vcvtps2ph")),
    (("bmi1",), re.compile(r"andn|bextr|blsi|blsmsk|blsr")),
    (("bmi2",), re.compile(r"bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx")),
    (("movbe",), re.compile(r"movbe")),
    (("abm",), re.compile(r"lzcnt")),
    (("popcnt",), re.compile(r"popcnt")),
)
# vcvtps2ph and vcvtph2ps are older than AVX512-FP16 and end as its instructions do.
_F16C = re.compile(r"vcvtph2ps|vcvtps2ph")
_LEGACY_PREFIXES = {"26", "2e", "36", "3e", "64", "65", "66", "67", "f0", "f2", "f3"}
_HEADER = re.compile(r"[0-9a-f]+ <(.*)>:$")
_NEEDED_GLIBC = re.compile(r"\bGLIBC_(\d+(?:\.\d+)+)$")
# A marker for code with packed relocations, which the loader of this release was the first to know.
_RELR, _RELR_GLIBC = re.compile(r"\bGLIBC_ABI_DT_RELR$"), (2, 36)


@dataclass(frozen=True)
class Instruction:
    """One instruction: its bytes as hex pairs, its text, and the function that it stands in."""

    code: tuple[str, ...]
    text: str
    function: str

    @property
    def name(self) -> str:
        """The mnemonic, without prefixes such as `{vex}`, `lock` or `rep`."""
        words = [w for w in self.text.split() if not w.startswith("{") and w not in _PREFIX_WORDS]
        return words[0] if words else ""


_PREFIX_WORDS = {"lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "addr32", "cs", "ds", "es", "ss", "fs", "gs"}


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
    told = _objdump("--disassemble", "--disassembler-options=intel", "--demangle", "--wide", "--insn-width=16", str(library))
    for line in told:
        # "   1129:\t62 f1 7c 48 58 c1    \tvaddps zmm0,zmm0,zmm1"
        fields = line.split("\t")
        if len(fields) == 3:
            yield Instruction(tuple(fields[1].split()), " ".join(fields[2].split()), function)
        elif header := _HEADER.match(line):
            function = header[1]


def beyond(instruction: Instruction, features: Sequence[str]) -> str:
    """The feature, beyond `features`, that `instruction` needs; empty where it needs none."""
    if "(bad)" in instruction.text:
        return "a CPU that objdump does not know"
    encoding = _encoding(instruction.code)
    if encoding is not None and encoding not in features:
        return encoding
    name = instruction.name
    for any_of, names in _BY_NAME:
        if "avx512_fp16" in any_of and (encoding != "avx512f" or _F16C.fullmatch(name)):
            continue
        if names.fullmatch(name) and not set(any_of) & set(features):
            return any_of[0]
    return ""


def _encoding(code: Sequence[str]) -> str | None:
    """The feature that first had this encoding: EVEX (zmm, mask registers, ymm16 and up) `avx512f`, VEX `avx`,
    XOP `xop`, else None. In 64-bit code these bytes begin nothing else."""
    opcode = next((i for i, byte in enumerate(code) if byte not in _LEGACY_PREFIXES), None)
    if opcode is None:
        return None
    if code[opcode] == "62":
        return "avx512f"
    if code[opcode] in ("c4", "c5"):
        return "avx"
    # 8f is `pop` as well, whose next byte has zeros where XOP's has a map of 8 or more.
    if code[opcode] == "8f" and len(code) > opcode + 1 and int(code[opcode + 1], 16) & 0x1F >= 8:
        return "xop"
    return None


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
