import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from manifests import manifest

from aoti_pack import cli, console
from aoti_pack.cli import main
from aoti_pack.commands.shared import parse_seconds, parse_settings
from aoti_pack.compiler import build, verify
from aoti_pack.errors import ProofError, UserError
from aoti_pack.manifest import Batching
from aoti_pack.server import build as server_build
from aoti_pack.server import find

PROGRAM = [sys.executable, "-c", "from aoti_pack.cli import main; main(prog_name='aoti-pack')"]


def run(*args: object):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def real(*args: object, **options) -> subprocess.CompletedProcess:
    command = [*PROGRAM, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def one_line(result, *words: str) -> None:
    """Exit code 2, nothing on stdout, one line that holds every word (after the lines of the steps)."""
    code = result.exit_code if hasattr(result, "exit_code") else result.returncode
    assert code == 2, result.stderr
    assert result.stdout == ""
    last = [line for line in result.stderr.splitlines() if line.startswith("aoti-pack: ")]
    assert len(last) == 1 and result.stderr.splitlines()[-1] == last[0], result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in last[0]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    manifest().save(folder)
    return folder


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "broken.py").write_text("def recipe():\n    raise ValueError('first\\nsecond')\n")
    return tmp_path / "broken.py"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("compile", "no/such.py", "-o", "o"), ("no/such.py does not exist",)),
        (("compile", "no_such_module_x", "-o", "o"), ("no module 'no_such_module_x'",)),
        (("compile", "BROKEN", "-o", "o"), ("raised ValueError: first second",)),
        (("compile", "x.py", "-o", "o", "--dtype", "fp8"), ("unknown dtype 'fp8'", "float32")),
        (("compile", "x.py", "-o", "o", "--device", "tpu"), ("unknown device 'tpu'", "use cpu or cuda")),
        (("compile", "x.py", "-o", "o", "--set", "width"), ("--set 'width' is not KEY=VALUE",)),
        (("compile", "x.py", "-o", "o", "--set", "2x=3"), ("--set '2x=3'",)),
        (("compile", "x.py", "-o", "."), ("current folder",)),
        (
            ("compile", "BROKEN", "-o", "o", "--inputs", "x.npz", "--dynamic", "x=b"),
            ("--dynamic 'x=b'", "x:0=b[1..256]"),
        ),
        (("compile", "BROKEN", "-o", "o", "--outputs", "a,,b"), ("--outputs 'a,,b' holds an empty name",)),
        (("inspect", "nowhere"), ("manifest.json does not exist",)),
        (("verify", "nowhere"), ("manifest.json does not exist",)),
        (("package", "nowhere", "--repo", "r"), ("manifest.json does not exist",)),
        (("package", "nowhere", "--repo", "r", "--instances", "0"), ("--instances is 0",)),
        (("package", "nowhere", "--repo", "r", "--compile"), ("--compile is for --backend python",)),
        (("serve", "nowhere"), ("nowhere",)),
    ],
)
def test_wrong_use_is_one_line_and_code_2(args, words, broken, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(run(*(broken if arg == "BROKEN" else arg for arg in args)), *words)


@pytest.mark.parametrize(
    "args", [("nothing",), ("compile",), ("compile", "x", "--nope"), ("serve", "r", "--http-port", "0")]
)
def test_clicks_own_usage_errors_are_code_2(args) -> None:
    result = run(*args)
    assert result.exit_code == 2 and "Usage:" in result.stderr and result.stdout == ""


def test_more_rows_than_proved(compiled_package, tmp_path) -> None:
    folder = compiled_package("rows")
    one_line(
        run("package", folder, "--repo", tmp_path / "r", "--max-batch-size", 17),
        "--max-batch-size 17",
        "16 rows",
    )
    assert not (tmp_path / "r").exists()


def test_no_compiler_for_real(recipes, tmp_path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC")} | {"PATH": str(tmp_path)}
    result = real("compile", recipes / "leaky.py", "-o", tmp_path / "o", env=env)
    one_line(result, "no C++ compiler was found", "apt-get install g++")
    assert not (tmp_path / "o").exists()


def test_a_folder_that_cannot_be_written_is_one_line(package, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    one_line(run("compile", "x.py", "-o", tmp_path / "file" / "o"), "x.py does not exist")

    def full(*_args, **_options):
        raise OSError(28, "No space left on device", "/disk/model")

    monkeypatch.setattr(build, "compile_recipe", full)
    one_line(run("compile", "x.py", "-o", tmp_path / "o"), "No space left on device", "/disk/model")


def test_a_taken_port_is_one_line(tmp_path, monkeypatch) -> None:
    (tmp_path / "repo" / "m" / "1").mkdir(parents=True)
    (tmp_path / "repo" / "m" / "config.pbtxt").write_text('backend: "aoti"')
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nexit 9\n")
    binary.chmod(0o755)
    monkeypatch.setattr(server_build, "build_backend", lambda **_: tmp_path / "lib.so")
    monkeypatch.setattr(server_build, "backends_directory", lambda *_: tmp_path)
    assert find.find_server(binary).path == binary
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", tmp_path / "repo", "--tritonserver", binary, "--http-port", port)
    assert result.exit_code == 2 and str(port) in result.stderr.splitlines()[-1]


def test_a_tampered_package_is_one_line_and_code_1(package) -> None:
    (package / "model.pt2").write_bytes(b"x" * 12)
    for args in (("verify", package), ("package", package, "--repo", package.parent / "repo")):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "model.pt2 is not the file that manifest.json describes" in result.stderr.splitlines()[-1]


def test_a_failed_proof_is_one_line_and_code_1(monkeypatch, package) -> None:
    def fail(*_args, **_options):
        raise ProofError("output 'y' at b=3: wrong")

    monkeypatch.setattr(verify, "verify", fail)
    result = run("verify", package)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "aoti-pack: output 'y' at b=3: wrong"


def test_debug_shows_the_trace_of_the_first_exception(broken, tmp_path) -> None:
    result = real("--debug", "compile", broken, "-o", tmp_path / "o")
    assert result.returncode != 0 and result.stdout == ""
    assert "raise ValueError('first\\nsecond')" in result.stderr and "UserError" in result.stderr
    quiet = real("compile", broken, "-o", tmp_path / "o")
    one_line(quiet, "raised ValueError: first second")


def test_json_is_all_of_stdout(monkeypatch, package, tmp_path, compiled_package) -> None:
    def chatty(*_args, progress, **_options):
        print("a recipe that prints")
        progress("working")
        return build.Compiled(tmp_path, manifest())

    monkeypatch.setattr(build, "compile_recipe", chatty)
    found = json.loads(run("compile", "x.py", "-o", tmp_path / "o", "--json").stdout)
    assert (found["name"], found["folder"], found["batching"]["max"]) == ("model", str(tmp_path), 8)

    monkeypatch.setattr(verify, "verify", lambda folder, seed, progress: chatty(progress=progress).manifest)
    found = json.loads(run("verify", package, "--seed", 5, "--json").stdout)
    assert (found["seed"], found["equal"], found["proof"]["rtol"]) == (5, True, 1e-4)

    found = json.loads(run("inspect", package, "--json").stdout)
    assert found == json.loads(manifest().to_json())

    monkeypatch.setattr(server_build, "build_backend", lambda **_: print("cmake") or Path("/x/lib.so"))
    assert json.loads(run("build-backend", "--json").stdout) == {"library": "/x/lib.so"}

    found = json.loads(run("package", compiled_package("rows"), "--repo", tmp_path / "r", "--json").stdout)
    assert found == {"path": str(tmp_path / "r" / "rows"), "name": "rows", "version": 1, "max_batch_size": 16}

    checks = json.loads(run("doctor", "--json").stdout)
    assert checks and all({"level", "name", "detail"} <= set(check) for check in checks)


def test_tables_show_shapes_and_names_as_they_are(package, monkeypatch) -> None:
    monkeypatch.setattr(console.out, "width", 200, raising=False)
    result = run("inspect", package)
    assert result.exit_code == 0
    for text in ("[b, 16]", "[b, 2*n]", "proved up to 8 rows", "width=3", "scale"):
        assert text in result.stdout
    bold = manifest(name="[red]m[/red]", batching=Batching(False, "b", 0, "axis [b] of [/x]"), wire="single")
    bold.save(package)
    result = run("inspect", package)
    assert "[red]m[/red]" in result.stdout and "axis [b] of [/x]" in result.stdout


def commands(group: click.Group, path: tuple[str, ...] = ()):
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [(), *commands(main)], ids=lambda path: " ".join(path) or "main")
def test_every_help_has_an_example(path) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout and "aoti-pack " in result.stdout


def test_settings() -> None:
    pairs = ("a=1", "b=0.5", "c=True", "d=None", "e=text", "f=[1]", "g=a=b", "h=", "i='q'")
    assert parse_settings(pairs) == {
        "a": 1, "b": 0.5, "c": True, "d": None, "e": "text", "f": "[1]", "g": "a=b", "h": "", "i": "'q'",
    }  # fmt: skip
    with pytest.raises(UserError, match="x"):
        parse_settings(("x",))


def test_starting_up_does_not_wait_for_torch() -> None:
    code = "import sys; import aoti_pack.cli; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"
    assert cli.FOLDER.file_okay is False


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1.5s", 1.5), ("5m", 300.0)])
def test_times(text, seconds) -> None:
    assert parse_seconds(None, None, text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "5h", "1e3"])
def test_what_is_no_time_is_refused(text) -> None:
    with pytest.raises(click.BadParameter, match="is not a time such as 300s or 5m"):
        parse_seconds(None, None, text)


def test_a_dtype_to_try_needs_tuning(tmp_path) -> None:
    done = CliRunner().invoke(
        main, ["compile", "x.py:recipe", "-o", str(tmp_path / "o"), "--tune-dtype", "bfloat16"]
    )
    assert done.exit_code == 2
    assert "--tune-dtype is for --tune" in done.output
