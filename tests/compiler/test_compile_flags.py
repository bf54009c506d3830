"""The flags of `aoti-pack compile` reach the compiler and the manifest by their names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aoti_pack.cli import main
from aoti_pack.compiler import build
from aoti_pack.compiler.lower import inductor_configs
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.errors import UserError


@pytest.mark.parametrize(
    ("flags", "options", "configs"),
    [
        ([], CompileOptions(), {"cpp.dynamic_threads": True, "freezing": False, "max_autotune": False}),
        (["--static-threads"], CompileOptions(dynamic_threads=False), {"cpp.dynamic_threads": False}),
        (["--freezing"], CompileOptions(freezing=True), {"freezing": True}),
        (["--max-autotune"], CompileOptions(max_autotune=True), {"max_autotune": True}),
        (["--keep-sources"], CompileOptions(keep_sources=True), {}),
        (
            ["--target-cpu", "x86-64-v2"],
            CompileOptions(target_cpu="x86-64-v2"),
            {"cpp.march": "x86-64-v2", "cpp.simdlen": 1},
        ),
    ],
)
def test_flags(flags, options, configs, monkeypatch, tmp_path) -> None:
    seen: list[CompileOptions] = []

    def compile_recipe(_recipe, _out, *, options, settings, tune_request, progress) -> None:
        assert tune_request is None
        seen.append(options)
        raise UserError(f"nothing to do with {settings} for {progress}")

    monkeypatch.setattr(build, "compile_recipe", compile_recipe)
    ended = CliRunner().invoke(main, ["compile", "x.py:recipe", "-o", str(tmp_path / "out"), *flags])
    assert ended.exit_code == 2 and seen == [options]
    found = inductor_configs(options)
    assert {name: found[name] for name in configs} == configs
    assert ("cpp.march" in found) == ("--target-cpu" in flags)
    assert options.record()["keep_sources"] == ("--keep-sources" in flags)
