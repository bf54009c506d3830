"""The machine that a package is compiled for."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_pack.compiler.options import CompileOptions
from aoti_pack.manifest import Target
from aoti_pack.recipe import Recipe

if TYPE_CHECKING:
    import torch

# The kernel's names of the instruction sets that a compiler or ATen may use on x86-64.
_X86_FEATURES = (
    "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "sse4_1", "sse4_2", "ssse3", "popcnt",
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "avx_vnni",
    "amx_tile", "amx_bf16", "amx_int8", "amx_fp16", "gfni", "vaes", "vpclmulqdq",
)  # fmt: skip


def cpu_features() -> tuple[str, ...]:
    """The vector features of this CPU, as `/proc/cpuinfo` names them; empty where it does not say."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            present = set(value.split())
            return tuple(sorted(feature for feature in _X86_FEATURES if feature in present))
    return ()


def describe_target(options: CompileOptions) -> Target:
    """The Target of a package that was just compiled on this machine with `options`."""
    import torch

    device = options.device
    if device.startswith("cuda"):
        major, minor = torch.cuda.get_device_capability(device)
        return Target(device, platform.machine(), f"sm_{major}{minor}", "", cpu_features(), _glibc())
    return Target("cpu", platform.machine(), options.target_cpu, _simd(), cpu_features(), _glibc())


def torch_range(version: str) -> tuple[str, str]:
    """The oldest and newest torch, as `major.minor`, that may run what `version` compiled: one minor to each side.

    Packages of neighbours were run in each other, both ways; nobody promises more.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return f"{major}.{max(0, minor - 1)}", f"{major}.{minor + 1}"


def _simd() -> str:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return str(pick_vec_isa()).strip().lower() or "scalar"


def _glibc() -> str:
    return os.confstr("CS_GNU_LIBC_VERSION").split()[-1]  # type: ignore[union-attr]


def parse_dtype(name: str) -> torch.dtype:
    """The floating dtype called `name`; UserError naming the choices."""
    import torch

    from aoti_pack.errors import UserError

    choices = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name not in choices:
        raise UserError(f"unknown dtype {name!r}", mend=f"use one of {', '.join(choices)}")
    return choices[name]


def own_dtype(recipe: Recipe) -> str:
    """The name of the floating dtype that a recipe's weights (without any, its inputs) are in.

    UserError when that is one that packages are not made in, or when there are several.
    """
    from aoti_pack.errors import UserError
    from aoti_pack.recipe import leaves

    model = recipe.build()
    weights = [*model.parameters(), *model.buffers()]
    inputs = [leaf for _, leaf in leaves(recipe.inputs) if hasattr(leaf, "dtype")]
    for tensors in (weights, inputs):
        found = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype.is_floating_point})
        if found in (["bfloat16"], ["float32"]):
            return found[0]
        if found:
            raise UserError(
                f"recipe {recipe.name!r} is in {' and '.join(found)}; packages are float32 or bfloat16",
                mend="say which with --dtype, and the model is converted",
            )
    return "float32"


def check_device(device: str) -> None:
    """UserError unless `device` is `cpu`, or `cuda` where torch finds a GPU."""
    import torch

    from aoti_pack.errors import UserError

    if device == "cpu":
        return
    if device.split(":", maxsplit=1)[0] != "cuda":
        raise UserError(f"unknown device {device!r}", mend="use cpu or cuda")
    if not torch.cuda.is_available():
        raise UserError(
            "device 'cuda' was asked for and torch finds no GPU",
            mend="use --device cpu, or install a CUDA build of torch on a machine with a GPU",
        )
