"""`aoti-pack package`: a package becomes a model of a Triton repository."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aoti_pack import console
from aoti_pack.commands.serving_options import serving_options
from aoti_pack.commands.shared import FOLDER, JSON
from aoti_pack.errors import UserError

if TYPE_CHECKING:
    from aoti_pack.repository.config import Serving


@click.command("package")
@click.argument("folder", type=FOLDER)
@click.option("--repo", type=FOLDER, required=True, help="The model repository; made if missing.")
@click.option("--version", type=int, default=1, show_default=True, help="Version folder to write.")
@click.option("--compile", "compile_twin", is_flag=True, help="With --backend python: use torch.compile.")
@serving_options
@JSON
def package_command(
    folder: Path,
    repo: Path,
    name: str | None,
    version: int,
    backend: str,
    compile_twin: bool,
    serving: Serving,
    as_json: bool,
) -> None:
    """Write the package in FOLDER into a Triton model repository, in one step.

    \b
    Example:
      aoti-pack package build/hstu --repo repo --instances 2 --max-queue-delay-us 500
    """
    from aoti_pack.repository.layout import write_model

    if compile_twin and backend != "python":
        raise UserError("--compile is for --backend python", mend="the aoti backend's model is compiled")
    done = write_model(
        folder,
        repo,
        name=name,
        version=version,
        backend=backend,
        compile_twin=compile_twin,
        serving=serving,
    )
    if as_json:
        console.print_json(dataclasses.asdict(done) | {"path": str(done.path)})
        return
    console.out.print(
        f"wrote {done.path}/{done.version} (max_batch_size {done.max_batch_size})", markup=False
    )
