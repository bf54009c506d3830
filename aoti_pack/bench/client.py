"""A gRPC client that speaks in the recipe's terms: torch tensors by input name, in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, TensorSpec

if TYPE_CHECKING:
    import torch


class ModelClient:
    """One connection to one served model. Not for use by several threads at once.

    `infer` raises UserError with the server's own words when a request is refused.
    """

    def __init__(self, url: str, name: str, manifest: Manifest) -> None:
        """Connect to the gRPC endpoint `url` (`host:port`) and its model `name`, described by `manifest`."""
        from tritonclient import grpc

        self._grpc = grpc
        self._client = grpc.InferenceServerClient(url)
        self._name = name
        self._manifest = manifest

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def prepare(self, inputs: Mapping[str, torch.Tensor]) -> list[Any]:
        """The request for `inputs`, to be sent any number of times by `send`."""
        return [self._wire_input(spec, inputs[spec.name]) for spec in self._manifest.inputs]

    def send(self, request: list[Any]) -> Any:
        """Send a prepared request and wait for the answer, undecoded."""
        return self._client.infer(self._name, request)

    def infer(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The outputs by name, in the shapes that the model itself gives."""
        try:
            answer = self.send(self.prepare(inputs)).get_response()
        except self._grpc.InferenceServerException as error:
            raise UserError(f"{self._name} refused the request: {error}") from error
        specs = {spec.name: spec for spec in self._manifest.outputs}
        return {
            output.name: _decode(specs[output.name], list(output.shape), raw)
            for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
        }

    def _wire_input(self, spec: TensorSpec, tensor: torch.Tensor) -> Any:
        import torch

        shape = list(tensor.shape)
        if len(shape) == (1 if self._manifest.wire == "rows" else 0):
            shape.append(1)  # the server's core wants an axis beside the batch
        wire = self._grpc.InferInput(spec.name, shape, spec.datatype)
        # Raw bytes rather than set_data_from_numpy: numpy has no bfloat16.
        wire._raw_content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return wire


def _decode(spec: TensorSpec, shape: list[int], raw: bytes) -> torch.Tensor:
    import torch

    if len(shape) == len(spec.shape) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
