"""Models without config.pbtxt: found by the server by their folder's name, and told before it starts when not."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_pack.errors import UserError
from aoti_pack.server.repository_check import check_repository


def lay_out(repo: Path, name: str, file: str = "manifest.json") -> Path:
    version = repo / name / "1"
    version.mkdir(parents=True)
    (version / file).write_text("{}")
    return repo / name


def test_a_folder_called_name_aoti_needs_no_config(tmp_path: Path) -> None:
    lay_out(tmp_path, "scorer.aoti")
    check_repository(tmp_path)


@pytest.mark.parametrize("name", ["scorer", "scorer.v2.aoti", "scorer.onnx", ".aoti.x"])
def test_another_name_without_config_is_told(tmp_path: Path, name: str) -> None:
    lay_out(tmp_path, "right.aoti")
    model = lay_out(tmp_path, name)
    if name.startswith("."):  # hidden folders are no models
        check_repository(tmp_path)
        return
    with pytest.raises(
        UserError, match=r"has no config\.pbtxt, and its name does not tell the server"
    ) as caught:
        check_repository(tmp_path)
    assert str(model) in str(caught.value)
    assert "call the folder scorer.aoti" in str(caught.value)
    (model / "config.pbtxt").write_text('backend: "aoti"\n')
    check_repository(tmp_path)


def test_models_of_other_backends_are_the_servers_to_judge(tmp_path: Path) -> None:
    lay_out(tmp_path, "detector", "model.onnx")
    check_repository(tmp_path)
