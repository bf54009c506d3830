"""Case 16: requests of 1, 3 and 2 rows share one run, and each gets its own rows back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from rest_server import Answer, RestServer, recipe_of, tensor

from aoti_pack.repository.config import Serving

pytestmark = pytest.mark.server

SIZES = (1, 3, 2)
# The batch is full with all of them; until then they wait, far longer than the test takes.
WAITING = Serving(threads=1, max_batch_size=sum(SIZES), max_queue_delay_us=60_000_000)


def test_each_its_own_rows(rest: RestServer) -> None:
    rest.write("arith", "case16", serving=WAITING)
    assert rest.load("case16").status == 200
    drawn = [recipe_of("arith").draw(rows, {"b": rows}) for rows in SIZES]
    before = rest.counts("case16")  # the warm-up counts too

    def ask(index: int) -> Answer:
        inputs = drawn[index]
        wire = [tensor(name, "FP32", value.shape, value.flatten().tolist()) for name, value in inputs.items()]
        return rest.infer("case16", wire)

    with ThreadPoolExecutor(len(SIZES)) as pool:
        answers = list(pool.map(ask, range(len(SIZES))))
    rows, runs, requests = (now - then for now, then in zip(rest.counts("case16"), before, strict=True))
    assert (rows, runs, requests) == (6, 1, 3)
    for count, inputs, answer in zip(SIZES, drawn, answers, strict=True):
        out, total = answer.output("out"), answer.output("total")
        assert (out["shape"], total["shape"]) == ([count, 16], [count, 1])
        exact = torch.sin(inputs["x"].double()) * 2 + inputs["y"].double()
        torch.testing.assert_close(torch.tensor(out["data"]).double(), exact.flatten(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(total["data"]).double(), exact.sum(1), rtol=1e-4, atol=1e-4)


def test_a_wrong_one_among_them_is_answered_alone(rest: RestServer) -> None:
    """It says another value than the one that was compiled in; the others still share their run."""
    rest.write("contract", "case16_contract", serving=WAITING)
    assert rest.load("case16_contract").status == 200
    before = rest.counts("case16_contract")

    def ask(index: int) -> Answer:
        rows = SIZES[index]
        x = tensor("x", "FP32", [rows, 2], [float(index)] * rows * 2)
        bias = tensor("bias", "INT64", [rows, 1], [10 * index] * rows)
        return rest.infer("case16_contract", [x, bias], {"k": 5 if index == 1 else 3})

    with ThreadPoolExecutor(len(SIZES)) as pool:
        answers = list(pool.map(ask, range(len(SIZES))))
    rows, runs, requests = (
        now - then for now, then in zip(rest.counts("case16_contract"), before, strict=True)
    )
    assert (rows, runs, requests) == (3, 1, 2)
    assert answers[1].status == 400
    assert "'k' is compiled in as 3, got 5" in answers[1].error
    assert answers[0].output("out")["data"] == [0.0, 0.0, 0.0, 0.0]
    assert answers[2].output("out")["data"] == [26.0, 26.0, 2.0, 2.0] * 2
    assert answers[2].output("mixed")["data"] == [20 ^ 3] * 2
