"""A gRPC client that speaks in the recipe's terms: torch tensors in the recipe's structure, in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_pack.errors import UserError
from aoti_pack.manifest import Manifest, TensorSpec
from aoti_pack.recipe import Inputs, leaves

if TYPE_CHECKING:
    import torch


class ModelClient:
    """One connection to one served model. Not for use by several threads at once.

    Requests are serialised once and sent as bytes, answers decoded only when asked for: a load generator's own
    cost would otherwise be most of what it measures on small models.
    """

    def __init__(self, url: str, name: str, manifest: Manifest) -> None:
        """Connect to the gRPC endpoint `url` (`host:port`) and its model `name`, described by `manifest`."""
        import grpc
        from tritonclient.grpc import service_pb2

        self._errors, self._call_error = grpc.RpcError, grpc.Call
        self._messages = service_pb2
        # A connection of its own: channels with equal arguments share one otherwise.
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channel = grpc.insecure_channel(url, options=options)
        self._call = self._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        self._name = name
        self._manifest = manifest

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def prepare(self, inputs: Inputs) -> bytes:
        """The request for `inputs`, to be sent any number of times by `send`. Optional ones may be left out."""
        import torch

        request = self._messages.ModelInferRequest(model_name=self._name)
        found = dict(leaves(inputs))
        for spec in self._manifest.inputs:
            if spec.default is not None and spec.name not in found:
                continue
            tensor = found[spec.name]
            shape = list(tensor.shape)
            if len(shape) == (1 if self._manifest.wire == "rows" else 0):
                shape.append(1)  # the server's core wants an axis beside the batch
            request.inputs.add(name=spec.name, datatype=spec.datatype, shape=shape)
            # Bytes, not numpy arrays: numpy has no bfloat16.
            flat = tensor.contiguous().reshape(-1).view(torch.uint8)
            request.raw_input_contents.append(flat.numpy().tobytes())
        serialised: bytes = request.SerializeToString()
        return serialised

    def send(self, request: bytes) -> bytes:
        """Send a prepared request and wait for the answer. UserError in the server's words if it is refused."""
        try:
            answer: bytes = self._call(request)
        except self._errors as error:
            told = error.details() if isinstance(error, self._call_error) else str(error)
            raise UserError(f"{self._name} refused the request: {told}") from error
        return answer

    def decode(self, answer: bytes) -> dict[str, torch.Tensor]:
        """The outputs by name, in the shapes that the model itself gives."""
        response = self._messages.ModelInferResponse.FromString(answer)
        specs = {spec.name: spec for spec in self._manifest.outputs}
        return {
            output.name: _decode(specs[output.name], list(output.shape), raw)
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }

    def infer(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Send `inputs`, wait, decode."""
        return self.decode(self.send(self.prepare(inputs)))


def _decode(spec: TensorSpec, shape: list[int], raw: bytes) -> torch.Tensor:
    import torch

    if len(shape) == len(spec.shape) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
