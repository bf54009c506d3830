import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_pack.cli import main
from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest
from aoti_pack.progress import silent
from aoti_pack.project import build, stamp
from aoti_pack.project.build import build_project

YAML = """\
repo: repo
models:
  - recipe: one.py:recipe
    name: one
  - recipe: two.py:recipe
    name: two
    instances: 2
  - recipe: one.py:recipe
    name: one_twin
    backend: python
"""


@pytest.fixture
def project(tmp_path, compiled_package, monkeypatch) -> Path:
    """Three models of two packages; compiling copies one that is there, and tells which was asked for."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"# {name}\n")
    (tmp_path / "models.yaml").write_text(YAML)
    asked: list[str] = []

    def compiled(_self, entry):
        asked.append(entry.label)
        file = entry.source.partition(":")[0]
        if "broken" in Path(file).read_text():
            raise UserError("it is broken")
        shutil.copytree(compiled_package("rows"), entry.folder, dirs_exist_ok=True)
        return stamp.source_digests([file])

    monkeypatch.setattr(build._Compiler, "_compile", compiled)
    monkeypatch.setattr(build, "ASKED", asked, raising=False)
    return tmp_path / "models.yaml"


def outcomes(project: Path, **options) -> tuple[dict[str, tuple[str, str]], list[str]]:
    build.ASKED.clear()
    found = build_project(project, progress=silent, **options)
    return {one.model: (one.package, one.repository) for one in found}, list(build.ASKED)


DONE, SAME = ("compiled", "written"), ("up to date", "up to date")


def test_nothing_is_done_twice(project) -> None:
    assert outcomes(project) == ({"one": DONE, "two": DONE, "one_twin": DONE}, ["one", "two"])
    repo = project.with_name("repo")
    assert sorted(path.name for path in repo.iterdir()) == ["one", "one_twin", "two"]
    assert "count: 2" in (repo / "two" / "config.pbtxt").read_text()
    assert outcomes(project) == ({"one": SAME, "two": SAME, "one_twin": SAME}, [])
    everything = {"one": DONE, "two": DONE, "one_twin": DONE}
    assert outcomes(project, force=True, jobs=2)[0] == everything


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def source(project: Path) -> None:
    edit(project.with_name("two.py"), "# two", "# changed")


def option(project: Path) -> None:
    edit(project, "instances: 2", "instances: 2\n    freezing: true")


def package_file(project: Path) -> None:
    (project.parent / "build" / "two-1" / "model.pt2").unlink()


def package_manifest(project: Path) -> None:
    edit(project.parent / "build" / "two-1" / "manifest.json", '"rows"', '"other"')


def torn_stamp(project: Path) -> None:
    (project.parent / "build" / "two-1.stamp.json").write_text("{")


@pytest.mark.parametrize("change", [source, option, package_file, package_manifest, torn_stamp])
def test_what_changed_is_compiled_again_and_nothing_else(project, change) -> None:
    outcomes(project)
    change(project)
    found, asked = outcomes(project)
    assert asked == ["two"] and found["one"] == SAME and found["one_twin"] == SAME
    assert found["two"][0] == "compiled"
    assert outcomes(project)[1] == []


def test_torch_and_the_compiler_count(project, monkeypatch) -> None:
    outcomes(project)
    monkeypatch.setattr(stamp.importlib.metadata, "version", lambda _name: "9.9")
    assert outcomes(project)[1] == ["one", "two"]
    code = project.with_name("code")
    (code / "compiler").mkdir(parents=True)
    (code / "compiler" / "lower.py").write_text("new")
    monkeypatch.setattr(stamp, "_CODE", code)
    assert outcomes(project)[1] == ["one", "two"]


def test_serving_options_and_a_damaged_repository_are_written_again(project) -> None:
    outcomes(project)
    edit(project, "instances: 2", "instances: 3")
    assert outcomes(project) == ({"one": SAME, "two": ("up to date", "written"), "one_twin": SAME}, [])
    repo = project.with_name("repo")
    assert "count: 3" in (repo / "two" / "config.pbtxt").read_text()
    edit(repo / "one" / "1" / "manifest.json", '"rows"', '"other"')
    shutil.rmtree(repo / "two")
    (repo / "one_twin" / "config.pbtxt").unlink()
    shutil.rmtree(repo / "one_twin" / "1")
    found, asked = outcomes(project)
    assert asked == [] and found["one"][1] == found["two"][1] == "written"
    assert Manifest.load(repo / "one" / "1").name == "rows"


def test_a_failed_model_stops_no_other(project) -> None:
    project.with_name("one.py").write_text("broken")
    found = {one.model: one for one in build_project(project, progress=silent)}
    assert (found["one"].package, found["one"].repository, found["one"].error) == (
        "failed",
        "",
        "it is broken",
    )
    assert found["one_twin"].package == "failed"
    assert (found["two"].package, found["two"].repository) == DONE
    done = CliRunner().invoke(main, ["build", str(project), "--json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 1 and told["ok"] is False
    assert [(one["model"], one["package"]) for one in told["models"]] == [
        ("one", "failed"),
        ("two", "up to date"),
        ("one_twin", "failed"),
    ]
    project.with_name("one.py").write_text("# mended")
    done = CliRunner().invoke(main, ["build", str(project)])
    assert done.exit_code == 0 and "up to date" in done.stdout and "compiled" in done.stdout


def test_two_models_that_turn_out_to_have_one_name(project) -> None:
    edit(project, "    name: one\n", "")
    edit(project, "    name: two\n", "")
    _, two, _ = build_project(project, progress=silent)
    assert two.repository == "failed" and "is version 1 of 'rows' too; give one of them a `name`" in str(
        two.error
    )


def test_wrong_use_is_code_2(project, tmp_path) -> None:
    done = CliRunner().invoke(main, ["build", str(tmp_path / "nowhere.yaml")])
    assert done.exit_code == 2 and "nowhere.yaml does not exist" in done.stderr
    edit(project, "repo: repo\n", "")
    done = CliRunner().invoke(main, ["build", str(project)])
    assert done.exit_code == 2 and "names no repository; give --repo REPO" in done.stderr


def test_a_model_is_compiled_in_a_process_of_its_own(tmp_path) -> None:
    """For real: the fault of each comes back, and a process that dies takes no other along."""
    (tmp_path / "parts.py").write_text("import os\ndef die():\n    os.kill(os.getpid(), 9)\n")
    (tmp_path / "dies.py").write_text("from parts import die\ndie()\n")
    (tmp_path / "raises.py").write_text("raise ValueError('no weights')\n")
    (tmp_path / "models.yaml").write_text("models:\n- recipe: dies.py:recipe\n- recipe: raises.py:recipe\n")
    dies, raises = build_project(tmp_path / "models.yaml", repo=tmp_path / "repo", jobs=2, progress=silent)
    assert dies.error is not None and "the compiling process ended with signal 9" in dies.error
    assert raises.error is not None and "raises.py raised ValueError: no weights" in raises.error
    assert not (tmp_path / "repo").exists()


@pytest.mark.slow
def test_a_changed_neighbour_compiles_it_again(tmp_path) -> None:
    (tmp_path / "parts.py").write_text("FACTOR = 2\n")
    model = "import torch\nfrom parts import FACTOR\ndef f(x):\n    return x * FACTOR\n"
    (tmp_path / "mine.py").write_text(model + "def i():\n    return (torch.ones(2),)\n")
    text = "models:\n- {recipe: 'mine.py:f', inputs: 'mine.py:i', name: mine}\n"
    (tmp_path / "models.yaml").write_text(text)
    for file in ("parts.py", "mine.py"):
        os.utime(tmp_path / file, (1, 1))
    options = {"repo": tmp_path / "repo", "progress": silent}
    (one,) = build_project(tmp_path / "models.yaml", **options)
    assert (one.package, one.repository, one.error) == ("compiled", "written", None)
    (same,) = build_project(tmp_path / "models.yaml", **options)
    assert (same.package, same.repository) == SAME
    stamped = stamp.read_stamp(tmp_path / "build" / "mine-1")
    assert stamped is not None and sorted(stamped.sources) == [
        str(tmp_path / "mine.py"),
        str(tmp_path / "parts.py"),
    ]
    (tmp_path / "parts.py").write_text("FACTOR = 3\n")
    (entry,) = build.read_project(tmp_path / "models.yaml").models
    assert not stamp.is_compiled(entry, stamped)
