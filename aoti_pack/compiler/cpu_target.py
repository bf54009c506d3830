"""`--target-cpu`: the CPU that a package's host code is compiled for, in the compiler's words and inductor's."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aoti_pack.compiler.march import features_of
from aoti_pack.errors import UserError

NATIVE = "native"


@dataclass(frozen=True)
class CpuTarget:
    """What code for a CPU may use.

    march: as the user named it. features: by the kernel's names, sorted. simdlen: the width in bits of the vectors
    that inductor writes kernels for, 1 for scalar kernels, None where inductor looks at this machine.
    """

    march: str
    features: tuple[str, ...]
    simdlen: int | None

    @property
    def native(self) -> bool:
        """Whether it is this machine, whatever it has."""
        return self.march == NATIVE

    def configs(self) -> dict[str, Any]:
        """Inductor's settings for it."""
        return {} if self.native else {"cpp.march": self.march, "cpp.simdlen": self.simdlen}


def cpu_target(march: str) -> CpuTarget:
    """The target called `march`: `native`, an x86-64 level or another name that the compiler knows.

    UserError when the compiler does not know it, and when this CPU cannot run it: every package is proved by
    running it before it is written.
    """
    from aoti_pack.compiler.target import cpu_features

    here = cpu_features()
    if march == NATIVE:
        return CpuTarget(march, here, None)
    if platform.machine() != "x86_64":
        raise UserError(
            f"--target-cpu {march}: this machine is {platform.machine()}, and CPUs other than native can be chosen "
            "on x86_64 only",
            mend="compile it on a machine of the kind that it shall run on",
        )
    features = features_of(march)
    if missing := [feature for feature in features if feature not in here]:
        raise UserError(
            f"--target-cpu {march} needs {', '.join(missing)}, which this CPU lacks: the package could not be run "
            "here, and so not be proved",
            mend="compile it on a machine that has them, or choose an older target such as x86-64-v3 or x86-64-v2",
        )
    return CpuTarget(march, features, _simdlen(features))


# What inductor's kernels of a width are compiled with, besides `-march`.
_NEEDED_BY_WIDTH = (
    (512, {"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"}),
    (256, {"avx2", "fma", "f16c"}),
)


def _simdlen(features: tuple[str, ...]) -> int:
    return next((width for width, needed in _NEEDED_BY_WIDTH if needed <= set(features)), 1)


@contextmanager
def inductor_for(target: CpuTarget) -> Iterator[None]:
    """While this holds, inductor writes kernels for `target` and not for what else this machine has.

    It takes the first instruction set of the wanted width that this CPU runs, and 512 bits are AVX-512 with VNNI
    or AMX where there is such a CPU: only the plain sets are offered to it.
    """
    from torch._inductor import cpu_vec_isa

    if target.native:
        yield
        return
    # New ones: those of the module may have learned here that this CPU has bfloat16 instructions.
    plain = [cpu_vec_isa.VecAVX512(), cpu_vec_isa.VecAVX2()]
    before = cpu_vec_isa.valid_vec_isa_list
    cpu_vec_isa.valid_vec_isa_list = lambda: plain  # type: ignore[assignment]
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = before


def simd_name(target: CpuTarget) -> str:
    """The vector instructions that kernels for `target` are written for: `avx2`, `avx512`, …, or `scalar`."""
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import invalid_vec_isa, pick_vec_isa

    with inductor_for(target), config.patch(target.configs()):
        picked = pick_vec_isa()
    return "scalar" if picked == invalid_vec_isa else str(picked).strip().lower()
