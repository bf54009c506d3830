"""The shipped configs are what `aoti-pack package` writes, to the byte: nobody edits them by hand."""

from __future__ import annotations

from pathlib import Path

from packages import compiled_package

from aoti_pack.repository.layout import write_model

SHIPPED = Path(__file__).parents[2] / "model_repo"


def test_the_shipped_config_is_the_generated_one(tmp_path: Path) -> None:
    names = [folder.name for folder in SHIPPED.iterdir() if folder.is_dir()]
    assert names == ["hstu_tiny"]
    package = compiled_package("aoti_pack.models.hstu:recipe")
    written = write_model(package, tmp_path / "repo", name="hstu_tiny")
    generated = (written.path / "config.pbtxt").read_text(encoding="utf-8")
    assert generated == (SHIPPED / "hstu_tiny" / "config.pbtxt").read_text(encoding="utf-8")
