"""`aoti-pack config`: the config.pbtxt that `package` would write, with the reason for each field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aoti_pack import console
from aoti_pack.commands.serving_options import serving_options
from aoti_pack.commands.shared import FOLDER

if TYPE_CHECKING:
    from aoti_pack.repository.config import Serving


@click.command("config")
@click.argument("folder", type=FOLDER)
@serving_options
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, without the comments.")
def config_command(folder: Path, name: str | None, backend: str, serving: Serving, as_json: bool) -> None:
    """Print the config.pbtxt that `package` would write for the package in FOLDER, each field explained.

    \b
    Example:
      aoti-pack config build/hstu --instances 2 --max-queue-delay-us 500
    """
    from aoti_pack.repository.config import config_text
    from aoti_pack.repository.explain import explain
    from aoti_pack.repository.plan import plan_model

    plan = plan_model(folder, name=name, backend=backend, serving=serving)
    if as_json:
        console.print_json(plan.config)
        return
    comments = explain(plan.manifest, plan.serving, backend=backend, name=plan.name)
    click.echo(config_text(plan.config, comments), nl=False)
