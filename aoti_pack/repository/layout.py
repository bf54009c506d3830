"""Writing a model into a repository: the old model or the new one is there at every moment, never a half."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_pack.atomic import new_directory
from aoti_pack.compiler.archive import check_files, unpack
from aoti_pack.compiler.build import describe_file
from aoti_pack.errors import UserError
from aoti_pack.manifest import FILE_NAME, Manifest, PackageSpec
from aoti_pack.repository.config import Serving, config_text
from aoti_pack.repository.plan import Plan, plan_model
from aoti_pack.repository.python_twin import add_twin

if TYPE_CHECKING:
    import torch

CONFIG_FILE = "config.pbtxt"
_LARGEST_VERSION = 2**63 - 1  # the server's core reads it as int64
_VERSION = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Written:
    """A model that now lies in a repository."""

    path: Path
    name: str
    version: int
    max_batch_size: int


def write_model(
    folder: Path,
    repo: Path,
    *,
    name: str | None = None,
    version: int = 1,
    backend: str = "aoti",
    compile_twin: bool = False,
    serving: Serving | None = None,
) -> Written:
    """Write the package in `folder` into the repository `repo` as NAME/VERSION, for the `aoti` backend or as
    its twin for Triton's `python` backend.

    Other versions of NAME stay; an existing VERSION is replaced. UserError when the package is damaged, a name
    or version is not one, or the serving options contradict the proof.
    """
    check_files(folder, Manifest.load(folder))
    plan = plan_model(folder, name=name, backend=backend, compile_twin=compile_twin, serving=serving)
    name, manifest, max_batch_size = plan.name, plan.manifest, plan.max_batch_size
    if not 1 <= version <= _LARGEST_VERSION:
        raise UserError(f"--version is {version}, expected 1 to {_LARGEST_VERSION}")
    if repo.exists() and not repo.is_dir():
        raise UserError(f"{repo} is a file, expected a folder")

    final = repo / name
    if final.exists() and not _is_model(final):
        raise UserError(f"{final} exists and is not a model of a repository", mend="give another --name")
    _check_other_versions(final, manifest, version, max_batch_size)
    repo.mkdir(parents=True, exist_ok=True)
    with new_directory(final, staging=_staging(repo)) as beside:
        _keep_other_versions(final, beside, version)
        target = beside / str(version)
        target.mkdir()
        if backend == "aoti":
            manifest = _unpack_package(folder, manifest, target)
        else:
            manifest = add_twin(folder, manifest, target)
        manifest.save(target)
        _write_warmup(plan, beside)
        (beside / CONFIG_FILE).write_text(config_text(plan.config), encoding="utf-8")
    return Written(final, name, version, max_batch_size)


def _is_model(path: Path) -> bool:
    """A folder that is empty, or laid out as a model: with config.pbtxt or, served by what its versions say,
    without one."""
    if not path.is_dir():
        return False
    versioned = any((folder / FILE_NAME).is_file() for _, folder in _other_versions(path, 0))
    return versioned or (path / CONFIG_FILE).is_file() or not any(path.iterdir())


def model_lock(repo: Path, name: str) -> Path:
    """The file to hold (`atomic.exclusive`) while a model in `repo` is changed: `write_model` holds it too."""
    return _staging(repo) / f".{name}.lock"


def newest_version(model: Path) -> int | None:
    """The highest version of the model in the folder `model`, None when there is none."""
    return max((number for number, _ in _other_versions(model, 0)), default=None)


def _staging(repo: Path) -> Path:
    """Where a model is put together: beside the repository, so that a server that reads it finds no halves;
    inside it where the parent is another file system or not ours to write."""
    parent = repo.resolve().parent
    same = parent.stat().st_dev == repo.stat().st_dev
    return parent if same and os.access(parent, os.W_OK) else repo


def _check_other_versions(model: Path, manifest: Manifest, version: int, max_batch_size: int) -> None:
    """UserError when a version that stays does not fit the config.pbtxt that all versions share."""
    for number, folder in _other_versions(model, version):
        if not (folder / FILE_NAME).is_file():
            continue
        other = Manifest.load(folder)
        for kind in ("inputs", "outputs", "wire"):
            if getattr(other, kind) != getattr(manifest, kind):
                raise UserError(
                    f"{folder} has other {kind} than {manifest.name}, and all versions share one {CONFIG_FILE}",
                    mend=f"give another --name, replace it with --version {number}, or remove it",
                )
        if max_batch_size > (other.batching.max if other.batching.proved else 0):
            raise UserError(
                f"{folder} is proved for up to {other.batching.max} rows and all versions share one "
                f"{CONFIG_FILE}, which would say {max_batch_size}",
                mend=f"give --max-batch-size {other.batching.max} or another --name",
            )


def _other_versions(model: Path, version: int) -> list[tuple[int, Path]]:
    entries = sorted(model.iterdir()) if model.is_dir() else []
    found = [(int(e.name), e) for e in entries if e.is_dir() and _VERSION.fullmatch(e.name)]
    return [(number, folder) for number, folder in found if number != version]


def _keep_other_versions(old: Path, new: Path, version: int) -> None:
    """Bring the other versions of an existing model along, as links to the same files."""
    for _, folder in _other_versions(old, version):
        shutil.copytree(folder, new / folder.name, copy_function=_link, symlinks=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # No hard links on this file system, or not to files of another owner.
        shutil.copy2(source, target)


def _unpack_package(folder: Path, manifest: Manifest, target: Path) -> Manifest:
    """Unpack the `.pt2` under a name of its own content: a server that still maps another one under the same
    version never sees its files change, and the loader never takes the old code for the new."""
    digest = manifest.package.sha256
    inside = Path("package") / digest[:16]
    (target / inside).mkdir(parents=True)
    files = unpack(folder / manifest.package.path, target / inside)
    return dataclasses.replace(
        manifest,
        package=PackageSpec(inside.as_posix(), digest, manifest.package.model_name),
        files=tuple(describe_file(target, target / inside / path) for path in files),
    )


def _write_warmup(plan: Plan, model: Path) -> None:
    """The recipe's example as Triton's warm-up request, so that readiness means warm."""
    (model / "warmup").mkdir()
    for file, tensor in plan.warmup.items():
        (model / "warmup" / file).write_bytes(_raw(tensor))


def _raw(tensor: torch.Tensor) -> bytes:
    import torch

    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
