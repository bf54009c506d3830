import pytest
import torch

from aoti_pack.errors import UserError
from aoti_pack.models.hstu import recipe
from aoti_pack.recipe import load_recipe

SIZES = [(b, n, c) for b in (1, 2, 3, 16) for n in (1, 2, 7, 32) for c in (1, 2, 5, 32)]


def exported(found):
    shapes = {
        name: {key: found.dynamic[f"{name}.{key}"] for key in value}
        if isinstance(value, dict)
        else found.dynamic[name]
        for name, value in found.inputs.items()
    }
    model = found.build()
    return model, torch.export.export(model, (), dict(found.inputs), dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def pair():
    return exported(load_recipe("aoti_pack.models.hstu", {"config": "tiny"}))


def test_exports_with_the_whole_ranges(pair):
    _, program = pair
    ranges = sorted((int(r.lower), int(r.upper)) for r in program.range_constraints.values())
    assert ranges == [(1, 16), (1, 32), (1, 32)]


@torch.no_grad()
def test_exported_equals_eager_at_all_sizes(pair):
    model, program = pair
    module, found = program.module(), recipe()
    for b, n, c in SIZES:
        inputs = found.draw(b + n + c, {"b": b, "n": n, "c": c})
        torch.testing.assert_close(module(**inputs), model(**inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_equals_eager_at_all_sizes(tmp_path):
    found = recipe(layers=1)
    model, program = exported(found)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "hstu.pt2"))
    compiled = torch._inductor.aoti_load_package(path)
    for b, n, c in SIZES:
        inputs = found.draw(b + n + c, {"b": b, "n": n, "c": c})
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)


def test_draws_have_the_asked_sizes_and_real_values():
    found = recipe(contextual="region:4,device:3")
    inputs = found.draw(5, {"b": 400, "n": 20, "c": 9})
    assert {name: tuple(value.shape) for name, value in inputs.items() if name != "contextual"} == {
        "item_ids": (400, 20),
        "actions": (400, 20),
        "timestamps": (400, 20),
        "lengths": (400,),
        "candidate_ids": (400, 9),
        "request_time": (400,),
    }
    assert list(inputs["contextual"]) == ["region", "device"]
    assert set(inputs["lengths"].tolist()) == set(range(21))
    real = torch.arange(20) < inputs["lengths"].unsqueeze(1)
    assert ((inputs["item_ids"] >= 1) == real).all() and inputs["item_ids"].max() <= 200
    steps = inputs["timestamps"][:, 1:] - inputs["timestamps"][:, :-1]
    assert (steps[real[:, 1:]] >= 0).all() and (inputs["timestamps"][~real] == 0).all()
    assert (inputs["request_time"] >= inputs["timestamps"].amax(1)).all()
    # Zipf: the first ten ids of 200 take about ln(11) / ln(201) = 45 %.
    share = (inputs["candidate_ids"] <= 10).float().mean()
    assert 0.40 < share < 0.50
    again = recipe(contextual="region:4,device:3").draw(5, {"b": 400, "n": 20, "c": 9})
    assert torch.equal(again["timestamps"], inputs["timestamps"])


@torch.no_grad()
def test_settings_reach_the_model():
    model = recipe(layers=3, items=50).build()
    assert len(model.layers) == 3 and model.embedding.item.weight.shape[0] == 51
    assert not model.training
    one, other = recipe(seed=1).build(), recipe(seed=2).build()
    assert torch.equal(one.head.weight, recipe(seed=1).build().head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)
    assert recipe("kuairand-3l").name == "hstu_kuairand_3l"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": "big"}, "no preset 'big'"),
        ({"checkpoint": "/nowhere"}, "no checkpoint at /nowhere"),
        ({"depth": 2}, "no setting 'depth'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        load_recipe("aoti_pack.models.hstu", settings)
