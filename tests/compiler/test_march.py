from __future__ import annotations

import pytest
from packages import RECIPES

from aoti_pack.compiler import target
from aoti_pack.compiler.build import compile_recipe
from aoti_pack.compiler.cpu_target import CpuTarget, cpu_target
from aoti_pack.compiler.march import FEATURE_OF_MACRO, features_of
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.errors import UserError

V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
SAPPHIRE_RAPIDS = V4 | {
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "gfni",
}


@pytest.fixture
def machine(monkeypatch):
    """Make this machine one with the given features."""

    def become(features: set[str]) -> None:
        monkeypatch.setattr(target, "cpu_features", lambda: tuple(sorted(features)))

    return become


@pytest.mark.parametrize(
    ("march", "features"), [("x86-64", set()), ("x86-64-v2", V2), ("x86-64-v3", V3), ("x86-64-v4", V4)]
)
def test_the_levels_are_those_of_the_psabi(march, features) -> None:
    found = features_of(march)
    assert set(found) == features and list(found) == sorted(found)


def test_the_features_of_a_cpu_by_name() -> None:
    assert set(features_of("haswell")) == V3
    assert set(features_of("sandybridge")) >= V2 | {"avx"} and not set(features_of("sandybridge")) & {
        "avx2",
        "fma",
    }
    assert set(features_of("skylake-avx512")) == V4
    assert set(features_of("cascadelake")) == V4 | {"avx512_vnni"}
    assert set(features_of("sapphirerapids")) >= SAPPHIRE_RAPIDS


def test_no_two_macros_mean_the_same_feature() -> None:
    assert len(set(FEATURE_OF_MACRO.values())) == len(FEATURE_OF_MACRO)


@pytest.mark.parametrize(
    ("march", "simdlen"), [("x86-64-v2", 1), ("sandybridge", 1), ("x86-64-v3", 256), ("x86-64-v4", 512)]
)
def test_the_width_of_vectors_follows_from_the_features(machine, march, simdlen) -> None:
    machine(SAPPHIRE_RAPIDS)
    found = cpu_target(march)
    assert (found.march, found.simdlen) == (march, simdlen)
    assert found.configs() == {"cpp.march": march, "cpp.simdlen": simdlen}


def test_native_is_what_the_machine_has_and_inductor_chooses(machine) -> None:
    machine(V3)
    assert cpu_target("native") == CpuTarget("native", tuple(sorted(V3)), None)
    assert cpu_target("native").configs() == {}


def test_a_target_that_this_cpu_cannot_run_is_refused_by_the_features_that_it_lacks(machine) -> None:
    machine(V3)
    with pytest.raises(UserError) as told:
        cpu_target("x86-64-v4")
    for word in ("--target-cpu x86-64-v4", *sorted(V4 - V3), "not be proved", "x86-64-v3 or x86-64-v2"):
        assert word in str(told.value)
    assert "avx2" not in str(told.value)
    machine(V4)
    assert set(cpu_target("x86-64-v4").features) == V4


@pytest.mark.parametrize(
    ("march", "words"),
    [
        ("x86-64-v9", ["x86-64-v9", "haswell", "skylake-avx512", "x86-64-v3"]),
        ("i686", ["i686", "does not support x86-64"]),
        ("x86-64-v3 -fplugin=x", ["'x86-64-v3 -fplugin=x' is not the name of a CPU"]),
        ("", ["'' is not the name of a CPU"]),
    ],
)
def test_an_unknown_cpu_is_refused_with_what_the_compiler_accepts_before_any_work(
    march, words, tmp_path
) -> None:
    steps: list[str] = []
    with pytest.raises(UserError) as told:
        options = CompileOptions(target_cpu=march)
        compile_recipe(
            f"{RECIPES / 'tiny.py'}:recipe", tmp_path / "out", options=options, progress=steps.append
        )
    for word in ("--target-cpu", *words):
        assert word in str(told.value)
    assert steps == [] and list(tmp_path.iterdir()) == []


def test_another_machine_than_x86_64_takes_native_only(monkeypatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="this machine is aarch64"):
        cpu_target("x86-64-v3")
    assert cpu_target("native").native
