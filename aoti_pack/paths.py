"""Where aoti-pack keeps what it builds and installs for a user."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The per-user folder for built backends, installed servers and cached packages.

    `AOTI_PACK_HOME` if set, else `$XDG_CACHE_HOME/aoti-pack`, else `~/.cache/aoti-pack`.
    """
    if home := os.environ.get("AOTI_PACK_HOME"):
        return Path(home).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aoti-pack"


def source_root() -> Path:
    """The folder that holds `CMakeLists.txt` and `cpp/`: the checkout, or the copy inside the wheel."""
    here = Path(__file__).resolve().parent
    packaged = here / "_cpp"
    return packaged if packaged.is_dir() else here.parent
