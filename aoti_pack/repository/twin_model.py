"""`model.py` of the Python twin. Triton's Python backend runs a copy of this file beside the weights.

Tensors cross by DLPack: nothing is copied, BF16 works, and it is right under numpy 2.
"""

from __future__ import annotations

import json
import locale
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils import _pytree as pytree
from torch.utils.dlpack import from_dlpack

from aoti_pack.fill_value import filled
from aoti_pack.manifest import Manifest
from aoti_pack.package_files import EAGER_FILE, SAMPLE_FILE, SOURCE_FOLDER, STRUCTURE_FILE
from aoti_pack.structure import bind, map_leaves


class TritonPythonModel:
    """One instance: joins the requests it is given along axis 0, runs once, cuts the outputs."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the pickled eager module that lies beside this file."""
        # Triton's stub starts its interpreter in the C locale; torch.compile reads UTF-8 files of its own.
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        here = Path(args["model_repository"]) / args["model_version"]
        sys.path.insert(0, str(here / SOURCE_FOLDER))
        parameters = json.loads(args["model_config"])["parameters"]
        if "threads" in parameters:
            torch.set_num_threads(int(parameters["threads"]["string_value"]))
        self.manifest = Manifest.load(here)
        self.sample = torch.load(here / SAMPLE_FILE, weights_only=True)
        kind, device = args["model_instance_kind"], args["model_instance_device_id"]
        self.device = f"cuda:{device}" if kind == "GPU" else "cpu"
        model = torch.load(here / EAGER_FILE, map_location=self.device, weights_only=False)
        self.eager = model.to(self.device)  # an exported program unpickles on the CPU
        # After the model, whose pickle imports what the structure's own types need registered.
        self.structure = torch.load(here / STRUCTURE_FILE, weights_only=False)
        is_compiled = parameters["mode"]["string_value"] == "compile"
        self.model = torch.compile(self.eager, dynamic=True) if is_compiled else self.eager

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response a request, in their order. What the wire form does not join runs request by request."""
        runs = [requests] if self.manifest.wire == "rows" else [[request] for request in requests]
        responses: list[Any] = []
        for run in runs:
            try:
                with torch.inference_mode():
                    responses += self._run(run)
            except Exception as error:
                failure = pb_utils.TritonError(f"{type(error).__name__}: {error}")
                responses += [pb_utils.InferenceResponse(error=failure) for _ in run]
        return responses

    def _run(self, requests: list[Any]) -> list[Any]:
        rows_of = [self._inputs(request) for request in requests]
        columns = {spec.name: [row[spec.name] for row in rows_of] for spec in self.manifest.inputs}
        joined = {name: torch.cat(parts) if len(parts) > 1 else parts[0] for name, parts in columns.items()}
        inputs = map_leaves(self.structure, lambda path, _: joined.get(path, self.sample[path]))
        args, kwargs = bind(self.eager, inputs)
        outputs = [output.contiguous() for output in pytree.tree_leaves(self.model(*args, **kwargs))]
        if len(requests) == 1:
            return [self._response(outputs)]
        rows = [part.shape[0] for part in columns[self.manifest.inputs[0].name]]
        cuts = zip(*(output.split(rows) for output in outputs), strict=True)
        return [self._response(cut) for cut in cuts]

    def _inputs(self, request: Any) -> dict[str, torch.Tensor]:
        """Every input by name; one that the request leaves out is filled with its default."""
        found: dict[str, torch.Tensor] = {}
        sizes: dict[int | str, int] = {}
        for spec in self.manifest.inputs:
            given = pb_utils.get_input_tensor_by_name(request, spec.name)
            if given is not None:
                tensor = from_dlpack(given.to_dlpack()).to(self.device)
                # What the model writes into is the server's memory otherwise.
                tensor = tensor.clone() if spec.mutated else tensor
                found[spec.name] = tensor if spec.shape else tensor.reshape(())
                sizes.update(zip(spec.shape, found[spec.name].shape, strict=True))
        for spec in self.manifest.inputs:
            if spec.name not in found and spec.default is not None:
                shape = [sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape]
                found[spec.name] = filled(shape, spec.default, getattr(torch, spec.dtype), self.device)
        return found

    def _response(self, outputs: Sequence[torch.Tensor]) -> Any:
        named = zip(self.manifest.outputs, outputs, strict=True)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor.from_dlpack(spec.name, tensor) for spec, tensor in named]
        )
