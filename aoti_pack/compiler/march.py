"""What a `-march` of the compiler's means: the CPU features that it lets the code use."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aoti_pack.errors import UserError

# The macro by which the compiler says that it may use a feature -> the kernel's name of it in /proc/cpuinfo.
# Features that compilers and inductor never use by themselves (AES, RDRAND, …) are left out.
FEATURE_OF_MACRO: Mapping[str, str] = {
    "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16": "cx16",
    "__LAHF_SAHF__": "lahf_lm",
    "__POPCNT__": "popcnt",
    "__SSSE3__": "ssse3",
    "__SSE4_1__": "sse4_1",
    "__SSE4_2__": "sse4_2",
    "__AVX__": "avx",
    "__AVX2__": "avx2",
    "__FMA__": "fma",
    "__F16C__": "f16c",
    "__BMI__": "bmi1",
    "__BMI2__": "bmi2",
    "__LZCNT__": "abm",
    "__MOVBE__": "movbe",
    "__XSAVE__": "xsave",
    "__FMA4__": "fma4",
    "__XOP__": "xop",
    "__TBM__": "tbm",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512CD__": "avx512cd",
    "__AVX512DQ__": "avx512dq",
    "__AVX512VL__": "avx512vl",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512BF16__": "avx512_bf16",
    "__AVX512FP16__": "avx512_fp16",
    "__AVX512IFMA__": "avx512ifma",
    "__AVX512VBMI__": "avx512vbmi",
    "__AVX512VBMI2__": "avx512_vbmi2",
    "__AVX512BITALG__": "avx512_bitalg",
    "__AVX512VPOPCNTDQ__": "avx512_vpopcntdq",
    "__AVXVNNI__": "avx_vnni",
    "__AMX_TILE__": "amx_tile",
    "__AMX_BF16__": "amx_bf16",
    "__AMX_INT8__": "amx_int8",
    "__AMX_FP16__": "amx_fp16",
    "__GFNI__": "gfni",
    "__VAES__": "vaes",
    "__VPCLMULQDQ__": "vpclmulqdq",
}

_MARCH = re.compile(r"[A-Za-z0-9_.+-]+")


def compiler() -> str:
    """The C++ compiler that AOTInductor uses; UserError when there is none."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return get_cpp_compiler()
    except (InvalidCxxCompiler, OSError) as error:
        raise UserError(
            "no C++ compiler was found; AOTInductor needs g++",
            mend="`apt-get install g++`, or set CXX; `aoti-pack doctor` checks the rest",
        ) from error


def features_of(march: str) -> tuple[str, ...]:
    """The features, by the kernel's names, that code compiled with `-march=` may use, sorted.

    UserError naming what the compiler accepts when it does not know `march`.
    """
    if not _MARCH.fullmatch(march):
        raise UserError(f"--target-cpu {march!r} is not the name of a CPU", mend="give one such as x86-64-v3")
    return _ask(compiler(), march)


@functools.cache
def _ask(cxx: str, march: str) -> tuple[str, ...]:
    told = subprocess.run(
        [cxx, f"-march={march}", "-dM", "-E", "-x", "c++", os.devnull],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},  # the compiler's words are read below
    )
    if told.returncode != 0:
        raise UserError(
            f"--target-cpu {march}: {Path(cxx).name} cannot compile for it: {_complaint(told.stderr)}",
            mend="use native, x86-64-v2, x86-64-v3, x86-64-v4 or another name that it accepts",
        )
    macros = {words[1] for line in told.stdout.splitlines() if len(words := line.split()) > 1}
    return tuple(sorted(name for macro, name in FEATURE_OF_MACRO.items() if macro in macros))


def _complaint(stderr: str) -> str:
    """gcc's and clang's error, with the note that lists the names they accept."""
    lines = [line.partition(": ")[2] or line for line in stderr.splitlines() if line.strip()]
    return " ".join(line.strip() for line in lines[:2]) or "it says nothing more"
