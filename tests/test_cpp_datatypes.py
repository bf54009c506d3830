"""The C++ backend's table of element types is the manifest's."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from aoti_pack.manifest import WIRE_DATATYPES

SOURCE = Path(__file__).resolve().parents[1] / "cpp" / "src" / "datatypes.cc"


def test_the_two_tables_are_one() -> None:
    rows = re.findall(
        r'Datatype\{"(\w+)", "(\w+)", TRITONSERVER_TYPE_(\w+), (\d)\}', SOURCE.read_text(encoding="utf-8")
    )
    assert {torch_name: wire for torch_name, wire, _, _ in rows} == dict(WIRE_DATATYPES)
    assert len(rows) == len(WIRE_DATATYPES)
    for torch_name, wire, server, size in rows:
        assert server == wire
        assert getattr(torch, torch_name).itemsize == int(size)
