"""`aoti-pack compile`: a recipe becomes a proved package."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aoti_pack import console
from aoti_pack.commands.compile_options import compile_options
from aoti_pack.commands.shared import FOLDER, JSON, parse_seconds, parse_settings
from aoti_pack.errors import UserError

if TYPE_CHECKING:
    from aoti_pack.compiler.options import CompileOptions


@click.command("compile")
@click.argument("source")
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder to write; replaced if it is a package.")
@click.option(
    "--inputs", metavar="FILE.npz|MODULE:FUNCTION", help="Example inputs of a SOURCE that is no Recipe."
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="PATH:AXIS=NAME[LOW..HIGH]",
    help="A size that varies, such as x:0=b[1..256]; 1..1024 where no range is given.",
)
@click.option("--outputs", metavar="NAME,NAME", help="Names of the outputs, in the model's order.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting for the recipe.")
@compile_options
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
    source: str,
    out: Path,
    options: CompileOptions,
    inputs: str | None,
    dynamic: tuple[str, ...],
    outputs: str | None,
    settings: tuple[str, ...],
    tune: bool,
    budget_s: float,
    tune_dtypes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile SOURCE and prove it equal to eager.

    SOURCE is a Recipe (module:attribute or FILE.py:attribute), a program saved by torch.export.save (FILE.pt2), or
    with --inputs a plain function or nn.Module (module:attribute or FILE.py:attribute).

    --inputs: the arrays of an npz are keyword arguments, dotted names nest; a function returns a dict of keyword
    arguments or a tuple of positional ones.

    \b
    Examples:
      aoti-pack compile aoti_pack.models.hstu:recipe -o build/hstu --set config=tiny
      aoti-pack compile my_model.py:recipe -o build/my_model --target-cpu x86-64-v3
      aoti-pack compile exported.pt2 -o build/exported --outputs scores
      aoti-pack compile score.py:score -o build/score --inputs example.npz --dynamic "x:0=b[1..256]"
    """
    from aoti_pack.compiler.build import compile_recipe
    from aoti_pack.compiler.tuning.search import TuneRequest
    from aoti_pack.sources.asked import Asked, split_names

    if tune_dtypes and not tune:
        raise UserError(
            "--tune-dtype is for --tune", mend="give --tune too, or choose the dtype with --dtype"
        )

    request = TuneRequest(budget_s, tune_dtypes) if tune else None
    asked = Asked(inputs, dynamic, split_names(outputs))
    with console.steps("compile") as progress:
        done = compile_recipe(
            source,
            out,
            options=options,
            settings=parse_settings(settings) | asked.settings(),
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
