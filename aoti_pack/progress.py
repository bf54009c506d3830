"""How long-running steps tell a user what they do."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Takes one line of plain text, without a line end."""


def silent(_line: str) -> None:
    """The progress of a caller that wants none."""
