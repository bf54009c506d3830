"""Recipe: all that a user must say about a model, and nothing else."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aoti_pack.errors import UserError
from aoti_pack.structure import leaves as leaves  # noqa: PLC0414
from aoti_pack.structure import map_leaves as map_leaves  # noqa: PLC0414

if TYPE_CHECKING:
    import torch
    from torch import nn

Inputs = Mapping[str, Any]
Sampler = Callable[["torch.Generator", Mapping[str, int]], Inputs]


@dataclass(frozen=True)
class Tolerance:
    """The compiled model equals eager when |compiled - eager| <= atol + rtol * |eager| everywhere."""

    rtol: float
    atol: float


DEFAULT_TOLERANCE: Mapping[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-9),
    "float32": Tolerance(1e-4, 1e-5),
    "bfloat16": Tolerance(3e-2, 3e-2),
    "float16": Tolerance(5e-3, 5e-3),
}


@dataclass(frozen=True)
class Recipe:
    """A model and how it is called.

    name: names the package and, by default, the served model.
    model: an `nn.Module` in eval mode, or a function that builds one.
    inputs: arguments of `forward` by its parameters' names (those of `*args` as a tuple under its name); example
        tensors, also inside nested dicts, tuples, lists, NamedTuples and dataclasses that torch.export knows
        (`torch.export.register_dataclass`). An input's name is its path: `user`, `options.key`, `pair.0`. Numbers,
        bools, texts and None are compiled in. A size that is dynamic must be 2 or more in the example.
    dynamic: input path -> {axis: `torch.export.Dim`}. Equal names mean equal sizes.
    outputs: names of the model's outputs, in its own order (nested ones flattened). Left out, they are the paths of
        what the model returns: `logits`, `aux.0`; `output.0` in a bare tuple, `output` for one tensor.
    batch: the `Dim` name that counts independent rows; requests are joined along it once the proof has shown
        that rows do not see each other.
    tolerance: dtype name -> Tolerance, where the default does not fit.
    sample: draws fresh inputs of the given sizes (symbol -> size) from a generator, for proof, warm-up and
        load. The default draws floats from N(0, 1), integers from `ranges` and fair bools.
    ranges: integer input path -> (lowest, highest), both inclusive, for the default `sample`. Without an
        entry, the example's own lowest and highest value.
    optional: input path -> the value that fills the input where a request leaves it out. Its sizes must be told by
        the other inputs.
    mutates: paths of inputs, and names of buffers, that the model may write into. Without an entry that is
        refused: a served model keeps no state between requests. What is written is lost: an input is copied
        before, and every run finds a buffer as it was compiled.
    """

    name: str
    model: nn.Module | Callable[[], nn.Module]
    inputs: Inputs
    outputs: Sequence[str] = ()
    dynamic: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    batch: str | None = "b"
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    sample: Sampler | None = None
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    optional: Mapping[str, int | float | bool] = field(default_factory=dict)
    mutates: Sequence[str] = ()

    def build(self) -> nn.Module:
        """A model of the caller's own, in eval mode: what is done to it does not change the recipe's."""
        from torch import nn

        try:
            with _seeded():
                model = copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else self.model()
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"recipe {self.name!r}: building the model raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(model, nn.Module):
            raise UserError(
                f"recipe {self.name!r}: model must be an nn.Module or build one, got {type(model).__name__}"
            )
        return model.eval()

    def tolerance_for(self, dtype: str) -> Tolerance:
        """The tolerance for results in `dtype` (a torch name such as `float32`); exact for integers."""
        return self.tolerance.get(dtype) or DEFAULT_TOLERANCE.get(dtype) or Tolerance(0.0, 0.0)

    def draw(self, seed: int, sizes: Mapping[str, int]) -> Inputs:
        """Fresh inputs of exactly `sizes`, the same for the same `seed` on every machine."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        if self.sample is not None:
            return self.sample(generator, sizes)
        drawn: Inputs = map_leaves(
            self.inputs, lambda path, leaf: self._draw_leaf(path, leaf, generator, sizes)
        )
        return drawn

    def _draw_leaf(self, path: str, leaf: Any, generator: torch.Generator, sizes: Mapping[str, int]) -> Any:
        import torch

        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = list(leaf.shape)
        for axis, dim in self.dynamic.get(path, {}).items():
            shape[axis] = sizes[dim_name(dim)]
        if leaf.dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if leaf.dtype.is_floating_point:
            return torch.randn(shape, generator=generator, dtype=torch.float32).to(leaf.dtype)
        # Through int64: uint16 and wider have no minimum on the CPU.
        low, high = self.ranges.get(path) or (
            (int(leaf.long().min()), int(leaf.long().max())) if leaf.numel() else (0, 0)
        )
        return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64).to(leaf.dtype)


def dim_name(dim: Any) -> str:
    """The name of a `torch.export.Dim`."""
    return str(dim.__name__)


def load_recipe(source: str, settings: Mapping[str, Any]) -> Recipe:
    """The recipe at `module:attribute` or `path/to/file.py:attribute` (default attribute: `recipe`).

    The attribute is a Recipe, or a function that takes `settings` as keyword arguments and returns one. In its
    place: a saved ExportedProgram (`FILE.pt2`), or a function or module with `--inputs` among the settings (see
    `aoti_pack.sources`). UserError when it cannot be found, raises, or does not take a setting.
    """
    with _seeded():
        recipe = _load(source, settings)
    from aoti_pack.recipe_check import check_recipe

    check_recipe(recipe)
    return recipe


@contextmanager
def _seeded() -> Iterator[None]:
    """Random weights drawn by a recipe are the same ones each time it is loaded."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _load(source: str, settings: Mapping[str, Any]) -> Recipe:
    from aoti_pack.sources.asked import split_settings

    asked, own = split_settings(settings)
    if source.partition(":")[0].endswith(".pt2"):
        from aoti_pack.sources.program import program_recipe

        if own:
            raise UserError(
                f"{source} is an exported program and takes no settings, got --set {next(iter(own))}"
            )
        return program_recipe(source, asked)
    found = attribute_of(source, "recipe")
    if asked.inputs is not None:
        from aoti_pack.sources.plain import plain_recipe

        return plain_recipe(source, found, own, asked)
    if not isinstance(found, Recipe):
        found = _made_by(source, found, own)
    elif own:
        raise UserError(
            f"{source} is a Recipe and takes no settings, got --set {next(iter(own))}",
            mend="make it a function with keyword arguments",
        )
    if option := asked.first():
        raise UserError(
            f"{option} was given, and {source} is a Recipe, which says that itself", mend="change the recipe"
        )
    return found


def _made_by(source: str, found: Any, settings: Mapping[str, Any]) -> Recipe:
    """The Recipe that the function `found` returns."""
    from torch import nn

    mend = "give its example inputs: --inputs FILE.npz or module:function"
    if not callable(found):
        raise UserError(f"{source} is a {type(found).__name__}, expected a Recipe or a function")
    if isinstance(found, nn.Module) or (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"{source} is an nn.Module, expected a Recipe", mend=mend)
    try:
        made = found(**settings)
    except UserError:
        raise
    except Exception as error:
        hint = (
            f" ({mend}, if it is the model itself)" if isinstance(error, TypeError) and not settings else ""
        )
        raise UserError(f"recipe {source} raised {type(error).__name__}: {error}{hint}") from error
    if not isinstance(made, Recipe):
        module = isinstance(made, nn.Module)
        raise UserError(
            f"{source}() returned a {type(made).__name__}, expected a Recipe", mend=mend if module else None
        )
    return made


def attribute_of(source: str, default: str) -> Any:
    """The object at `module:attribute` or `FILE.py:attribute`; UserError when it cannot be found."""
    where, _, attribute = source.partition(":")
    module, attribute = _import(where), attribute or default
    if not hasattr(module, attribute):
        raise UserError(
            f"{where} has no attribute {attribute!r}", mend="name the recipe as FILE.py:ATTRIBUTE"
        )
    return getattr(module, attribute)


def _import(where: str) -> ModuleType:
    path = Path(where)
    if path.suffix != ".py":
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(
                here
            )  # as `python -m` does; last, so that nothing of it hides an installed module
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is not None and where.startswith(error.name):
                raise UserError(
                    f"no module {where!r}", mend="give a module that Python can import, or FILE.py:ATTRIBUTE"
                ) from error
            raise UserError(f"{where}: {error}") from error
        except Exception as error:
            raise UserError(f"importing {where} raised {type(error).__name__}: {error}") from error
    if not path.is_file():
        raise UserError(f"{where} does not exist", mend="give the path of a Python file")
    name, beside = file_module_name(path), str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{where} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    # A recipe's neighbours import as they do when the file is run as a script; later, in functions, they still
    # do, but a neighbour called as a module of torch's or Python's own no longer hides that.
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise UserError(f"{where} raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(beside)
        if beside not in sys.path:
            sys.path.append(beside)
    return module


def file_module_name(path: Path) -> str:
    """The name under which a recipe file is imported, and by which pickles of its classes find it again.

    A name of its own: the plain stem of `json.py` would hide a module that others need, and a stem with a dot
    or a dash could not be imported by a pickle at all.
    """
    return "aoti_recipe_" + re.sub(r"\W", "_", path.stem)
