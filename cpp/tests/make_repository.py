"""Write the test models into a model repository: `make_repository.py REPO`. Does nothing when it is up to date.

The packages are those that the Python tests use as well (`tests/packages.py` keeps them).
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from packages import CPP_MODELS, cpp_package  # noqa: E402

from aoti_pack.atomic import exclusive, write_text  # noqa: E402
from aoti_pack.repository.layout import write_model  # noqa: E402


def main(repo: Path) -> None:
    """Write every test model into `repo`, unless it holds those of the same packages and sources."""
    repo.mkdir(parents=True, exist_ok=True)
    with exclusive(repo.with_name(repo.name + ".lock")):
        packages = [cpp_package(name) for name in CPP_MODELS]
        digest = hashlib.sha256(repr(packages).encode())
        for source in [Path(__file__), *sorted((ROOT / "aoti_pack" / "repository").glob("*.py"))]:
            digest.update(source.read_bytes())
        stamp = repo.with_name(repo.name + ".stamp")
        if stamp.exists() and stamp.read_text(encoding="utf-8") == digest.hexdigest():
            return
        for package in packages:
            write_model(package, repo)
        # As a user drops it in: what `aoti-pack compile` wrote, untouched.
        shutil.copytree(packages[0], repo / "dropped" / "1", dirs_exist_ok=True)
        write_text(stamp, digest.hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
