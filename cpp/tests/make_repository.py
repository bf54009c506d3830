"""Compile the test models into a model repository: `make_repository.py REPO`. Does nothing when it is up to date."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from aoti_pack.atomic import exclusive, write_text  # noqa: E402

# What decides the content of the packages and of the files beside them.
SOURCES = (
    HERE / "recipes.py",
    HERE / "make_repository.py",
    ROOT / "aoti_pack/manifest.py",
    ROOT / "aoti_pack/compiler/export.py",
    ROOT / "aoti_pack/compiler/lower.py",
    ROOT / "aoti_pack/repository/layout.py",
)


def main(repo: Path) -> None:
    """Write every test model into `repo`, unless it holds those of the same sources and torch."""
    digest = hashlib.sha256(version("torch").encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    stamp = repo.with_name(repo.name + ".stamp")
    repo.mkdir(parents=True, exist_ok=True)
    with exclusive(repo.with_name(repo.name + ".lock")):
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest.hexdigest():
            build(repo)
            write_text(stamp, digest.hexdigest())


def build(repo: Path) -> None:
    """Compile and write every test model."""
    from recipes import DTYPES, NAMES

    from aoti_pack.compiler.build import compile_recipe
    from aoti_pack.repository.layout import write_model

    with tempfile.TemporaryDirectory(prefix="aoti-pack-tests-") as folder:
        for name in NAMES:
            package = Path(folder) / name
            compile_recipe(
                f"{HERE / 'recipes.py'}:{name}",
                package,
                dtype=DTYPES.get(name, "float32"),
                progress=partial(print, f"{name}:", flush=True),
            )
            write_model(package, repo)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
