"""A damaged or hostile safetensors file: what C++ takes, the format's own library reads as the same tensors."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from driver import Driver
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, save

pytestmark = pytest.mark.fuzz

REAL = save(
    {
        "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "b.c": torch.tensor([True, False]),
        "none": torch.empty(0, 4, dtype=torch.int64),
        "half": torch.tensor(1.5, dtype=torch.bfloat16),
    }
)


def described(file: bytes) -> dict[str, Any]:
    """name -> (dtype, shape, digest of the bytes), by the library."""
    return {
        name: (
            str(tensor.dtype).removeprefix("torch."),
            list(tensor.shape),
            hashlib.sha256(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest(),
        )
        for name, tensor in load(file).items()
    }


def told(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: (one["dtype"], one["shape"], one["sha256"]) for one in answer["tensors"]}


def agree(driver: Driver, file: bytes) -> None:
    answer = driver.ask("safetensors", file)
    if answer["ok"]:
        assert told(answer) == described(file)
    else:
        assert answer["code"] in ("invalid_argument", "unsupported"), answer
        assert len(answer["message"]) > 10


def test_a_real_file_is_read_as_the_library_reads_it(driver: Driver) -> None:
    answer = driver.ask("safetensors", REAL)
    assert answer["ok"], answer
    assert told(answer) == described(REAL)
    assert len(told(answer)) == 4


@given(st.data())
def test_damaged(driver: Driver, data: st.DataObject) -> None:
    file = bytearray(REAL)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 1))
        match data.draw(st.sampled_from(["flip", "set", "cut", "insert", "remove"])):
            case "flip":
                file[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                file[at] = data.draw(st.integers(0, 255))
            case "cut":
                del file[at:]
                file += b"\0"
            case "insert":
                file[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case _:
                del file[at]
                file += b"" if file else b"\0"
    agree(driver, bytes(file))


_DTYPES = st.sampled_from(["F32", "F64", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "", "f32"])
_SIZES = st.integers(-1, 4) | st.sampled_from([2**31, 2**62, 2**63, 2**64])


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A header that a writer at odds with the format could make, and some bytes behind it."""
    tensors: dict[str, Any] = {}
    for name in draw(
        st.lists(st.sampled_from(["a", "b", "__metadata__", "", "\u00e9"]), unique=True, max_size=4)
    ):
        begin, length = draw(st.integers(0, 40)), draw(st.integers(-2, 40))
        tensors[name] = {
            "dtype": draw(_DTYPES),
            "shape": draw(st.lists(_SIZES, max_size=3)),
            "data_offsets": draw(
                st.sampled_from([[begin, begin + length], [begin], [0, 2**64], ["0", 4], 7])
            ),
        }
        if draw(st.integers(0, 5)) == 0:
            del tensors[name][draw(st.sampled_from(sorted(tensors[name])))]
    text = json.dumps(tensors).encode()
    claimed = draw(st.sampled_from([len(text), len(text) + 8, 2**63, 0]))
    return struct.pack("<Q", claimed) + text + draw(st.binary(max_size=60))


@given(headers())
def test_made_up_headers(driver: Driver, file: bytes) -> None:
    agree(driver, file)


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 3), max_size=3), max_size=4))
def test_every_good_file_is_taken(driver: Driver, shapes: Mapping[str, list[int]]) -> None:
    tensors = {name: torch.rand(shape) for name, shape in shapes.items() if name != "__metadata__"}
    try:
        file = save(tensors)
    except SafetensorError:  # a name that the format cannot hold
        return
    answer = driver.ask("safetensors", file)
    assert answer["ok"], answer
    assert told(answer) == described(file)
