"""How the API server is set up. It has no authentication yet, so it listens on loopback unless told."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from queuer.domain.errors import FieldProblem, InvalidInput

DEFAULT_PORT = 8787
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LEAST_STALE = 5
OPEN_FLAG = "--allow-unauthenticated-network"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`port` 0 = any free one.

    `allowed_hosts`: names accepted in the Host header beside the loopback ones, `*` = all. `open_network`:
    serve without authentication where others can connect. `max_body`: bytes of a request body. `refresh`:
    seconds between reloads of the page. `stale_after`: of silence, after which the controller
    counts as gone.
    """

    database_url: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    open_network: bool = False
    max_body: int = 1024 * 1024
    refresh: int = 5
    stale_after: float = 30.0

    def __post_init__(self) -> None:
        if not self.open_network and not _is_loopback(self.host):
            raise InvalidInput(
                FieldProblem(
                    field="host",
                    message=f"{self.host} can be reached by others, and this API has no authentication",
                    hint=f"use 127.0.0.1; {OPEN_FLAG} lets everyone who reaches it change quota",
                )
            )

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], *, host: str = "127.0.0.1", open_network: bool = False
    ) -> ApiSettings:
        """From `QUEUER_DATABASE_URL`, `QUEUER_PORT`, `QUEUER_ALLOWED_HOSTS` (a,b),
        `QUEUER_CONTROLLER_STALE` (seconds). Raises InvalidInput.
        """
        hosts = environ.get("QUEUER_ALLOWED_HOSTS", "")
        return cls(
            database_url=_database_url(environ.get("QUEUER_DATABASE_URL", "")),
            host=host,
            port=_port(environ.get("QUEUER_PORT") or str(DEFAULT_PORT)),
            allowed_hosts=tuple(name.strip().lower() for name in hosts.split(",") if name.strip()),
            stale_after=_seconds(environ.get("QUEUER_CONTROLLER_STALE") or "30"),
            open_network=open_network,
        )


def _database_url(text: str) -> str:
    if text:
        return text
    hint = "export QUEUER_DATABASE_URL=postgresql://user:password@host:5432/database"
    raise InvalidInput(FieldProblem(field="QUEUER_DATABASE_URL", message="not set", hint=hint))


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 65536:
        return int(text)
    raise InvalidInput(
        FieldProblem(field="QUEUER_PORT", message=f"{text!r} is not a port", hint="0 to 65535, 0 = any")
    )


def _seconds(text: str) -> float:
    if text.isascii() and text.isdigit() and int(text) >= LEAST_STALE:
        return float(text)
    problem = f"{text!r} is no number of seconds"
    hint = f"{LEAST_STALE} or more: the controller gives a sign of life each second"
    raise InvalidInput(FieldProblem(field="QUEUER_CONTROLLER_STALE", message=problem, hint=hint))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        pass  # a name
    try:
        return all(
            ipaddress.ip_address(str(info[4][0])).is_loopback for info in socket.getaddrinfo(host, None)
        )
    except OSError as error:
        raise InvalidInput(
            FieldProblem(field="host", message=f"{host!r} cannot be resolved: {error}")
        ) from error
