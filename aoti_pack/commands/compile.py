"""`aoti-pack compile`: a recipe becomes a proved package."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from aoti_pack import console
from aoti_pack.commands.shared import FOLDER, JSON, parse_seconds, parse_settings
from aoti_pack.errors import UserError


@click.command("compile")
@click.argument("recipe")
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder to write; replaced if it is a package.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--dtype", help="float32 or bfloat16 (default: what the recipe's model is in).")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting for the recipe.")
@click.option(
    "--tune", is_flag=True, help="Measure other options first and take the fastest that pass the proof."
)
@click.option(
    "--budget", "budget_s", callback=parse_seconds, default="300s", show_default=True, help="Time for --tune."
)
@click.option(
    "--tune-dtype", "tune_dtypes", multiple=True, help="A dtype that --tune may choose; clients then send it."
)
@JSON
def compile_command(
    recipe: str,
    out: Path,
    device: str,
    dtype: str | None,
    settings: tuple[str, ...],
    tune: bool,
    budget_s: float,
    tune_dtypes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile RECIPE (module:attribute or file.py:attribute) and prove it equal to eager.

    \b
    Example:
      aoti-pack compile aoti_pack.models.hstu:recipe -o build/hstu --set config=tiny
    """
    from aoti_pack.compiler.build import compile_recipe
    from aoti_pack.compiler.options import CompileOptions
    from aoti_pack.compiler.tuning.search import TuneRequest

    if tune_dtypes and not tune:
        raise UserError(
            "--tune-dtype is for --tune", mend="give --tune too, or choose the dtype with --dtype"
        )
    options = CompileOptions(device, dtype)
    request = TuneRequest(budget_s, tune_dtypes) if tune else None
    with console.steps("compile") as progress:
        done = compile_recipe(
            recipe,
            out,
            options=options,
            settings=parse_settings(settings),
            tune_request=request,
            progress=progress,
        )
    if as_json:
        console.print_json(dataclasses.asdict(done.manifest) | {"folder": str(done.folder)})
        return
    console.show_tuning(done.manifest)
    console.show_proof(done.manifest)
    batching = done.manifest.batching
    told = f"proved up to {batching.max} rows" if batching.proved else f"not proved: {batching.reason}"
    console.out.print(f"batching {told}", markup=False)
    console.out.print(f"wrote {done.folder}", markup=False)
