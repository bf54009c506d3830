"""System shared memory, in and out: the tensors never travel through the socket."""

from __future__ import annotations

import os

import numpy as np
import pytest
from stand import Stand
from tritonclient import grpc
from tritonclient.utils import shared_memory as shm

pytestmark = pytest.mark.server


def test_inputs_and_outputs_in_shared_memory(stand: Stand) -> None:
    model = stand.models["arith"]
    inputs = model.draw(11, b=8)
    bytes_each = 8 * 16 * 4
    client = grpc.InferenceServerClient(stand.server.grpc_url)
    key = f"/aoti_pack_test_{os.getpid()}"
    region = shm.create_shared_memory_region("io", key, 3 * bytes_each)
    try:
        shm.set_shared_memory_region(region, [inputs["x"].numpy(), inputs["y"].numpy()])
        client.register_system_shared_memory("io", key, 3 * bytes_each)
        wire = [grpc.InferInput(name, [8, 16], "FP32") for name in ("x", "y")]
        for number, one in enumerate(wire):
            one.set_shared_memory("io", bytes_each, offset=number * bytes_each)
        output = grpc.InferRequestedOutput("out")
        output.set_shared_memory("io", bytes_each, offset=2 * bytes_each)
        client.infer("arith", wire, outputs=[output])
        got = shm.get_contents_as_numpy(region, np.float32, [8, 16], offset=2 * bytes_each)
        wanted = model.expected(inputs)["out"].numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    finally:
        client.unregister_system_shared_memory("io")
        shm.destroy_shared_memory_region(region)
        client.close()


def test_a_region_that_is_too_small_is_refused(stand: Stand) -> None:
    client = grpc.InferenceServerClient(stand.server.grpc_url)
    key = f"/aoti_pack_small_{os.getpid()}"
    region = shm.create_shared_memory_region("small", key, 64)
    try:
        client.register_system_shared_memory("small", key, 64)
        wire = [grpc.InferInput(name, [1, 16], "FP32") for name in ("x", "y")]
        wire[0].set_shared_memory("small", 60)  # a float short
        wire[1].set_shared_memory("small", 64)
        with pytest.raises(grpc.InferenceServerException) as caught:
            client.infer("arith", wire)
        assert "x" in caught.value.message()
        assert "60" in caught.value.message()
    finally:
        client.unregister_system_shared_memory("small")
        shm.destroy_shared_memory_region(region)
        client.close()
