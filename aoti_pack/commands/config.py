"""`aoti-pack config`: the config.pbtxt that `package` would write, with the reason for each field."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_pack import console
from aoti_pack.commands.shared import FOLDER


@click.command("config")
@click.argument("folder", type=FOLDER)
@click.option("--name", help="Name of the served model (default: the recipe's; NAME_python for the twin).")
@click.option("--backend", type=click.Choice(["aoti", "python"]), default="aoti", show_default=True)
@click.option("--instances", type=int, default=1, show_default=True, help="Copies that run at a time.")
@click.option("--threads", type=int, help="Threads of an instance (default: cores / instances).")
@click.option("--max-batch-size", type=int, help="Most rows in one run (default: what is proved; 0: none).")
@click.option("--max-queue-delay-us", type=int, default=0, show_default=True, help="Wait for batch-mates.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, without the comments.")
def config_command(
    folder: Path,
    name: str | None,
    backend: str,
    instances: int,
    threads: int | None,
    max_batch_size: int | None,
    max_queue_delay_us: int,
    as_json: bool,
) -> None:
    """Print the config.pbtxt that `package` would write for the package in FOLDER, each field explained.

    \b
    Example:
      aoti-pack config build/hstu --instances 2 --max-queue-delay-us 500
    """
    from aoti_pack.repository.config import Serving, config_text
    from aoti_pack.repository.explain import explain
    from aoti_pack.repository.plan import plan_model

    serving = Serving(instances, max_batch_size, max_queue_delay_us, threads)
    plan = plan_model(folder, name=name, backend=backend, serving=serving)
    if as_json:
        console.print_json(plan.config)
        return
    comments = explain(plan.manifest, serving, backend=backend, name=plan.name)
    click.echo(config_text(plan.config, comments), nl=False)
