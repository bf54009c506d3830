"""`aoti-pack build`: several models into one repository, each compiled only when something changed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from aoti_pack import console
from aoti_pack.commands.shared import FOLDER, JSON


@click.command("build")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--repo", type=FOLDER, help="The model repository (default: the file's `repo`).")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Compiles at a time.")
@click.option("--force", is_flag=True, help="Compile and write all, changed or not.")
@JSON
def build_command(file: Path, repo: Path | None, jobs: int, force: bool, as_json: bool) -> None:
    """Build the models that FILE (YAML) lists into one model repository.

    A model is compiled again when its Python files, its options, torch or aoti-pack changed. Exit code 1 when one of
    them fails; the others are built.

    \b
    Example, models.yaml (recipe, inputs, repo and out are relative to it; every compile and serving option is a key):
      repo: repo
      models:
        - recipe: aoti_pack.models.hstu:recipe
          settings: {config: tiny}
          instances: 2
        - recipe: my_model.py:score
          inputs: example.npz
          dynamic: ["x:0=b[1..256]"]
          name: scorer
          max_queue_delay_us: 500
    \b
      aoti-pack build models.yaml
    """
    from aoti_pack.project.build import build_project

    with console.steps("build") as progress:
        outcomes = build_project(file, repo=repo, jobs=jobs, force=force, progress=progress)
    failed = any(outcome.error for outcome in outcomes)
    if as_json:
        console.print_json(
            {"ok": not failed, "models": [dataclasses.asdict(outcome) for outcome in outcomes]}
        )
    else:
        rows = [
            (o.model, o.version, o.package, o.repository or "-", o.seconds, o.error or "") for o in outcomes
        ]
        console.show(
            console.table("", ("model", "version", "package", "repository", "seconds", "error"), rows)
        )
    sys.exit(1 if failed else 0)
