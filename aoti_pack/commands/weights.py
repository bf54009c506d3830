"""`aoti-pack weights`: new weights for a model that is being served."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from aoti_pack import console
from aoti_pack.commands.shared import FOLDER, JSON

REFUSED, UNANSWERED = 1, 3

REPO = click.option("--repo", type=FOLDER, required=True, help="The model repository that is served.")
VERSION = click.option(
    "--version", type=click.IntRange(min=1), help="Version of the model (default: the highest)."
)


@click.group()
def weights() -> None:
    """New weights for a model that is being served.

    \b
    Example:
      aoti-pack weights push scorer new.safetensors --repo repo
    """


@weights.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@REPO
@VERSION
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60, show_default=True, help="Seconds to wait."
)
@click.option("--metrics-url", help="Ask the server's metrics too: where it cannot write to the repository.")
@JSON
def push(
    name: str,
    file: Path,
    repo: Path,
    version: int | None,
    timeout: float,
    metrics_url: str | None,
    as_json: bool,
) -> None:
    """Give the model NAME the weights in FILE (safetensors), without a restart.

    FILE holds the state_dict of the recipe's model. Requests in flight end with the old weights, later ones get the
    new. Exit code 1: the server refused them and serves the old; 3: no server answered in time.

    \b
    Example:
      aoti-pack weights push scorer new.safetensors --repo repo
    """
    from aoti_pack.weights.push import push_weights

    with console.steps("weights push") as progress:
        done = push_weights(
            repo, name, file, version=version, timeout_s=timeout, metrics_url=metrics_url, progress=progress
        )
    if as_json:
        console.print_json(dataclasses.asdict(done))
    elif done.state == "swapped":
        console.out.print(f"{name} serves weights version {done.weights_version}", markup=False)
    elif done.state == "refused":
        told = f"aoti-pack: the server refused the weights and serves those it had: {done.message}"
        console.err.print(told, style="bold red", markup=False, soft_wrap=True)
    else:
        told = (
            f"aoti-pack: no server answered within {timeout:g} s. The weights are in place, and a server that starts "
            "serves them; if one runs that cannot write to the repository, give --metrics-url"
        )
        console.err.print(told, style="bold red", markup=False, soft_wrap=True)
    sys.exit({"swapped": 0, "refused": REFUSED}.get(done.state, UNANSWERED))


@weights.command()
@click.argument("name")
@REPO
@VERSION
@JSON
def status(name: str, repo: Path, version: int | None, as_json: bool) -> None:
    """Print which weights of NAME are to serve, and what its server said last.

    \b
    Example:
      aoti-pack weights status scorer --repo repo
    """
    from aoti_pack.weights.push import weights_state

    state = weights_state(repo, name, version)
    if as_json:
        console.print_json(dataclasses.asdict(state))
        return
    current, told = state.pointer, state.status
    rows = {"pushed": f"version {current.version} sha256 {current.sha256[:16]}…" if current else "nothing"}
    if told is None:
        rows["server"] = "has said nothing"
    else:
        serving = f"version {told.serving}" if told.serving else "the package's own weights"
        rows |= {"serving": serving, "server": f"{told.state} version {told.version} at {told.when}"}
        if told.message:
            rows["message"] = told.message
    console.show(console.pairs(f"weights of {name}/{state.version}", rows))
