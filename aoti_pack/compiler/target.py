"""The machine that a package is compiled for."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_pack.compiler.march import FEATURE_OF_MACRO
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.manifest import Target
from aoti_pack.recipe import Recipe

if TYPE_CHECKING:
    import torch


def cpu_features() -> tuple[str, ...]:
    """The features of this CPU that code may use, as `/proc/cpuinfo` names them; empty where it does not say."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            present = set(value.split())
            return tuple(sorted(feature for feature in FEATURE_OF_MACRO.values() if feature in present))
    return ()


def describe_target(options: CompileOptions, unpacked: Path) -> Target:
    """The Target of the package in the folder `unpacked`, which was just compiled on this machine with `options`.

    UserError when its code has an instruction beyond the target.
    """
    import torch

    from aoti_pack.compiler.binary import check_instructions, needed_glibc, shared_objects
    from aoti_pack.compiler.cpu_target import cpu_target, simd_name

    device, cpu, libraries = options.device, cpu_target(options.target_cpu), shared_objects(unpacked)
    check_instructions(libraries, cpu)
    march = cpu.march
    if device.startswith("cuda"):
        major, minor = torch.cuda.get_device_capability(device)
        march = f"sm_{major}{minor}"
    return Target(device, platform.machine(), march, simd_name(cpu), cpu.features, needed_glibc(libraries))


def torch_range(version: str) -> tuple[str, str]:
    """The oldest and newest torch, as `major.minor`, that may run what `version` compiled: one minor to each side.

    Packages of neighbours were run in each other, both ways; nobody promises more.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return f"{major}.{max(0, minor - 1)}", f"{major}.{minor + 1}"


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
