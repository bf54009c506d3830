"""A file of weights against a manifest, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from manifests import manifest
from safetensors.torch import save_file

from aoti_pack.errors import UserError
from aoti_pack.manifest import ConstantSpec, Manifest, ManifestError
from aoti_pack.weights.check import check_weights

MANIFEST = manifest(
    constants=(
        ConstantSpec("a", "float32", (2, 3), True, ("tied",)),
        ConstantSpec("b", "bfloat16", (), True),
        ConstantSpec("fixed", "float32", (1,)),
    ),
    unread=("batches",),
)
GOOD = {"a": torch.ones(2, 3), "b": torch.tensor(1.0, dtype=torch.bfloat16)}


def check(tmp_path: Path, **changes: torch.Tensor | None) -> None:
    tensors = {name: tensor for name, tensor in (GOOD | changes).items() if tensor is not None}
    file = tmp_path / "weights.safetensors"
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, file)
    check_weights(file, MANIFEST)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batches": torch.tensor(3)},
        {"a": None, "tied": torch.ones(2, 3)},
        {"tied": torch.ones(2, 3)},
        {"a": torch.full((2, 3), torch.nan), "tied": torch.full((2, 3), torch.nan)},
    ],
)
def test_good_files(tmp_path: Path, changes: dict[str, torch.Tensor | None]) -> None:
    check(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"b": None}, "lacks 'b' of model"),
        ({"a": None, "b": None}, "lacks 'a', 'b' of model"),
        ({"x": torch.ones(1)}, "holds 'x'; 'x' is no weight of the package"),
        ({"fixed": torch.ones(1)}, "'fixed' is compiled into the package"),
        ({"b": torch.tensor(1.0)}, r"'b': expected bfloat16 \[\], got float32 \[\]; convert it: .*bfloat16"),
        ({"a": torch.ones(3, 2)}, r"'a': expected float32 \[2, 3\], got float32 \[3, 2\]"),
        ({"tied": torch.ones(6)}, r"'tied': expected float32 \[2, 3\], got float32 \[6\]"),
        ({"tied": torch.zeros(2, 3)}, "'a' and 'tied' are one tensor in the model and differ"),
    ],
)
def test_wrong_files(tmp_path: Path, changes: dict[str, torch.Tensor | None], told: str) -> None:
    with pytest.raises(UserError, match=told):
        check(tmp_path, **changes)


@pytest.mark.parametrize("length", [0, 7, 8, 40, -1])
def test_cut_files(tmp_path: Path, length: int) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(GOOD, file)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match="is not a whole safetensors file"):
        check_weights(file, MANIFEST)


def test_a_package_without_updatable_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="compiled without --updatable"):
        check_weights(tmp_path / "any", manifest())


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("unread", ["a"], "'a' is a constant of the package"),
        ("unread", ["batches", "batches"], "stands twice"),
        ("aliases", ["b"], r"'b' is bfloat16 \[\], expected float32 \[2, 3\]"),
        ("aliases", ["tied", "tied"], "stands twice"),
    ],
)
def test_names_in_a_manifest_mean_one_thing(field: str, value: list[str], told: str) -> None:
    raw = json.loads(MANIFEST.to_json())
    if field == "unread":
        raw["unread"] = value
    else:
        raw["constants"][0]["aliases"] = value
    with pytest.raises(ManifestError, match=told):
        Manifest.from_json(json.dumps(raw))
