"""Which CPU feature an instruction needs, for those that compilers use for plain C++."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Words that objdump prints before the mnemonic.
_PREFIXES = {"lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "addr32"}
_PREFIXES |= {"cs", "ds", "es", "ss", "fs", "gs"}
_PREFIX_BYTES = {"26", "2e", "36", "3e", "64", "65", "66", "67", "f0", "f2", "f3"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its bytes as pairs of hex digits, its text in Intel's syntax, the function it stands in."""

    code: tuple[str, ...]
    text: str
    function: str

    @property
    def name(self) -> str:
        """The mnemonic, without prefixes such as `{vex}`, `lock` or `rep`."""
        for word in self.text.split():
            if word not in _PREFIXES and not word.startswith("{"):
                return word
        return ""


# Any of these features is enough <- mnemonics. `tzcnt` is not here: it is `bsf` with a prefix that older CPUs skip.
_BY_NAME = tuple(
    (tuple(features.split()), re.compile(names))
    for features, names in (
        ("cx16", r"cmpxchg16b"),
        ("lahf_lm", r"[ls]ahf"),
        ("popcnt", r"popcnt"),
        ("ssse3", r"pshufb|palignr|pabs[bwd]|ph(add|sub)(sw|w|d)|pmulhrsw|pmaddubsw|psign[bwd]"),
        ("sse4_1", r"blendv?p[sd]|pblendw|pblendvb|round[ps][sd]|pm(in|ax)(sb|sd|uw|ud)|pmulld|pmuldq|ptest"),
        ("sse4_1", r"pmov[sz]x(bw|bd|bq|wd|wq|dq)|insertps|extractps|pinsr[bdq]|pextr[bdq]|dpp[sd]|mpsadbw"),
        ("sse4_1", r"packusdw|pcmpeqq|phminposuw|movntdqa"),
        ("sse4_2", r"crc32|pcmpgtq|pcmp[ei]str[im]"),
        ("avx2", r"vpbroadcast[bwdq]|v(insert|extract|broadcast)i128|vperm(2i128|d|q|ps|pd)|vpblendd"),
        ("avx2", r"vps[lr]lv[dq]|vpsravd|vpmaskmov[dq]|vp?gather[dq](ps|pd|d|q)"),
        ("fma", r"vfn?m(add|sub|addsub|subadd)(132|213|231)[ps][sd]"),
        ("fma4", r"vfn?m(add|sub|addsub|subadd)[ps][sd]"),
        ("f16c", r"vcvtph2ps|vcvtps2ph"),
        ("bmi1", r"andn|bextr|blsi|blsmsk|blsr"),
        ("bmi2", r"bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx"),
        ("movbe", r"movbe"),
        ("abm", r"lzcnt"),
        # VEX, as AVX is.
        ("avx512f", r"k(mov|andn?|x?n?or|not|add|shift[lr]|(or)?test)[bwdq]|kunpck(bw|wd|dq)"),
        ("amx_tile", r"ldtilecfg|sttilecfg|tile\w+|tdp\w+"),
        ("avx512_vnni avx_vnni", r"vpdpbusds?|vpdpwssds?"),
        ("avx512_bf16", r"vcvtne2?ps2bf16|vdpbf16ps"),
        ("avx512ifma", r"vpmadd52[lh]uq"),
        ("avx512vbmi", r"vpermb|vperm[it]2b|vpmultishiftqb"),
        ("avx512_vbmi2", r"vpsh[lr]dv?[wdq]|vpexpand[bw]|vpcompress[bw]"),
        ("avx512_bitalg", r"vpopcnt[bw]|vpshufbitqmb"),
        ("avx512_vpopcntdq", r"vpopcnt[dq]"),
        ("gfni", r"v?gf2p8\w+"),
    )
)
# With an EVEX encoding these are AVX512-FP16's, but for the two conversions that AVX512F has from F16C.
_FP16 = re.compile(r"v(?!cvtph2ps$|cvtps2ph$)(\w+(ph|sh)|\w*ph2\w+|\w*sh2\w+|movw)")


def beyond(instruction: Instruction, features: Sequence[str]) -> str:
    """The feature, beyond `features` (by the kernel's names), that `instruction` needs; empty where it needs none."""
    if "(bad)" in instruction.text:
        return "a CPU that objdump does not know"
    encoding = _encoding(instruction.code)
    if encoding is not None and encoding not in features:
        return encoding
    for any_of in _needs(instruction.name, encoding == "avx512f"):
        if not any(feature in features for feature in any_of):
            return any_of[0]
    return ""


@functools.cache
def _needs(name: str, evex: bool) -> tuple[tuple[str, ...], ...]:
    """What the instruction called `name` needs beside its encoding: one feature of each entry."""
    found = [any_of for any_of, names in _BY_NAME if names.fullmatch(name)]
    if not evex:
        return tuple(found)
    # AVX-512 has its own forms of what FMA, F16C and AVX2 brought.
    found = [any_of for any_of in found if any_of[0] not in ("fma", "f16c", "avx2")]
    return (*found, ("avx512_fp16",)) if _FP16.fullmatch(name) else tuple(found)


def _encoding(code: Sequence[str]) -> str | None:
    """The feature that brought the encoding: EVEX (zmm, ymm16 and up, masked operations) `avx512f`, VEX `avx`, XOP
    `xop`; None for older ones. In 64-bit code these bytes begin nothing else."""
    at = 0
    while at < len(code) - 1 and code[at] in _PREFIX_BYTES:
        at += 1
    first = code[at]
    if first == "62":
        return "avx512f"
    if first in ("c4", "c5"):
        return "avx"
    # 8f begins `pop` as well, which has zeros where XOP has the number of a map, 8 or more.
    if first == "8f" and at + 1 < len(code) and int(code[at + 1], 16) & 0x1F >= 8:
        return "xop"
    return None
