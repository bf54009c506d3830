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
    for folder in models:
        _check_backend_is_told(folder)


def _check_backend_is_told(model: Path) -> None:
    """A model of ours without config.pbtxt is found by its folder's name alone: `NAME.aoti`, NAME without a dot."""
    ours = any((version / "manifest.json").is_file() for version in _versions(model))
    if not ours or (model / "config.pbtxt").exists():
        return
    name, _, backend = model.name.partition(".")  # the server's core splits at the first dot
    if not name or backend != "aoti":
        raise UserError(
            f"{model} has no config.pbtxt, and its name does not tell the server the backend",
            mend=f'call the folder {name or "model"}.aoti, or write the line backend: "aoti" into {model}/config.pbtxt',
        )


def _versions(model: Path) -> list[Path]:
    return [folder for folder in model.iterdir() if folder.name.isdigit() and folder.is_dir()]
