from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.compiler.options import CompileOptions
from aoti_pack.errors import UserError
from aoti_pack.project.entries import read_project
from aoti_pack.repository.config import Serving

GOOD = """\
repo: served
models:
  - recipe: mine.py:score
    settings: {width: 3, kind: wide}
    inputs: x.npz
    dynamic: ["x:0=b[1..8]"]
    outputs: [y]
    name: mine
    version: 2
    target_cpu: x86-64-v3
    freezing: true
    instances: 2
    max_queue_delay_us: 500
  - recipe: my_package.models:recipe
  - recipe: my_package.models:recipe
    backend: python
    compile: true
    name: twin
"""


def written(folder: Path, text: str) -> Path:
    (folder / "models.yaml").write_text(text)
    return folder / "models.yaml"


def test_what_the_file_says(tmp_path) -> None:
    project = read_project(written(tmp_path, GOOD))
    one, two, three = project.models
    assert project.repo == tmp_path / "served"
    assert one.source == f"{tmp_path}/mine.py:score" and one.folder == tmp_path / "build" / "mine-2"
    assert one.settings == {
        "width": 3,
        "kind": "wide",
        "--inputs": f"{tmp_path}/x.npz",
        "--dynamic": ["x:0=b[1..8]"],
        "--outputs": ["y"],
    }
    assert one.options == CompileOptions(target_cpu="x86-64-v3", freezing=True)
    assert one.serving == Serving(instances=2, max_queue_delay_us=500)
    assert (one.name, one.version, one.backend, one.compile_twin) == ("mine", 2, "aoti", False)
    assert (two.source, two.name, two.label) == ("my_package.models:recipe", None, "my_package_models_recipe")
    assert (three.backend, three.compile_twin, three.folder) == ("python", True, two.folder), (
        "one package for both"
    )


def test_files_are_looked_for_beside_it(tmp_path, monkeypatch) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", GOOD)
    monkeypatch.chdir(tmp_path)
    project = read_project(Path("sub/models.yaml"))
    assert project.models[0].source == "sub/mine.py:score" and project.repo == Path("sub/served")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "models.yaml is empty"),
        ("models: [", r"models\.yaml:1: not YAML"),
        ("- 1", r"models\.yaml:1: expected keys and values, got \[1\]"),
        ("repo: r", "the key 'models' is missing"),
        ("models: 3", r"models\.yaml:1: models: expected a list, got 3"),
        ("models: []", "models: expected one model or more"),
        ("models:\n  - name: x", r"models\.yaml:2: models\[0\]: the key 'recipe' is missing"),
        ("modles: []", r"models\.yaml:1: modles: there is no such key; the keys are models, out, repo"),
        ("models:\n- recipe: a\n  instancs: 2", r"models\.yaml:3: models\[0\]\.instancs: there is no such key"),
        ("models:\n- recipe: a\n  target_cpu: 3", r"models\.yaml:3: models\[0\]\.target_cpu: expected a text, got 3"),
        ("models:\n- recipe: a\n  freezing: 1", r"models\[0\]\.freezing: expected true or false, got 1"),
        ("models:\n- recipe: a\n  instances: yes", r"\[0\]\.instances: expected a whole number or nothing, got true"),
        ("models:\n- recipe: a\n  threads: x", r"models\[0\]\.threads: expected a whole number or nothing, got \"x\""),
        ("models:\n- recipe: a\n  instances: 0", r"models\[0\]: --instances is 0, expected 1 or more"),
        ("models:\n- recipe: a\n  version: 0", r"models\[0\]\.version: expected 1 or more, got 0"),
        ("models:\n- recipe: a\n  backend: onnx", r"models\[0\]\.backend: expected one of aoti, python"),
        ("models:\n- recipe: a\n  compile: true", r"models\[0\]\.compile: only for `backend: python`"),
        ("models:\n- recipe: a\n  name: a/b", r"models\[0\]\.name: 'a/b' cannot be a model's name"),
        ("models:\n- recipe: a\n  dynamic: x", r"models\[0\]\.dynamic: expected a list, got \"x\""),
        ("models:\n- recipe: a\n  dynamic: [3]", r"models\[0\]\.dynamic\[0\]: expected a text, got 3"),
        ("models:\n- recipe: a\n  settings: {k: [1]}", r"models\[0\]\.settings\.k: expected .*, got \[1\]"),
        ("models:\n- recipe: a\n  settings: {a-b: 1}", r"models\[0\]\.settings\.a-b: a setting is named as in Python"),
        ("models:\n- recipe: a\n  updatable: true\n  freezing: true", r"models\[0\]: .*exclude each other"),
        ("models:\n- recipe: a\n  recipe: b", r"models\.yaml:3: models\[0\]: the key 'recipe' stands twice"),
        ("models:\n- recipe: a\n  name: n\n- recipe: b\n  name: n", r"models\[1\]: it has the name and version of"),
        ("models:\n- recipe: a\n- recipe: a\n  dtype: bfloat16", r"models\[1\]: .*name and version of models\[0\]"),
        (
            "models:\n- recipe: a\n  name: n\n- recipe: b\n  name: n\n  version: 2\n  instances: 2",
            r"models\[1\]: it is served otherwise than models\[0\], another version of 'n'",
        ),
        ("models: &a\n- *a", "it contains itself"),
    ],
)  # fmt: skip
def test_a_fault_is_told_by_line_and_path(tmp_path, text, words) -> None:
    with pytest.raises(UserError, match=words):
        read_project(written(tmp_path, text))


@pytest.mark.parametrize("kind", [CompileOptions, Serving])
def test_every_option_is_a_key(tmp_path, kind) -> None:
    """Options that the compiler gains later are keys at once, of the type that they have there."""
    defaults = kind() if kind is Serving else CompileOptions()
    for field in fields(kind):
        value = getattr(defaults, field.name)
        shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
        if value is not None and not isinstance(value, tuple):
            read_project(written(tmp_path, f"models:\n- recipe: a\n  {field.name}: {shown}\n"))


@given(st.text(max_size=60))
def test_any_text_is_a_project_or_a_told_fault(text) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(UserError, match=r"models\.yaml"):
            read_project(Path(folder) / "models.yaml")
