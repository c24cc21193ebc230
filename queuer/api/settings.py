"""How the API server is set up. Without authentication it listens on loopback only, unless told."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from queuer.api.identity.oidc import OidcSettings
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.queue import ManagedBy

DEFAULT_PORT = 8787
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LEAST_STALE = 5
OPEN_FLAG = "--allow-unauthenticated-network"
DEFAULT_AUDIENCE = "queuer"


class Authentication(StrEnum):
    """How it is found out who asks."""

    NONE = "none"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`port` 0 = any free one.

    `allowed_hosts`: names accepted in the Host header beside the loopback ones, `*` = all.
    `kubeconfig`: the API server that knows tokens and rights, None = that of the cluster we run in.
    `url`: where browsers reach this server, "" = wherever they do. `oidc`: the provider where they log in, None = none.
    `audiences`: a token must be for one of them. `file_writers`: users whose writes come from files (`ManagedBy`).
    `open_network`: serve without authentication where others can connect.
    `max_body`: bytes of a request body. `refresh`: seconds between reloads of the page.
    `stale_after`: seconds of silence after which the controller counts as gone.
    """

    database_url: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    authentication: Authentication = Authentication.NONE
    kubeconfig: Path | None = None
    audiences: tuple[str, ...] = (DEFAULT_AUDIENCE,)
    file_writers: frozenset[str] = frozenset()
    url: str = ""
    oidc: OidcSettings | None = None
    open_network: bool = False
    max_body: int = 1024 * 1024
    refresh: int = 5
    stale_after: float = 30.0

    def __post_init__(self) -> None:
        open_to_all = self.authentication is Authentication.NONE
        if self.open_network and not open_to_all:
            raise InvalidInput(
                FieldProblem(
                    field=OPEN_FLAG,
                    message="is for QUEUER_AUTH=none only",
                    hint="leave it out: callers log in",
                )
            )
        if open_to_all and not self.open_network and not _is_loopback(self.host):
            raise InvalidInput(
                FieldProblem(
                    field="host",
                    message=f"{self.host} can be reached by others, and with QUEUER_AUTH=none nobody logs in",
                    hint=f"use 127.0.0.1; {OPEN_FLAG} lets everyone who reaches it change quota",
                )
            )

    @property
    def ways_in(self) -> list[str]:
        """How callers log in; none = nobody has to."""
        if self.authentication is Authentication.NONE:
            return []
        return ["token", "oidc"] if self.oidc else ["token"]

    def writer(self, user: str) -> ManagedBy:
        """Whose hand a user's writes are. CRs are written by the controller alone."""
        return ManagedBy.FILE if user in self.file_writers else ManagedBy.API

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], *, host: str = "127.0.0.1", open_network: bool = False
    ) -> ApiSettings:
        """From `QUEUER_*` and `KUBECONFIG`, as docs/rest.md lists them. Raises InvalidInput."""
        kubeconfig = environ.get("KUBECONFIG", "")
        url = _url(environ.get("QUEUER_URL", ""))
        return cls(
            database_url=_database_url(environ.get("QUEUER_DATABASE_URL", "")),
            host=host,
            port=_port(environ.get("QUEUER_PORT") or str(DEFAULT_PORT)),
            allowed_hosts=tuple(map(str.lower, _list(environ.get("QUEUER_ALLOWED_HOSTS", "")))),
            stale_after=_seconds(environ.get("QUEUER_CONTROLLER_STALE") or "30"),
            authentication=_authentication(environ.get("QUEUER_AUTH") or Authentication.KUBERNETES),
            kubeconfig=Path(kubeconfig).expanduser() if kubeconfig else None,
            audiences=_list(environ.get("QUEUER_TOKEN_AUDIENCES", "")) or (DEFAULT_AUDIENCE,),
            file_writers=frozenset(_list(environ.get("QUEUER_FILE_WRITERS", ""))),
            url=url,
            oidc=_oidc(environ, url),
            open_network=open_network,
        )


def _database_url(text: str) -> str:
    if text:
        return text
    hint = "export QUEUER_DATABASE_URL=postgresql://user:password@host:5432/database"
    raise InvalidInput(FieldProblem(field="QUEUER_DATABASE_URL", message="not set", hint=hint))


def _url(text: str) -> str:
    if text and urlsplit(text).scheme not in ("http", "https"):
        raise InvalidInput(
            FieldProblem(
                field="QUEUER_URL", message=f"{text!r} is no http address", hint="https://queuer.example"
            )
        )
    return text.rstrip("/")


def _oidc(environ: Mapping[str, str], url: str) -> OidcSettings | None:
    """The provider of `QUEUER_OIDC_*`. Defaults are those of kube-apiserver's flags."""
    said = {
        name: environ[variable]
        for name in OidcSettings.__dataclass_fields__
        if environ.get(variable := f"QUEUER_OIDC_{name.upper()}")
    }
    if not said:
        return None
    issuer, claim = said.get("issuer", ""), said.get("username_claim", "sub")
    problems = [
        FieldProblem(field=field, message="not set, and QUEUER_OIDC_* needs it")
        for field, value in (
            ("QUEUER_OIDC_ISSUER", issuer),
            ("QUEUER_OIDC_CLIENT_ID", said.get("client_id")),
            ("QUEUER_URL", url),
        )
        if not value
    ]
    parts = urlsplit(issuer)
    if issuer and parts.scheme != "https" and parts.hostname not in LOOPBACK_NAMES:
        problems.append(FieldProblem(field="QUEUER_OIDC_ISSUER", message=f"{issuer!r} is not https"))
    if problems:
        raise InvalidInput(*problems)
    prefix = said.get("username_prefix", "" if claim == "email" else f"{issuer}#")
    return OidcSettings(
        issuer=issuer,
        client_id=said["client_id"],
        redirect=f"{url}/login/callback",
        scopes=said.get("scopes", "openid email profile"),
        username_claim=claim,
        username_prefix="" if prefix == "-" else prefix,
        groups_claim=said.get("groups_claim", "groups"),
        groups_prefix=said.get("groups_prefix", ""),
        secret_file=Path(said["secret_file"]) if "secret_file" in said else None,
        ca_file=Path(said["ca_file"]) if "ca_file" in said else None,
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _authentication(text: str) -> Authentication:
    try:
        return Authentication(text)
    except ValueError:
        hint = f"one of {', '.join(Authentication)}"
        raise InvalidInput(
            FieldProblem(field="QUEUER_AUTH", message=f"{text!r} is not known", hint=hint)
        ) from None


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
