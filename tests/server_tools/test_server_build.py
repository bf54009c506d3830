"""The cache around the build, with a tiny project in place of the backend's sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_pack.errors import UserError
from aoti_pack.server import build, toolchain
from aoti_pack.server.build import (
    LIBRARY,
    backend_build,
    backends_directory,
    build_backend,
    first_error,
    prune,
)
from aoti_pack.server.find import ServerBinary
from aoti_pack.server.toolchain import find_build_tools, find_compiler, find_torch, version_pair

CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(tiny CXX)
if(NOT EXISTS "${TORCH_DIR}/version.py" OR NOT EXISTS "${NLOHMANN_JSON_INCLUDE_DIR}/nlohmann/json.hpp")
  message(FATAL_ERROR "wrong folders")
endif()
if(AOTI_PACK_TESTS)
  message(FATAL_ERROR "tests are on")
endif()
add_library(triton_aoti SHARED cpp/src/backend.cc)
"""


@pytest.fixture
def sources(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "sources"
    (root / "cpp" / "src").mkdir(parents=True)
    (root / "CMakeLists.txt").write_text(CMAKE)
    (root / "cpp" / "src" / "backend.cc").write_text('extern "C" int answer() { return 42; }\n')
    monkeypatch.setattr(build, "source_root", lambda: root)
    return root


def test_builds_once_and_again_when_a_source_changes(sources: Path, home: Path) -> None:
    lines: list[str] = []
    library = build_backend(progress=lines.append)
    assert library.name == LIBRARY
    assert library.parent.name == "aoti"
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).answer())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"42\n"
    assert lines[0].startswith(f"building the backend for torch {find_torch().version} with ")
    assert any(line.startswith("[") for line in lines)
    folder = library.parent.parent
    assert [path.name for path in folder.iterdir()] == ["aoti"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], (
        "no lock, log or build folder stays"
    )

    lines.clear()
    assert build_backend(progress=lines.append) == library
    assert lines == []

    (sources / "cpp" / "src" / "backend.cc").write_text('extern "C" int answer() { return 43; }\n')
    changed = build_backend()
    assert changed != library
    assert library.is_file()


def test_the_key_covers_what_decides_the_code(sources: Path) -> None:
    made = backend_build()
    others = [
        backend_build(build_type="Debug"),
        backend_build(sanitizer="address"),
        replace(made, torch=replace(made.torch, version="2.99.0")),
        replace(made, torch=replace(made.torch, cxx11_abi=not made.torch.cxx11_abi)),
        replace(made, torch=replace(made.torch, folder=Path("/elsewhere"))),
    ]
    assert len({made.key, *(other.key for other in others)}) == 1 + len(others)
    (sources / "cpp" / "tests").mkdir()
    (sources / "cpp" / "tests" / "x_test.cc").write_text("int main() {}")
    assert backend_build().key == made.key
    (sources / "cpp" / "src" / "x.h").write_text("#pragma once\n")
    assert backend_build().key != made.key


def test_concurrent_calls_build_once(sources: Path) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: build_backend(progress=lines.append), range(3)))
    assert len(set(made)) == 1
    assert sum(line.startswith("building the backend") for line in lines) == 1


def test_sanitizer_is_compiled_in(sources: Path) -> None:
    library = build_backend(build_type="Debug", sanitizer="address")
    assert b"__asan_init" in library.read_bytes()
    assert library != build_backend()


def test_a_compile_error_is_told_and_its_log_kept(sources: Path, home: Path) -> None:
    (sources / "cpp" / "src" / "backend.cc").write_text("int a;\nint b = missing_name;\n")
    with pytest.raises(UserError, match=r"backend\.cc:2:9: error: .missing_name. was not declared") as caught:
        build_backend()
    log = Path((caught.value.mend or "").removeprefix("see "))
    assert "missing_name" in log.read_text()
    assert [path.name for path in (home / "backend").iterdir()] == [log.name]


def test_a_configure_error_is_told(sources: Path) -> None:
    (sources / "CMakeLists.txt").write_text(CMAKE + 'message(FATAL_ERROR "no such thing")\n')
    with pytest.raises(UserError, match=r"CMake Error at CMakeLists\.txt:\d+ \(message\): no such thing"):
        build_backend()


def test_missing_sources_are_told(sources: Path) -> None:
    (sources / "CMakeLists.txt").unlink()
    with pytest.raises(UserError, match=r"sources are not at .*: no CMakeLists\.txt"):
        build_backend()


def test_first_error_prefers_the_first() -> None:
    assert first_error(["[1/2] x", "a.cc:1:1: error: one", "b.cc:1:1: error: two"]) == "a.cc:1:1: error: one"
    assert first_error(["ld: a.o: undefined reference to `f'", ""]) == "ld: a.o: undefined reference to `f'"
    assert first_error(["killed", ""]) == "killed"


def test_no_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"no C\+\+ compiler") as caught:
        find_compiler()
    assert "apt-get install g++" in (caught.value.mend or "")


def test_an_old_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "g++-9"
    old.write_text('#!/bin/sh\necho "g++-9 (Ubuntu 9.4.0-1ubuntu1~20.04) 9.4.0"\n')
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(UserError, match=r"9\.4\.0 is too old"):
        find_compiler()


@pytest.mark.parametrize(("version", "old"), [("2.10.1", True), ("2.9.0+cu128", True), ("2.11.0", False)])
def test_an_old_torch_is_told(monkeypatch: pytest.MonkeyPatch, version: str, old: bool) -> None:
    monkeypatch.setattr(toolchain.importlib.metadata, "version", lambda _: version)
    if old:
        with pytest.raises(UserError, match=r"is too old, expected 2\.11 or newer"):
            find_torch()
    else:
        assert find_torch().version == version


def test_versions_compare_as_numbers() -> None:
    assert version_pair("2.9.1") < version_pair("2.13.0+cpu") == (2, 13)


def test_tools_come_from_this_environment() -> None:
    tools = find_build_tools()
    assert tools.cmake.parent == tools.ninja.parent == Path(sys.prefix).resolve() / "bin"
    assert (tools.nlohmann_include / "nlohmann" / "json.hpp").is_file()


def test_prune_keeps_the_last_used_and_what_is_loaded(tmp_path: Path, sources: Path) -> None:
    root = tmp_path / "builds"
    for age in range(7):
        (root / f"torch-{age}" / "aoti").mkdir(parents=True)
        os.utime(root / f"torch-{age}", (1000 - age, 1000 - age))
    loaded = root / "torch-6" / "aoti" / LIBRARY
    shutil.copy(build_backend(), loaded)
    os.utime(root / "torch-6", (1, 1))
    code = f"import ctypes; ctypes.CDLL({str(loaded)!r}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        prune(root, never=root / "torch-5", keep=3)
        kept = sorted(path.name for path in root.iterdir())
        user.communicate(b"\n")
    assert kept == ["torch-0", "torch-1", "torch-5", "torch-6"]
    prune(root, never=root / "torch-5", keep=3)
    assert sorted(path.name for path in root.iterdir()) == ["torch-0", "torch-1", "torch-5"]


def test_backends_directory_joins_ours_and_the_servers(tmp_path: Path, home: Path) -> None:
    theirs = tmp_path / "opt" / "backends"
    for name in ("python", "onnxruntime"):
        (theirs / name).mkdir(parents=True)
        (theirs / name / f"libtriton_{name}.so").write_text(name)
    ours = tmp_path / "build" / "aoti"
    ours.mkdir(parents=True)
    (ours / LIBRARY).write_text("ours")
    binary = ServerBinary(Path("/x"), "container", None, theirs, theirs / "python", ())
    made = backends_directory(binary, ours / LIBRARY)
    assert {path.name: [file.read_text() for file in path.iterdir()] for path in made.iterdir()} == {
        "python": ["python"],
        "onnxruntime": ["onnxruntime"],
        "aoti": ["ours"],
    }
    assert backends_directory(binary, ours / LIBRARY) == made
    assert {path.name for path in backends_directory(binary).iterdir()} == {"python", "onnxruntime"}
    shutil.rmtree(tmp_path / "build")
    assert (made / "aoti" / LIBRARY).read_text() == "ours", "a pruned build stays with those who use it"
