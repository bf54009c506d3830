"""Case 6, serving: a package for a CPU that this one is not is refused at load, by name."""

from __future__ import annotations

import dataclasses

import pytest
from explicit_server import ExplicitServer
from packages import cpp_package

from aoti_pack.compiler.machine import Machine, check_machine, this_machine
from aoti_pack.compiler.target import cpu_features
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest

# The newest of what compilers use, and one that no CPU has, for a machine that has all of them.
MISSING = next(name for name in ("avx512f", "amx_tile", "no_such_feature") if name not in cpu_features())


def needing(manifest: Manifest, **target: object) -> Manifest:
    return dataclasses.replace(manifest, target=dataclasses.replace(manifest.target, **target))


@pytest.mark.server
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"cpu_features": ("sse4_2", MISSING)}, f"compiled for a CPU with {MISSING}, which this one lacks"),
        ({"arch": "s390x"}, "compiled for s390x, and this machine is"),
        ({"glibc": "2.99"}, "needs glibc 2.99 or newer, and this machine has"),
    ],
    ids=["feature", "arch", "glibc"],
)
def test_the_server_refuses_at_load(explicit: ExplicitServer, target: dict[str, object], told: str) -> None:
    folder = explicit.write(cpp_package("arith"), "newer_cpu")
    needing(Manifest.load(folder), **target).save(folder)
    refusal = explicit.load("newer_cpu")
    assert told in refusal
    assert "newer_cpu" in refusal
    # The mend holds: the same package with the machine's own features serves.
    explicit.write(cpp_package("arith"), "newer_cpu")
    explicit.touch("newer_cpu")
    assert explicit.load("newer_cpu") == ""
    explicit.unload("newer_cpu")


HERE = Machine("x86_64", ("avx", "avx2"), "2.36", "2.13.0+cpu")
NEEDS = needing(
    Manifest.load(cpp_package("arith")), arch="x86_64", cpu_features=("avx2",), glibc="2.34", march="native"
)
NEEDS = dataclasses.replace(NEEDS, torch_range=("2.12", "2.14"))


@pytest.mark.parametrize(
    "machine",
    [
        HERE,
        dataclasses.replace(HERE, torch="2.12.0"),
        dataclasses.replace(HERE, torch="2.14.1+cu130"),
        dataclasses.replace(HERE, features=()),
        dataclasses.replace(HERE, glibc="2.100"),
    ],
    ids=str,
)
def test_a_machine_that_fits_passes(machine: Machine) -> None:
    check_machine(NEEDS, machine)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arch": "aarch64"}, "compiled for x86_64, and this machine is aarch64"),
        ({"features": ("avx", "sse")}, "a CPU with avx2, which this one lacks"),
        ({"glibc": "2.31"}, "needs glibc 2.34 or newer, and this machine has 2.31"),
        ({"torch": "2.11.0"}, "needs torch 2.12 to 2.14, and this one is 2.11.0"),
        ({"torch": "2.15.0"}, "needs torch 2.12 to 2.14, and this one is 2.15.0"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_verify_names_what_is_missing(changes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        check_machine(NEEDS, dataclasses.replace(HERE, **changes))
    assert caught.value.mend


@pytest.mark.parametrize(
    ("march", "capability", "fits"),
    [
        ("sm_90", (9, 0), True), ("sm_80", (8, 6), True), ("sm_120", (12, 1), True), ("sm_90a", (9, 0), True),
        ("sm_90", (8, 6), False), ("sm_86", (8, 0), False), ("sm_80", (9, 0), False), ("sm_100a", (10, 3), False),
        ("native", (9, 0), False),
    ],
)  # fmt: skip
def test_a_gpu_runs_code_of_its_major_up_to_its_minor(
    march: str, capability: tuple[int, int], fits: bool
) -> None:
    manifest, machine = needing(NEEDS, march=march), dataclasses.replace(HERE, capability=capability)
    if fits:
        check_machine(manifest, machine)
    else:
        with pytest.raises(UserError, match="sm_"):
            check_machine(manifest, machine)


def test_this_machine_runs_what_it_compiled() -> None:
    check_machine(Manifest.load(cpp_package("arith")))
    assert this_machine("cpu").capability is None
