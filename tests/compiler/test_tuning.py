"""Tuning: rivals are measured in turns, what fails the proof is out, the choice is the fastest."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
import torch
from manifests import manifest
from packages import compiled_package as package_of
from torch import nn
from torch.export import Dim

from aoti_pack.compiler.archive import unpack
from aoti_pack.compiler.options import CompileOptions
from aoti_pack.compiler.tuning import search
from aoti_pack.compiler.tuning.measure import Load, Rate, Split, Workers, saved
from aoti_pack.compiler.tuning.search import TuneRequest, tune
from aoti_pack.errors import ProofError
from aoti_pack.progress import silent
from aoti_pack.recipe import Recipe, leaves
from aoti_pack.repository.config import Serving, tuned


class Shift(nn.Module):
    """`x + 1000.1`: right in float32, far off in bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [b, 4] -> [b, 4]."""
        return (x + 1000.1) - 1000.0


RECIPE = Recipe(
    name="shift",
    model=Shift,
    inputs={"x": torch.randn(2, 4)},
    dynamic={"x": {0: Dim("b", min=1, max=64)}},
    outputs=["y"],
)


class FakeWorkers:
    """Stands in for the processes: a rate for each package folder, by the options it was built with."""

    rates: dict[str, float]

    def __init__(self, count: int, device: str) -> None:
        self.count = 2
        assert count >= 1
        assert device == "cpu"

    def __enter__(self) -> "FakeWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def compare(self, loads: list[Load], seconds: float) -> list[Rate]:
        assert seconds > 0
        found = []
        for load in loads:
            (inputs,) = torch.load(load.inputs, weights_only=True)
            assert inputs.shape == (load.rows, 4)
            name = (load.package / "name").read_text()
            found.append(Rate(self.rates[name] * min(load.rows, 16) * load.split.instances, 1.0))
        return found


@pytest.fixture
def no_compiler(monkeypatch):
    """Compiling writes down the options, running is eager: the search is what is tested."""
    built = []

    def lower(_exported, package: Path, options: CompileOptions) -> None:
        built.append(search._text(options))
        package.write_text(search._text(options))

    def unpack_name(package: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "name").write_text(package.read_text())

    class Eager:
        def __init__(self, folder: Path, device: str) -> None:
            self.wrong = "max_autotune" in (folder / "name").read_text()
            assert device == "cpu"

        def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            return [Shift()(*inputs) + (1.0 if self.wrong else 0.0)]

    monkeypatch.setattr(search, "lower", lower)
    monkeypatch.setattr(search, "unpack", unpack_name)
    monkeypatch.setattr(search, "CompiledModel", Eager)
    monkeypatch.setattr(search, "Workers", FakeWorkers)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    return built


def test_the_fastest_that_passes_is_chosen(no_compiler, monkeypatch) -> None:
    monkeypatch.setattr(FakeWorkers, "rates", {"float32": 100.0, "float32 freezing": 150.0}, raising=False)
    options, found = tune(RECIPE, CompileOptions(dtype="float32"), TuneRequest(dtypes=("bfloat16",)), silent)
    assert options == CompileOptions(dtype="float32", freezing=True)
    assert no_compiler == ["float32", "float32 freezing", "float32 max_autotune", "bfloat16"]
    verdicts = {tuple(t.options.items()): t.verdict for t in found.trials if t.rows_per_s is None}
    assert len(verdicts) == 2  # max_autotune is wrong, bfloat16 too far off: neither was measured
    assert all(verdict.startswith("refused: output 'y'") for verdict in verdicts.values())
    # 16 rows are as quick as 64: a shorter wait. Four instances of one thread beat two of two.
    assert (found.cores, found.instances, found.threads, found.rows) == (4, 4, 1, 16)
    assert [t.verdict for t in found.trials].count("chosen") == 1
    assert max(t.rows_per_s for t in found.trials if t.rows_per_s) == 150.0 * 16 * 4


def test_a_gain_within_the_noise_changes_nothing(no_compiler, monkeypatch) -> None:
    monkeypatch.setattr(FakeWorkers, "rates", {"float32": 100.0, "float32 freezing": 101.0}, raising=False)
    options, _ = tune(RECIPE, CompileOptions(dtype="float32"), TuneRequest(), silent)
    assert options == CompileOptions(dtype="float32")
    assert no_compiler == ["float32", "float32 freezing", "float32 max_autotune"]


def test_updatable_weights_are_never_frozen(no_compiler, monkeypatch) -> None:
    monkeypatch.setattr(FakeWorkers, "rates", {"float32": 100.0}, raising=False)
    options, _ = tune(RECIPE, CompileOptions(dtype="float32", updatable=True), TuneRequest(), silent)
    assert options.updatable
    assert no_compiler == ["float32", "float32 max_autotune"]


def test_a_spent_budget_is_told(no_compiler, monkeypatch) -> None:
    monkeypatch.setattr(FakeWorkers, "rates", {"float32": 100.0}, raising=False)
    _, found = tune(RECIPE, CompileOptions(dtype="float32"), TuneRequest(budget_s=0.0), silent)
    assert no_compiler == ["float32"]
    assert found.skipped == (
        "float32 freezing: no time left of 0 s",
        "float32 max_autotune: no time left of 0 s",
    )


def test_a_base_that_fails_its_proof_ends_the_search(no_compiler) -> None:
    with pytest.raises(ProofError, match="output 'y'"):
        tune(RECIPE, CompileOptions(dtype="float32", max_autotune=True), TuneRequest(), silent)


def test_workers_run_packages_side_by_side(tmp_path: Path) -> None:
    folder = package_of("rows")
    described = json.loads((folder / "manifest.json").read_text())
    unpack(folder / described["package"]["path"], tmp_path / "package")
    sample = dict(leaves(torch.load(folder / "sample.pt", weights_only=True)))
    saved([sample[spec["name"]] for spec in described["inputs"]], tmp_path / "inputs.pt")
    loads = [Load(tmp_path / "package", tmp_path / "inputs.pt", 3, Split(n, 1)) for n in (1, 2)]
    with Workers(2, "cpu") as workers:
        one, two = workers.compare(loads, 0.3)
        pids = [worker.pid for worker in workers._running]
    assert one.rows_per_s > 0
    assert two.rows_per_s > 0
    # A rate is rows over time: at 3 rows a run and one instance it is 3 / p50 but for runs that waited for a core.
    assert 0.02 < one.rows_per_s / (3 / (one.p50_ms / 1e3)) < 2.0
    assert all(
        subprocess.run(["kill", "-0", str(pid)], check=False, capture_output=True).returncode for pid in pids
    )


def test_package_takes_what_was_tuned_unless_told_otherwise() -> None:
    found = manifest()
    assert tuned(found, Serving()) == Serving(instances=2, max_batch_size=4)
    assert tuned(found, Serving(instances=1, max_batch_size=0)) == Serving(instances=1, max_batch_size=0)
    assert tuned(dataclasses.replace(found, tuning=None), Serving()) == Serving()
