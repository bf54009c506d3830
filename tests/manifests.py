"""A small valid manifest, made without compiling."""

from aoti_pack.manifest import (
    BakedScalar,
    Batching,
    ConstantSpec,
    FileSpec,
    Manifest,
    OutputError,
    PackageSpec,
    Proof,
    ProofCase,
    RecipeRef,
    Symbol,
    Target,
    TensorSpec,
    Trial,
    Tuning,
)


def manifest(**changes) -> Manifest:
    fields = {
        "name": "model",
        "executor": "plain",
        "wire": "rows",
        "recipe": RecipeRef("file.py:recipe", {"width": 3}),
        "package": PackageSpec("model.pt2", "a" * 64),
        "files": (FileSpec("model.pt2", "a" * 64, 12),),
        "torch": "2.13.0",
        "torch_range": ("2.12", "2.14"),
        "options": {"target_cpu": "native"},
        "target": Target("cpu", "x86_64", "native", "avx2", ("avx", "avx2"), "2.36"),
        "dtype": "float32",
        "symbols": (Symbol("b", 1, 8), Symbol("n", 1, 4)),
        "inputs": (
            TensorSpec("x", "float32", "FP32", ("b", 16)),
            TensorSpec("t", "int64", "INT64", ("b", "n")),
        ),
        "outputs": (
            TensorSpec("y", "float32", "FP32", ("b", "2*n")),
            TensorSpec("s", "bool", "BOOL", ("b",)),
        ),
        "baked": (BakedScalar("scale", 2),),
        "constants": (ConstantSpec("layer.weight", "float32", (3, 4)),),
        "batching": Batching(True, "b", 8),
        "proof": Proof(
            1, 1e-4, 1e-5, 2e-7, (ProofCase({"b": 2}, (OutputError("y", 2e-7, None, 1e-7, 3.0),)),)
        ),
    }
    fields["tuning"] = Tuning(2, 2, 1, 4, (Trial({"freezing": True}, 2, 1, 4, 900.5, 8.25, "chosen"),))
    return Manifest(**(fields | changes))
