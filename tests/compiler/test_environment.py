import os

import pytest

from aoti_pack.compiler.environment import environment


def test_variables_are_as_they_were(monkeypatch) -> None:
    monkeypatch.setenv("AOTI_PACK_TEST_SET", "old")
    monkeypatch.delenv("AOTI_PACK_TEST_UNSET", raising=False)
    variables = {"AOTI_PACK_TEST_SET": "new", "AOTI_PACK_TEST_UNSET": "new"}
    with pytest.raises(KeyError), environment(variables):
        assert {name: os.environ[name] for name in variables} == variables
        raise KeyError
    assert os.environ["AOTI_PACK_TEST_SET"] == "old"
    assert "AOTI_PACK_TEST_UNSET" not in os.environ
