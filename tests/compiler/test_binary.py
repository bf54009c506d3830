"""Reading machine code: every instruction is seen, and each is told by the feature that it needs."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from aoti_pack.compiler import binary
from aoti_pack.compiler.binary import find_objdump, instructions, needed_glibc
from aoti_pack.compiler.instruction_sets import beyond
from aoti_pack.compiler.march import compiler, features_of
from aoti_pack.errors import UserError


def assemble(folder: Path, body: str, *flags: str) -> Path:
    """A library whose function `probe` is `body`, in the assembler's Intel syntax."""
    source, made = folder / "probe.s", folder / "probe.so"
    source.write_text(
        f".intel_syntax noprefix\n.text\n.globl probe\n.type probe, @function\nprobe:\n{body}\n"
    )
    subprocess.run([compiler(), "-shared", "-nostdlib", *flags, source, "-o", made], check=True)
    return made


# Instruction -> (a target that has it, one that lacks it, the feature that is named).
CASES = {
    "vaddps zmm0, zmm1, zmm2": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vaddps ymm17, ymm1, ymm2": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vaddps ymm0{k1}, ymm1, ymm2": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vmovdqu32 xmm0, fs:[rdi]": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "kmovd k1, eax": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "kortestw k1, k2": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vaddps ymm0, ymm1, ymm2": ("x86-64-v3", "x86-64-v2", "avx"),
    "vaddps xmm0, xmm1, [edi]": ("sandybridge", "x86-64-v2", "avx"),
    "vzeroupper": ("sandybridge", "x86-64-v2", "avx"),
    "vfmadd231ps ymm0, ymm1, ymm2": ("x86-64-v3", "sandybridge", "fma"),
    "vfmadd231ps zmm0, zmm1, zmm2": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vcvtph2ps ymm0, xmm1": ("x86-64-v3", "sandybridge", "f16c"),
    "vcvtph2ps zmm0, ymm1": ("x86-64-v4", "x86-64-v3", "avx512f"),
    "vpbroadcastd ymm0, xmm1": ("x86-64-v3", "sandybridge", "avx2"),
    "vgatherdps ymm0, [rax + ymm1 * 4], ymm2": ("x86-64-v3", "sandybridge", "avx2"),
    "andn eax, ecx, edx": ("x86-64-v3", "sandybridge", "bmi1"),
    "shlx eax, ecx, edx": ("x86-64-v3", "sandybridge", "bmi2"),
    "movbe eax, [rdi]": ("x86-64-v3", "sandybridge", "movbe"),
    "lzcnt eax, ecx": ("x86-64-v3", "x86-64-v2", "abm"),
    "popcnt rax, [rdi]": ("x86-64-v2", "x86-64", "popcnt"),
    "pshufb xmm0, xmm1": ("x86-64-v2", "x86-64", "ssse3"),
    "roundps xmm0, xmm1, 1": ("x86-64-v2", "x86-64", "sse4_1"),
    "pcmpgtq xmm0, xmm1": ("x86-64-v2", "x86-64", "sse4_2"),
    "lock cmpxchg16b [rdi]": ("x86-64-v2", "x86-64", "cx16"),
    "vpdpbusd zmm0, zmm1, zmm2": ("cascadelake", "x86-64-v4", "avx512_vnni"),
    "{vex} vpdpbusd ymm0, ymm1, ymm2": ("alderlake", "x86-64-v3", "avx512_vnni"),
    "vdpbf16ps zmm0, zmm1, zmm2": ("cooperlake", "x86-64-v4", "avx512_bf16"),
    "vcvtneps2bf16 ymm0, zmm1": ("cooperlake", "x86-64-v4", "avx512_bf16"),
    "vaddph zmm0, zmm1, zmm2": ("sapphirerapids", "cooperlake", "avx512_fp16"),
    "vpermb zmm0, zmm1, zmm2": ("icelake-client", "x86-64-v4", "avx512vbmi"),
    "vpopcntd zmm0, zmm1": ("icelake-client", "x86-64-v4", "avx512_vpopcntdq"),
    "tdpbf16ps tmm0, tmm1, tmm2": ("sapphirerapids", "x86-64-v4", "amx_tile"),
    "ldtilecfg [rdi]": ("sapphirerapids", "x86-64-v3", "amx_tile"),
    "vfmaddps xmm0, xmm1, xmm2, xmm3": ("bdver1", "x86-64-v3", "fma4"),
    "vprotd xmm0, xmm1, xmm2": ("bdver1", "x86-64-v3", "xop"),
}
# Older than every target, or skipped by CPUs that do not know it.
COMMON = [
    "add eax, ecx",
    "addps xmm0, xmm1",
    "pop qword ptr [rdi]",
    "tzcnt eax, ecx",
    "rep movsb",
    "lock inc dword ptr [rdi]",
]


def test_each_instruction_is_told_by_the_feature_that_it_needs(tmp_path) -> None:
    body = "\n".join([*CASES, *COMMON])
    found = list(instructions(assemble(tmp_path, body)))
    assert len(found) == len(CASES) + len(COMMON) and {one.function for one in found} == {"probe"}
    told = {
        text: (beyond(one, features_of(having)), beyond(one, features_of(lacking)))
        for one, (text, (having, lacking, _)) in zip(found, CASES.items(), strict=False)
    }
    assert told == {text: ("", feature) for text, (_, _, feature) in CASES.items()}
    for one in found[len(CASES) :]:
        assert beyond(one, ()) == ""


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_of_code_is_left_out(tmp_path, seed) -> None:
    # objdump leaves out runs of zeros, which are no instruction of any set.
    generator = random.Random(seed)
    code = bytes(generator.randrange(1, 256) for _ in range(6000))
    made = assemble(tmp_path, ".byte " + ",".join(map(str, code)))
    found = list(instructions(made))
    assert bytes.fromhex("".join("".join(one.code) for one in found)) == code
    # What begins as an EVEX instruction is refused, known or not.
    evex = [one for one in found if one.code[0] == "62"]
    assert len(evex) > 5 and all(beyond(one, features_of("x86-64-v3")) for one in evex)


def test_every_section_with_code_is_read_and_data_is_not(tmp_path) -> None:
    evex = "vaddps zmm0, zmm1, zmm2"
    data = ".section .rodata\n.byte 0x62,0xf1,0x7c,0x48,0x58,0xc1"
    made = assemble(tmp_path, f'ret\n{data}\n.section .text.hot,"ax"\n{evex}\n.section .other,"ax"\n{evex}')
    assert sorted(one.name for one in instructions(made)) == ["ret", "vaddps", "vaddps"]


@pytest.mark.parametrize(
    ("source", "glibc"),
    [
        ("int one(void) { return 1; }", "2.2.5"),
        ("#include <sys/random.h>\nlong one(void *p) { return getrandom(p, 1, 0); }", "2.25"),
        ("#include <stdlib.h>\n#include <string.h>\nchar *one(void *p, void *q) { memcpy(p, q, *(long *)q);"
         " return secure_getenv(p); }", "2.17"),
    ],
)  # fmt: skip
def test_the_oldest_glibc_that_has_every_symbol(tmp_path, source, glibc) -> None:
    file, made = tmp_path / "one.c", tmp_path / "one.so"
    file.write_text("#define _GNU_SOURCE\n" + source)
    flags = ["-x", "c", "-O1", "-shared", "-fPIC", "-fno-builtin"]
    subprocess.run([compiler(), *flags, file, "-o", made], check=True)
    assert needed_glibc([made]) == glibc
    # By number: 2.9 is older than 2.17, and other libraries' versions do not count.
    assert needed_glibc([]) == "2.2.5"


def test_what_is_no_library_is_told(tmp_path) -> None:
    (tmp_path / "one.so").write_text("no ELF")
    with pytest.raises(UserError, match=r"one\.so.*file format not recognized"):
        list(instructions(tmp_path / "one.so"))


def test_no_objdump_is_told(monkeypatch) -> None:
    monkeypatch.setattr(binary.shutil, "which", lambda _name: None)
    with pytest.raises(UserError, match=r"objdump is missing.*apt-get install binutils"):
        find_objdump()
