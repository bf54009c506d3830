"""The README's "your own model" section, run word for word, but for the port and the folder."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aoti_pack.recipe import load_recipe

pytestmark = pytest.mark.server

README = Path(__file__).parents[2] / "README.md"


def section(title: str) -> str:
    found = re.search(
        rf"^## {title}\n(.*?)^## ", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def fences(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test_four_commands_from_a_file_of_ones_own_to_an_answer(tmp_path: Path) -> None:
    text = section("Your own model")
    (source,) = fences(text, "python")
    (commands,) = fences(text, "sh")
    (tmp_path / "my_model.py").write_text(source, encoding="utf-8")
    joined = re.sub(r"#.*", "", commands).replace("\n  {", " {")
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    assert len(lines) == 4
    compile_line, package_line, serve_line, curl_line = lines
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in (compile_line, package_line):
        subprocess.run(line, shell=True, cwd=tmp_path, env=environment, check=True, capture_output=True)
    http, grpc, metrics = free_ports(3)
    argv = [*serve_line.removesuffix("&").split(), f"--http-port={http}", f"--grpc-port={grpc}"]
    with (tmp_path / "serve.log").open("wb") as log:
        serving = subprocess.Popen(
            [*argv, f"--metrics-port={metrics}"], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    try:
        request = curl_line.replace("localhost:8000", f"127.0.0.1:{http}")
        done = subprocess.run(request, shell=True, capture_output=True, check=True, timeout=420)
        (output,) = json.loads(done.stdout)["outputs"]
    finally:
        serving.send_signal(signal.SIGINT)
        code = serving.wait(60)
    assert code == 0, (tmp_path / "serve.log").read_text()
    load_recipe(str(tmp_path / "my_model.py"), {})  # the pickle names its classes by the recipe's module
    eager = torch.load(tmp_path / "build/scorer/eager.pt", weights_only=False)
    wanted = eager(torch.arange(1.0, 17.0).reshape(1, 16), torch.tensor([0.5]))
    assert output["name"] == "score"
    assert output["shape"] == [1, 1]
    assert output["data"][0] == pytest.approx(wanted.item(), rel=1e-4, abs=1e-5)
