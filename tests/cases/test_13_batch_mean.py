"""Case 13: `x - x.mean(0)` exports cleanly and leaks between requests once they are joined: so they never are."""

from click.testing import CliRunner

from aoti_pack.cli import main
from aoti_pack.compiler import build
from aoti_pack.compiler.build import Compiled
from aoti_pack.manifest import Manifest
from aoti_pack.repository.layout import write_model


def test_the_package_is_not_batched_and_compile_says_why(compiled_package, tmp_path, monkeypatch) -> None:
    folder = compiled_package("leaky")
    manifest = Manifest.load(folder)
    assert not manifest.batching.proved
    assert manifest.batching.reason.startswith("rows see each other: output 'y'")
    assert write_model(folder, tmp_path / "repo").max_batch_size == 0
    config = (tmp_path / "repo" / "leaky" / "config.pbtxt").read_text()
    assert "max_batch_size: 0\n" in config and "dynamic_batching" not in config

    monkeypatch.setattr(build, "compile_recipe", lambda *_args, **_options: Compiled(folder, manifest))
    told = CliRunner().invoke(main, ["compile", "leaky.py", "-o", str(tmp_path / "out")])
    assert told.exit_code == 0
    assert "batching not proved: rows see each other: output 'y'" in " ".join(told.stdout.split())
