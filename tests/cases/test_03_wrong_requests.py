"""Case 3: what does not fit the compiled model is refused by name, with what was expected and what came."""

from __future__ import annotations

import pytest
import torch
from rest_server import RestServer, raw_of

pytestmark = pytest.mark.server

GOOD = torch.ones(2, 16)


@pytest.fixture(scope="module")
def arith(rest: RestServer) -> str:
    rest.write("arith", "case3")
    assert rest.load("case3").status == 200
    return "case3"


@pytest.mark.parametrize(
    ("x", "expected", "given"),
    [
        (GOOD.double(), "FP32", "FP64"),
        (GOOD.long(), "FP32", "INT64"),
        (GOOD.half(), "FP32", "FP16"),
        (GOOD.bfloat16(), "FP32", "BF16"),
        (GOOD[:, :8], "16", "[2,8]"),
        (torch.ones(2, 32), "16", "[2,32]"),
        (torch.ones(2), "16", "[2]"),
        (torch.ones(2, 16, 1), "16", "[2,16,1]"),
    ],
    ids=["float64", "int64", "float16", "bfloat16", "8 features", "32 features", "rank 1", "rank 3"],
)
def test_a_wrong_input_is_refused_by_name(
    rest: RestServer, arith: str, x: torch.Tensor, expected: str, given: str
) -> None:
    told = rest.refusal(arith, raw_of("x", x), raw_of("y", GOOD))
    assert "'x'" in told
    assert expected in told
    assert given in told.replace(", ", ",")


def test_the_right_one_is_answered(rest: RestServer, arith: str) -> None:
    answer = rest.ask(arith, raw_of("x", GOOD), raw_of("y", GOOD)).as_numpy("out")
    torch.testing.assert_close(torch.tensor(answer), torch.sin(GOOD) * 2 + GOOD, rtol=1e-4, atol=1e-5)
