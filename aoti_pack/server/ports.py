"""Ports for a server to listen on."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from aoti_pack.errors import UserError


@dataclass(frozen=True)
class Ports:
    """The ports of the three services; None means "any free one"."""

    http: int | None = None
    grpc: int | None = None
    metrics: int | None = None

    def flags(self) -> dict[str, int | None]:
        """Each port under the name of its flag."""
        return {"--http-port": self.http, "--grpc-port": self.grpc, "--metrics-port": self.metrics}

    def any_free(self) -> bool:
        """Whether at least one port is ours to choose."""
        return None in self.flags().values()


def check_ports(host: str, ports: Ports) -> None:
    """Raise `UserError` if a port that was asked for is out of range, taken, or named twice."""
    named: dict[int, str] = {}
    for flag, port in ports.flags().items():
        if port is None:
            continue
        if not 1 <= port <= 65535:
            raise UserError(f"{flag} {port} is not a port", mend="give a number from 1 to 65535")
        if port in named:
            raise UserError(f"{flag} and {named[port]} are both {port}", mend="give each its own port")
        named[port] = flag
        try:
            _bound(host, port).close()
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port} ({flag}): {error.strerror}",
                mend=f"stop what uses the port, or give another {flag}",
            ) from error


def choose_ports(host: str, ports: Ports) -> Ports:
    """Fill in free ports. All are held at once while choosing, so they differ.

    Between this and the server's own bind another program may take one: the caller starts again then.
    """
    with ExitStack() as held:
        for port in ports.flags().values():
            if port is not None:
                held.enter_context(_bound(host, port))

        def fill(port: int | None) -> int:
            return port or int(held.enter_context(_bound(host, 0)).getsockname()[1])

        return Ports(fill(ports.http), fill(ports.grpc), fill(ports.metrics))


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As the server does, so that a port in TIME_WAIT counts as free.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
