"""Whether a folder can be a model repository: told before a server starts, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_pack.errors import UserError


def check_repository(repository: Path, flags: Sequence[str] = ()) -> None:
    """Raise `UserError` if the folder is missing or holds no model that the server would load.

    A repository may be empty when `flags` turn on model control, since models can come later then.
    """
    if not repository.is_dir():
        what = "is not a folder" if repository.exists() else "does not exist"
        raise UserError(f"model repository {repository} {what}", mend="give the folder that holds the models")
    if (repository / "config.pbtxt").is_file() or _versions(repository):
        raise UserError(
            f"{repository} is a model, not a model repository", mend=f"give its parent, {repository.parent}"
        )
    if any(flag.startswith("--model-control-mode") for flag in flags):
        return
    models = [
        folder for folder in repository.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    ]
    if not models:
        raise UserError(
            f"model repository {repository} is empty",
            mend="put a model into it with `aoti-pack package` first",
        )
    if not any(_versions(folder) for folder in models):
        names = ", ".join(sorted(folder.name for folder in models)[:5])
        raise UserError(
            f"no model in {repository} has a version folder (found {names})",
            mend="a model is laid out as NAME/1/...; compile one into the repository first",
        )


def _versions(model: Path) -> list[Path]:
    return [folder for folder in model.iterdir() if folder.name.isdigit() and folder.is_dir()]
