import dataclasses
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from manifests import manifest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from aoti_pack.compiler.archive import sha256_of
from aoti_pack.errors import UserError
from aoti_pack.manifest import Batching, FileSpec, Manifest, PackageSpec, TensorSpec
from aoti_pack.repository.config import Serving, WarmupInput, config_text, model_config, wire_form
from aoti_pack.repository.layout import write_model


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parsed(found: Manifest, serving: Serving | None = None, **options) -> ModelConfig:
    given = {"name": "model", "backend": "aoti"} | options
    return text_format.Parse(config_text(model_config(found, serving or Serving(), **given)), ModelConfig())


def test_rows() -> None:
    config = parsed(manifest(), Serving(instances=3, max_queue_delay_us=700, threads=2))
    assert (config.name, config.backend, config.max_batch_size) == ("model", "aoti", 8)
    assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [("x", 11, [16]), ("t", 9, [-1])]
    assert [(t.name, t.data_type, list(t.dims)) for t in config.output] == [("y", 11, [-1]), ("s", 1, [1])]
    assert config.output[1].HasField("reshape") and list(config.output[1].reshape.shape) == []
    assert not config.output[0].HasField("reshape")
    (group,) = config.instance_group
    assert (group.count, group.kind) == (3, 2)
    assert config.dynamic_batching.max_queue_delay_microseconds == 700
    assert config.parameters["threads"].string_value == "2"


def test_single_and_0d() -> None:
    outputs = (TensorSpec("y", "bfloat16", "BF16", ()), TensorSpec("z", "uint8", "UINT8", ("b", 2)))
    found = manifest(wire="single", batching=Batching(False, "b", 0, "why"), outputs=outputs)
    config = parsed(found)
    assert config.max_batch_size == 0 and not config.HasField("dynamic_batching")
    assert [list(t.dims) for t in config.input] == [[-1, 16], [-1, -1]]
    assert [(t.data_type, list(t.dims)) for t in config.output] == [(14, [1]), (2, [-1, 2])]
    assert not config.output[0].HasField("reshape")


def test_gpu_and_one_row() -> None:
    found = manifest(target=dataclasses.replace(manifest().target, device="cuda:0"))
    config = parsed(found, Serving(max_batch_size=1))
    assert config.max_batch_size == 1 and not config.HasField("dynamic_batching")
    assert config.instance_group[0].kind == 1


def test_warmup() -> None:
    item = WarmupInput(manifest().inputs[0], (16,), "0.bin")
    (warm,) = parsed(manifest(), warmup=[item], warmup_rows=3).model_warmup
    assert warm.batch_size == 3 and list(warm.inputs) == ["x"]
    assert (warm.inputs["x"].data_type, list(warm.inputs["x"].dims)) == (11, [16])
    assert warm.inputs["x"].input_data_file == "0.bin"


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_odd_names_survive_the_text_format(name: str, value: str) -> None:
    found = manifest(inputs=(TensorSpec(name, "float32", "FP32", ("b",)),))
    config = parsed(
        found, name=name, parameters={name: value}, warmup=[WarmupInput(found.inputs[0], (1,), value)]
    )
    assert config.name == config.input[0].name == name
    assert config.parameters[name].string_value == value
    assert config.model_warmup[0].inputs[name].input_data_file == value


@pytest.mark.parametrize(
    ("asked", "form"), [(None, ("rows", 8)), (5, ("rows", 5)), (8, ("rows", 8)), (0, ("single", 0))]
)
def test_wire_form(asked, form) -> None:
    assert wire_form(manifest(), Serving(max_batch_size=asked)) == form


def test_more_rows_than_proved_are_refused() -> None:
    with pytest.raises(UserError, match="--max-batch-size 9: model is proved for up to 8 rows"):
        wire_form(manifest(), Serving(max_batch_size=9))
    leaky = manifest(wire="single", batching=Batching(False, "b", 0, "rows see each other"))
    with pytest.raises(UserError, match="must not be batched: rows see each other"):
        wire_form(leaky, Serving(max_batch_size=2))
    assert wire_form(leaky, Serving()) == ("single", 0)


@pytest.mark.parametrize(
    "wrong", [{"instances": 0}, {"max_batch_size": -1}, {"max_queue_delay_us": -1}, {"threads": 0}]
)
def test_serving_options_out_of_range_are_named(wrong) -> None:
    (name,) = wrong
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is "):
        Serving(**wrong)


@pytest.fixture
def package(compiled_package) -> Path:
    return compiled_package("rows")


def test_layout(package, tmp_path) -> None:
    repo = tmp_path / "repo"
    done = write_model(package, repo, serving=Serving(max_batch_size=4))
    assert (done.path, done.name, done.version, done.max_batch_size) == (repo / "rows", "rows", 1, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["repo"] and listing(repo) == ["rows"]
    written, source = Manifest.load(repo / "rows" / "1"), Manifest.load(package)
    assert written.package == PackageSpec(
        f"package/{source.package.sha256[:16]}", source.package.sha256, "model"
    )
    assert written.files and all(sha256_of(repo / "rows" / "1" / f.path) == f.sha256 for f in written.files)
    assert any(f.path.endswith(".so") for f in written.files)
    config = text_format.Parse((repo / "rows" / "config.pbtxt").read_text(), ModelConfig())
    (warm,) = config.model_warmup
    assert warm.batch_size == 3 and set(warm.inputs) == {"options.bias", "x", "ids"}
    data = (repo / "rows" / "warmup" / warm.inputs["ids"].input_data_file).read_bytes()
    assert torch.frombuffer(bytearray(data), dtype=torch.int64).tolist() == list(range(15))


def test_other_versions_stay_and_a_version_is_replaced(package, tmp_path) -> None:
    repo = tmp_path / "repo"
    write_model(package, repo)
    (repo / "rows" / "1" / "mark").write_text("first")
    (repo / "rows" / "²").mkdir()
    write_model(package, repo, version=2)
    assert (repo / "rows" / "1" / "mark").read_text() == "first"
    assert Manifest.load(repo / "rows" / "2").name == "rows"
    write_model(package, repo, version=1)
    assert not (repo / "rows" / "1" / "mark").exists()
    assert {p.name for p in (repo / "rows").iterdir()} == {"1", "2", "warmup", "config.pbtxt"}


def test_a_model_without_config_is_replaced_too(package, tmp_path) -> None:
    repo = tmp_path / "repo"
    model = write_model(package, repo, name="rows.aoti").path
    (model / "config.pbtxt").unlink()
    write_model(package, repo, name="rows.aoti", version=2)
    assert {p.name for p in model.iterdir()} == {"1", "2", "warmup", "config.pbtxt"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "../evil"}, "--name '../evil'"),
        ({"name": ".hidden"}, r"--name '\.hidden'"),
        ({"name": "a b"}, "--name 'a b'"),
        ({"version": 0}, "--version is 0"),
        ({"name": "file"}, "is not a model of a repository"),
        ({"name": "foreign"}, "is not a model of a repository"),
        ({"serving": Serving(max_batch_size=17)}, "proved for up to 16 rows"),
    ],
)
def test_refused_and_nothing_written(package, tmp_path, options, words) -> None:
    repo = tmp_path / "repo"
    (repo / "foreign").mkdir(parents=True)
    (repo / "foreign" / "thesis.tex").write_text("1")
    (repo / "file").write_text("1")
    with pytest.raises(UserError, match=words):
        write_model(package, repo, **options)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "foreign", "repo", "thesis.tex"]


def test_a_damaged_package_is_refused(package, tmp_path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy"))
    (copy / "model.pt2").write_bytes(b"no")
    with pytest.raises(UserError, match=r"model\.pt2 is not the file"):
        write_model(copy, tmp_path / "repo")
    assert not (tmp_path / "repo").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from aoti_pack.repository.layout import write_model
limit, seen = int(sys.argv[3]), 0
def hook(event, args):
    global seen
    if event in ("os.rename", "os.mkdir", "os.rmdir", "ctypes.call_function", "os.chmod", "shutil.copyfile") or (
        event == "open" and sys.argv[2] in str(args[0])):
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
write_model(Path(sys.argv[1]), Path(sys.argv[2]) / "repo")
"""


def test_a_killed_writer_leaves_the_old_model_whole(package, tmp_path) -> None:
    repo = tmp_path / "repo"
    write_model(package, repo)
    for limit in (3, 12, 25):
        done = subprocess.run([sys.executable, "-c", KILLED, package, tmp_path, str(limit)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert listing(repo) == ["rows"]
        found = Manifest.load(repo / "rows" / "1")
        assert all(sha256_of(repo / "rows" / "1" / file.path) == file.sha256 for file in found.files)
    write_model(package, repo)
    assert listing(tmp_path) == ["repo"]


def test_twin(package, tmp_path, recipes) -> None:
    repo = tmp_path / "repo"
    done = write_model(package, repo, backend="python", compile_twin=True)
    assert done.name == "rows_python"
    folder = done.path / "1"
    config = text_format.Parse((done.path / "config.pbtxt").read_text(), ModelConfig())
    assert (config.backend, config.parameters["mode"].string_value, config.max_batch_size) == (
        "python",
        "compile",
        16,
    )
    assert {p.name for p in folder.iterdir()} == {
        "model.py",
        "eager.pt",
        "structure.pt",
        "sample.pt",
        "source",
        "manifest.json",
    }
    assert FileSpec("eager.pt", sha256_of(folder / "eager.pt"), (folder / "eager.pt").stat().st_size) in (
        Manifest.load(folder).files
    )
    # A process that knows nothing of the recipe unpickles the model, as Triton's stub does.
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1] + '/source')\n"
        "model = torch.load(sys.argv[1] + '/eager.pt', weights_only=False)\n"
        "print(type(model).__name__, tuple(model.layer.weight.shape))"
    )
    out = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Rows (3, 4)"


def test_a_twin_of_what_does_not_pickle_is_refused(compiled_package, tmp_path) -> None:
    with pytest.raises(UserError, match=r"holds no eager\.pt.*could not be pickled"):
        write_model(compiled_package("unpicklable"), tmp_path / "repo", backend="python")
    assert list((tmp_path / "repo").iterdir()) == []
