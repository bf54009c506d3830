"""Whether this machine is one that a package may run on. `cpp/src/machine.cc` has the same rules for the server."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass

from aoti_pack.compiler.target import cpu_features
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, Target


@dataclass(frozen=True)
class Machine:
    """What packages ask of a machine: `arch` as `uname -m` gives it, the CPU's features by the kernel's names
    (empty where it does not say), the C library's and torch's versions, the GPU's compute capability."""

    arch: str
    features: tuple[str, ...]
    glibc: str
    torch: str
    capability: tuple[int, int] | None = None


def this_machine(device: str) -> Machine:
    """The machine that we run on, as a package for `device` sees it."""
    import torch

    capability = torch.cuda.get_device_capability(device) if device.startswith("cuda") else None
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    return Machine(
        platform.machine(), cpu_features(), libc[-1] if libc else "", torch.__version__, capability
    )


def check_machine(manifest: Manifest, machine: Machine | None = None) -> None:
    """UserError naming what the package needs, what `machine` (default: this one) has, and the mend."""
    target = manifest.target
    machine = machine or this_machine(target.device)
    if target.arch != machine.arch:
        raise UserError(
            f"the package was compiled for {target.arch}, and this machine is {machine.arch}",
            mend=f"compile it on a machine with {machine.arch}",
        )
    # A CPU whose features the kernel does not list is not known to lack one.
    if machine.features and (missing := [f for f in target.cpu_features if f not in machine.features]):
        raise UserError(
            f"the package was compiled for a CPU with {', '.join(missing)}, which this one lacks",
            mend="compile it on this machine, or for an older target",
        )
    if _release(target.glibc, "target.glibc") > _release(machine.glibc, "this machine's glibc"):
        raise UserError(
            f"the package needs glibc {target.glibc} or newer, and this machine has {machine.glibc}",
            mend="compile it on a system as old as this one, or run it on a newer one",
        )
    oldest, newest = manifest.torch_range
    if (
        not _release(oldest, "torch_range")
        <= _release(machine.torch, "torch")
        <= _release(newest, "torch_range")
    ):
        raise UserError(
            f"the package needs torch {oldest} to {newest}, and this one is {machine.torch}",
            mend=f"install torch {oldest} to {newest}, or compile the package with this torch",
        )
    if machine.capability is not None:
        _check_capability(target, machine.capability)


def _check_capability(target: Target, capability: tuple[int, int]) -> None:
    """A GPU runs the code of its own major compute capability, up to its minor; `sm_90a` only the very same."""
    found = re.fullmatch(r"sm_(\d+)(\d)(a?)", target.march)
    if found is None:
        raise UserError(
            f"the manifest's target.march is {target.march!r}, expected one such as sm_90",
            mend="compile the package again",
        )
    needed = (int(found[1]), int(found[2]))
    same = needed == capability
    if not same and (found[3] or needed[0] != capability[0] or needed[1] > capability[1]):
        raise UserError(
            f"the package was compiled for {target.march}, and this GPU is sm_{capability[0]}{capability[1]}",
            mend="compile it on a machine with this GPU",
        )


def _release(version: str, what: str) -> tuple[int, int]:
    """`(2, 13)` of `2.13.0+cpu`."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UserError(f"{what}: expected a version such as 2.13, got {version!r}")
    return int(found[1]), int(found[2])
