"""Case 9: an example of batch 1 with a dynamic batch axis, which torch.export makes static without a word."""

from __future__ import annotations

import pytest

from aoti_pack.cli import main


@pytest.mark.parametrize("rows", [0, 1])
def test_compile_says_to_give_two_or_more(rows, recipes, tmp_path, capsys) -> None:
    args = ["compile", f"{recipes / 'tiny.py'}:recipe", "-o", str(tmp_path / "out"), "--set", f"rows={rows}"]
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"the example of 'x' has size {rows} on the dynamic axis 0" in told
    assert "give an example with 2 or more" in told
    assert list(tmp_path.iterdir()) == []
