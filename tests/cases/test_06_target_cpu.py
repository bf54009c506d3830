"""Case 6: a package compiled with AVX-512 dies in the middle of serving on a CPU without it.

Here the compiling half: `--target-cpu` gives a package with no instruction beyond it, checked on the binary.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from aoti_pack.compiler import build
from aoti_pack.compiler.archive import unpack
from aoti_pack.compiler.binary import check_instructions, instructions, shared_objects
from aoti_pack.compiler.build import compile_recipe
from aoti_pack.compiler.cpu_target import CpuTarget, simd_name
from aoti_pack.compiler.march import compiler, features_of
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import silent

V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
# By what objdump prints, where the check goes by encodings.
EVEX_ONLY = re.compile(r"\bzmm\d|\b[xy]mm(1[6-9]|2\d|3[01])\b|\bk[0-7]\b")
SOURCE = """
void add(float *a, const float *b) {
    for (int i = 0; i < 4096; i++) a[i] += b[i];
}
"""


def target(march: str) -> CpuTarget:
    return CpuTarget(march, features_of(march), None)


def library(folder: Path, *flags: str) -> Path:
    (folder / "add.c").write_text(SOURCE)
    made = folder / "add.so"
    command = [compiler(), "-x", "c", "-O3", "-shared", "-fPIC", *flags, folder / "add.c", "-o", made]
    subprocess.run(command, check=True)
    return made


@pytest.mark.slow
def test_a_package_for_v3_has_no_instruction_beyond_it(portable, tmp_path) -> None:
    manifest = Manifest.load(portable.folder)
    assert set(manifest.target.cpu_features) == V3 and len(manifest.target.cpu_features) == len(V3)
    assert (manifest.target.march, manifest.target.simd) == ("x86-64-v3", "avx2")
    unpack(portable.folder / "model.pt2", tmp_path)
    found = [i for file in shared_objects(tmp_path) for i in instructions(file)]
    assert [i for i in found if EVEX_ONLY.search(i.text)] == []
    assert [i for i in found if i.code[0] == "62"] == []
    # Its kernels are vectorised, and in functions that have names.
    wide = [i for i in found if "ymm" in i.text]
    assert wide and any(i.function.startswith("cpp_fused") for i in wide)
    with pytest.raises(UserError, match=r"was to run on x86-64-v2, and function .* which needs avx;"):
        check_instructions(shared_objects(tmp_path), target("x86-64-v2"))


@pytest.mark.slow
def test_a_package_for_v2_is_scalar_and_needs_no_avx(recipes, tmp_path) -> None:
    options = CompileOptions(target_cpu="x86-64-v2")
    done = compile_recipe(f"{recipes / 'tiny.py'}:recipe", tmp_path / "out", options=options, progress=silent)
    assert set(done.manifest.target.cpu_features) == V2
    assert (done.manifest.target.march, done.manifest.target.simd) == ("x86-64-v2", "scalar")
    unpack(tmp_path / "out" / "model.pt2", tmp_path / "unpacked")
    found = [i for file in shared_objects(tmp_path / "unpacked") for i in instructions(file)]
    assert len(found) > 1000
    assert [i for i in found if i.code[0] in ("c4", "c5", "62") or "ymm" in i.text] == []


def test_the_check_fails_on_avx512_and_says_where(tmp_path) -> None:
    made = library(tmp_path, "-mavx512f", "-mprefer-vector-width=512")
    words = r"x86-64-v3, and function add of add\.so has the instruction `v\w+ zmm.*`, which needs avx512f; .*--target"
    with pytest.raises(UserError, match=words):
        check_instructions([made], target("x86-64-v3"))
    check_instructions([made], target("x86-64-v4"))


@pytest.mark.parametrize(
    ("flags", "refused"),
    [(["-msse2"], []), (["-mavx"], ["x86-64-v2"]), (["-mavx512vl"], ["x86-64-v2", "x86-64-v3"])],
)
def test_the_check_passes_what_is_within_the_target(flags, refused, tmp_path) -> None:
    made = library(tmp_path, *flags)
    for march in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        if march in refused:
            with pytest.raises(UserError, match=f"was to run on {march}"):
                check_instructions([made], target(march))
        else:
            check_instructions([made], target(march))


def test_nothing_is_written_when_the_code_is_beyond_the_target(recipes, tmp_path, monkeypatch) -> None:
    made = library(tmp_path, "-mavx512f", "-mprefer-vector-width=512")

    def lower(_exported, package, _options) -> None:
        with zipfile.ZipFile(package, "w") as archive:
            archive.write(made, "model/data/aotinductor/model/model.wrapper.so")

    monkeypatch.setattr(build, "lower", lower)
    with pytest.raises(UserError, match=r"function add of model\.wrapper\.so .* needs avx512f"):
        compile_recipe(
            f"{recipes / 'tiny.py'}:recipe",
            tmp_path / "out" / "package",
            options=CompileOptions(target_cpu="x86-64-v3"),
            progress=silent,
        )
    assert list((tmp_path / "out").iterdir()) == []


def test_inductor_takes_the_plain_instruction_set_of_the_target() -> None:
    # Also on a CPU that has VNNI or AMX, or no AVX-512 at all: what inductor knows of this one does not count.
    wanted = {"x86-64-v4": (512, "avx512"), "x86-64-v3": (256, "avx2"), "x86-64-v2": (1, "scalar")}
    for march, (simdlen, name) in wanted.items():
        assert simd_name(CpuTarget(march, features_of(march), simdlen)) == name


def test_objdump_is_there() -> None:
    assert shutil.which("objdump"), "apt-get install binutils: without it every check above says nothing"
