"""A running server that loads what it is told to: each case lays its model out and sees what the server says."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from packages import CPP_RECIPES, cpp_package
from tritonclient import grpc

from aoti_pack.manifest import WIRE_DATATYPES, Manifest
from aoti_pack.recipe import Recipe, load_recipe
from aoti_pack.repository.config import Serving
from aoti_pack.repository.layout import write_model
from aoti_pack.server.launch import TritonServer


@dataclass(frozen=True)
class Answer:
    """What the server said: an HTTP status and its JSON, `{}` for an empty body."""

    status: int
    body: Any

    @property
    def error(self) -> str:
        return str(self.body.get("error", ""))

    def output(self, name: str) -> dict[str, Any]:
        """The output called `name`; the error is told when there is none."""
        assert self.status == 200, self.error
        (found,) = [output for output in self.body["outputs"] if output["name"] == name]
        return found


class RestServer:
    """The server, its repository, and the calls that the cases make."""

    def __init__(self, server: TritonServer, repo: Path) -> None:
        self.server = server
        self.repo = repo

    def write(self, model: str, name: str, **options: Any) -> Path:
        """Write the test package `model` as `name`; its folder."""
        serving = options.pop("serving", Serving(threads=1))
        return write_model(cpp_package(model), self.repo, name=name, serving=serving, **options).path

    def write_with(self, model: str, name: str, config: str | None) -> Path:
        """Write the test package `model` into the folder `name` with this config.pbtxt, or with none."""
        folder = self.write(model, "laid_out")
        shutil.rmtree(folder / "warmup")
        if config is None:
            (folder / "config.pbtxt").unlink()
        else:
            (folder / "config.pbtxt").write_text(config, encoding="utf-8")
        return folder.rename(self.repo / name)

    def load(self, name: str) -> Answer:
        return self.call(f"v2/repository/models/{name}/load", {})

    def unload(self, name: str) -> Answer:
        return self.call(f"v2/repository/models/{name}/unload", {})

    def config(self, name: str) -> dict[str, Any]:
        answer = self.call(f"v2/models/{name}/config")
        assert answer.status == 200, answer.error
        return dict(answer.body)

    def counts(self, name: str) -> tuple[int, int, int]:
        """Rows, runs and requests that the server counts for the model."""
        (found,) = self.call(f"v2/models/{name}/stats").body["model_stats"]
        return (
            found["inference_count"],
            found["execution_count"],
            found["inference_stats"]["success"]["count"],
        )

    def infer(
        self, name: str, inputs: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any] | None = None
    ) -> Answer:
        body: dict[str, Any] = {"inputs": list(inputs)}
        if parameters:
            body["parameters"] = dict(parameters)
        return self.call(f"v2/models/{name}/infer", body)

    def ask(self, name: str, *inputs: grpc.InferInput) -> grpc.InferResult:
        """A request over gRPC, with inputs from `raw`; InferenceServerException when it is refused."""
        client = grpc.InferenceServerClient(self.server.grpc_url)
        try:
            return client.infer(name, list(inputs))
        finally:
            client.close()

    def refusal(self, name: str, *inputs: grpc.InferInput) -> str:
        """What the server says to a request that it must refuse as an invalid argument."""
        with pytest.raises(grpc.InferenceServerException) as caught:
            self.ask(name, *inputs)
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT", caught.value
        return str(caught.value.message())

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.server.http_url}/{path}", data=data)
        try:
            with urllib.request.urlopen(request) as answer:
                return Answer(answer.status, json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read() or b"{}"))


def tensor(name: str, datatype: str, shape: Sequence[int], data: Any) -> dict[str, Any]:
    """An input of a request in JSON."""
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def raw(name: str, datatype: str, shape: Sequence[int], data: bytes) -> grpc.InferInput:
    """An input of a gRPC request, with exactly these bytes whatever the shape says."""
    made = grpc.InferInput(name, list(shape), datatype)
    made._raw_content = data
    return made


def raw_of(name: str, value: torch.Tensor, shape: Sequence[int] | None = None) -> grpc.InferInput:
    """An input of a gRPC request; numpy has no bfloat16, and so as bytes."""
    datatype = WIRE_DATATYPES[str(value.dtype).removeprefix("torch.")]
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return raw(name, datatype, value.shape if shape is None else shape, data)


def answered(result: grpc.InferResult, name: str, dtype: torch.dtype) -> torch.Tensor:
    """The output `name` in the shape that the server gives it."""
    response = result.get_response()
    index = [output.name for output in response.outputs].index(name)
    shape, data = list(response.outputs[index].shape), response.raw_output_contents[index]
    assert response.outputs[index].datatype == WIRE_DATATYPES[str(dtype).removeprefix("torch.")]
    return (
        torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
        if data
        else torch.empty(shape, dtype=dtype)
    )


def recipe_of(model: str) -> Recipe:
    return load_recipe(f"{CPP_RECIPES}:{model}", {})


def manifest_of(model: str) -> Manifest:
    return Manifest.load(cpp_package(model))
