"""Case 8, the server's half: a value that was compiled in is never silently replaced by the one that was sent."""

from __future__ import annotations

import math

import pytest
from rest_server import RestServer, manifest_of, tensor

from aoti_pack.manifest import BakedScalar

pytestmark = pytest.mark.server

X = tensor("x", "FP32", [1, 2], [1.0, 2.0])
BIAS = tensor("bias", "INT64", [1, 1], [10])


@pytest.fixture(scope="module")
def contract(rest: RestServer) -> str:
    assert manifest_of("contract").baked == (BakedScalar("k", 3),)
    rest.write("contract", "case8")
    assert rest.load("case8").status == 200
    return "case8"


@pytest.mark.parametrize("parameters", [{}, {"k": 3}, {"k": 3.0}, {"other": 5}])
def test_the_compiled_value_passes(rest: RestServer, contract: str, parameters: dict[str, float]) -> None:
    answer = rest.infer(contract, [X, BIAS], parameters)
    # x * 3 + bias beside x, and bias ^ 3.
    assert answer.output("out")["data"] == [13.0, 16.0, 1.0, 2.0]
    assert answer.output("mixed")["data"] == [10 ^ 3]


@pytest.mark.parametrize(
    ("value", "shown"), [(5, "5"), (3.5, "3.5"), (math.nextafter(3, 4), "3.0000000000000004"), (True, "true")]
)
def test_another_value_is_refused_naming_both(
    rest: RestServer, contract: str, value: float, shown: str
) -> None:
    answer = rest.infer(contract, [X, BIAS], {"k": value})
    assert answer.status == 400
    assert answer.error.startswith(f"{contract}: parameter 'k' is compiled in as 3, got {shown}: ")


def test_a_tensor_of_its_name_is_refused(rest: RestServer, contract: str) -> None:
    answer = rest.infer(contract, [X, tensor("k", "INT64", [1, 1], [3])])
    assert answer.status == 400
    assert "'k'" in answer.error
