"""The server's command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from aoti_pack.errors import UserError
from aoti_pack.server.ports import Ports

# What TritonServer itself decides and relies on: a second value would make its addresses or clean-up wrong.
_OWN_FLAGS = {
    "--id": "it names the server to its own readiness check",
    "--model-repository": "give it as the repository",
    "--model-store": "give the path as the repository",
    "--http-port": "give it as the HTTP port",
    "--grpc-port": "give it as the gRPC port",
    "--metrics-port": "give it as the metrics port",
    "--http-address": "give it as the host",
    "--grpc-address": "give it as the host",
    "--metrics-address": "give it as the host",
    "--backend-directory": "give it as the backend directory",
    "--allow-http": "readiness is asked over HTTP",
    "--allow-metrics": "readiness includes the metrics service",
    "--exit-timeout-secs": "give it as the grace time",
    "--log-file": "the log is read to explain failures; give it as the log",
}


def server_command(
    program: Path,
    repository: Path,
    *,
    server_id: str,
    host: str,
    ports: Ports,
    backends: Path | None,
    shm_prefix: str,
    exit_timeout_s: float,
    flags: Sequence[str] = (),
) -> list[str]:
    """The arguments, program first. `flags` come last, so that they win over the defaults.

    Raises `UserError` for a flag that has its own parameter here.
    """
    for flag in flags:
        name = flag.split("=")[0]
        if name in _OWN_FLAGS:
            raise UserError(f"{name} cannot be passed through to the server", mend=_OWN_FLAGS[name])
    own = [
        f"--id={server_id}",
        f"--model-repository={repository}",
        *(f"{flag}={port}" for flag, port in ports.flags().items()),
        *(f"--{service}-address={host}" for service in ("http", "grpc", "metrics")),
        *([f"--backend-directory={backends}"] if backends else []),
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        "--model-control-mode=none",
        "--strict-readiness=true",
        "--exit-on-error=true",
        f"--exit-timeout-secs={math.ceil(exit_timeout_s)}",
    ]
    return [str(program), *own, *flags]
