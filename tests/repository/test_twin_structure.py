"""The twin of a recipe with neighbours and nested inputs, run as Triton's stub runs it: by a process of its own."""

import subprocess
import sys

import torch
from packages import RECIPES

from aoti_pack.compiler.loaded import load
from aoti_pack.recipe import load_recipe
from aoti_pack.repository.layout import write_model
from aoti_pack.structure import leaves

STUB = """
import importlib.util, json, sys, types
from dataclasses import dataclass
import torch

@dataclass
class Tensor:
    name: str
    tensor: torch.Tensor
    def to_dlpack(self):
        return torch.utils.dlpack.to_dlpack(self.tensor)
    @staticmethod
    def from_dlpack(name, tensor):
        return Tensor(name, tensor)

pb = types.ModuleType("triton_python_backend_utils")
pb.Tensor = Tensor
pb.TritonError = str
pb.InferenceResponse = lambda output_tensors=None, error=None: (output_tensors, error)
pb.get_input_tensor_by_name = lambda request, name: Tensor(name, request[name])
sys.modules[pb.__name__] = pb

model_folder, requests, answers = sys.argv[1:]
spec = importlib.util.spec_from_file_location("model", f"{model_folder}/1/model.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.TritonPythonModel()
model.initialize({
    "model_repository": model_folder, "model_version": "1", "model_instance_kind": "CPU",
    "model_instance_device_id": "0",
    "model_config": json.dumps({"parameters": {"mode": {"string_value": "eager"}}}),
})
given = torch.load(requests)
found = model.execute(given)
assert not any(error for _, error in found), found
torch.save({
    "answers": [{one.name: one.tensor for one in tensors} for tensors, _ in found],
    "given": given,
}, answers)
"""


def test_a_twin_with_neighbours_and_nested_inputs(compiled_package, tmp_path) -> None:
    folder = compiled_package("structure")
    done = write_model(folder, tmp_path / "repo", backend="python")
    source = {path.name for path in (done.path / "1" / "source").iterdir()}
    assert source == {"aoti_recipe_structure.py", "structure_parts.py"}

    package = load(folder)
    recipe = load_recipe(f"{RECIPES / 'structure.py'}:recipe", {})
    drawn = [recipe.draw(seed, {"b": seed, "n": 3}) for seed in (2, 5)]
    names = {spec.name for spec in package.manifest.inputs}
    requests = [{path: leaf for path, leaf in leaves(one) if path in names} for one in drawn]
    torch.save(requests, tmp_path / "requests.pt")
    args = [sys.executable, "-c", STUB, done.path, tmp_path / "requests.pt", tmp_path / "answers.pt"]
    run = subprocess.run(
        [*map(str, args)], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=200
    )
    assert run.returncode == 0, run.stderr
    told = torch.load(tmp_path / "answers.pt")
    for inputs, request, given, answer in zip(drawn, requests, told["given"], told["answers"], strict=True):
        wanted = package(**inputs)
        assert list(answer) == list(wanted)
        for name, tensor in wanted.items():
            torch.testing.assert_close(answer[name], tensor, rtol=1e-4, atol=1e-4, msg=name)
        assert all(torch.equal(request[name], given[name]) for name in names), (
            "nothing is written into a request"
        )
