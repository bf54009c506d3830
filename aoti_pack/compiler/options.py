"""What a user may choose about a compile, apart from the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aoti_pack.errors import UserError


@dataclass(frozen=True)
class CompileOptions:
    """How a recipe is compiled.

    device: `cpu`, `cuda` or `cuda:N`.
    dtype: of the model and its floating inputs; None for the recipe's own.
    target_cpu: `native`, an x86-64 level (`x86-64-v2`, `-v3`, `-v4`) or another `-march` of the compiler's.
    dynamic_threads: the number of threads is the server's to choose; otherwise that of this machine is compiled in.
    freezing: weights are constants to the optimiser, which may fold and repack them.
    max_autotune: kernels are chosen by measuring.
    updatable: weights can be replaced in a running server.
    keep_sources: the generated code goes along in the package.
    """

    device: str = "cpu"
    dtype: str | None = None
    target_cpu: str = "native"
    dynamic_threads: bool = True
    freezing: bool = False
    max_autotune: bool = False
    updatable: bool = False
    keep_sources: bool = False

    def __post_init__(self) -> None:
        if self.freezing and self.updatable:
            raise UserError(
                "--updatable and --freezing exclude each other: freezing folds the weights into the code",
                mend="leave one of them out",
            )

    def record(self) -> Mapping[str, int | float | bool | str | None]:
        """What the manifest keeps of it: all that it does not say elsewhere (device in `target`, `dtype`)."""
        return {name: value for name, value in asdict(self).items() if name not in ("device", "dtype")}
