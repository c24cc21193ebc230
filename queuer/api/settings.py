"""How the API server is set up. Without authentication it listens on loopback only, unless told."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.queue import ManagedBy
from queuer.domain.variables import (
    DATABASE_URL,
    KUBECONFIG,
    NAMES,
    PORT,
    Variable,
    names,
    port,
    read,
    setting,
    variables_of,
)

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LEAST_STALE = 5
OPEN_FLAG = "--allow-unauthenticated-network"
_NAME = re.compile(r"[a-z0-9._-]+")
"""A host name or an IPv4 address, as browsers send it: others in punycode."""


class Authentication(StrEnum):
    """How it is found out who asks."""

    NONE = "none"
    KUBERNETES = "kubernetes"


def _authentication(text: str) -> Authentication:
    try:
        return Authentication(text)
    except ValueError:
        raise ValueError(f"{text!r} is not known") from None


def _hosts(text: str) -> tuple[str, ...]:
    """Names and addresses as the `Host` header has them before its port, in lower case."""
    return tuple(_host(name) for name in names(text.lower()))


def _host(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    if text == "*" or _NAME.fullmatch(text) or _is_ipv6(bare):
        return bare
    raise ValueError(f"{text!r} is no name without scheme, port and wildcard")


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _stale(text: str) -> float:
    if not (text.isascii() and text.isdigit() and int(text) >= LEAST_STALE):
        raise ValueError(f"{text!r} is no number of seconds above {LEAST_STALE - 1}")
    return float(text)


def _url(text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https"):
        raise ValueError(f"{text!r} is no http address")
    return text.rstrip("/")


def _issuer(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK_NAMES:
        raise ValueError(f"{text!r} is not https")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """A client of one provider; its variables are needed or none, those with a default excepted. `redirect`: where the
    provider sends the browser back to. `secret_file` None = a public client.
    """

    # fmt: off
    issuer: str = setting(Variable(
        name="QUEUER_OIDC_ISSUER", form="https address", parse=_issuer, meaning="The provider.",
    ))
    client_id: str = setting(Variable(name="QUEUER_OIDC_CLIENT_ID", form="text", meaning="Who we are there."))
    secret_file: Path | None = setting(Variable(
        name="QUEUER_OIDC_SECRET_FILE", form="file", parse=Path,
        meaning="Holds the client secret. Not set: a public client.",
    ), default=None)
    scopes: str = setting(Variable(
        name="QUEUER_OIDC_SCOPES", default="openid email profile", form="names, by blank",
        meaning="Some providers need one more for groups.",
    ))
    username_claim: str = setting(Variable(
        name="QUEUER_OIDC_USERNAME_CLAIM", default="sub", form="name",
        meaning="As `--oidc-username-claim` of kube-apiserver.",
    ))
    username_prefix: str = setting(Variable(
        name="QUEUER_OIDC_USERNAME_PREFIX", form="text; - = none",
        meaning="As `--oidc-username-prefix`. Not set: none for the claim `email`, else the issuer and `#`.",
    ), default="")
    groups_claim: str = setting(Variable(
        name="QUEUER_OIDC_GROUPS_CLAIM", default="groups", form="name", meaning="As `--oidc-groups-claim`."
    ))
    groups_prefix: str = setting(Variable(
        name="QUEUER_OIDC_GROUPS_PREFIX", form="text", meaning="As `--oidc-groups-prefix`."
    ), default="")
    ca_file: Path | None = setting(Variable(
        name="QUEUER_OIDC_CA_FILE", form="file", parse=Path,
        meaning="Whom to trust beside the system's authorities.",
    ), default=None)
    # fmt: on
    redirect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`oidc`: the provider where browsers log in, None = none. `open_network`: serve without authentication where
    others can connect. `max_body`: bytes of a request body.
    """

    # fmt: off
    database_url: str = setting(DATABASE_URL)
    port: int = setting(Variable(
        name="QUEUER_PORT", default="8787", form=PORT, parse=port,
        meaning="The port; the log names the one that was taken.",
    ))
    allowed_hosts: tuple[str, ...] = setting(Variable(
        name="QUEUER_ALLOWED_HOSTS", form="names without port, by comma; * = all", parse=_hosts,
        meaning="Names accepted in the `Host` header beside the loopback ones.",
    ), default=())
    stale_after: float = setting(Variable(
        name="QUEUER_CONTROLLER_STALE", default="30", parse=_stale,
        form=f"seconds, {LEAST_STALE} or more: the controller gives a sign of life each second",
        meaning="Silence after which the controller counts as gone.",
    ))
    authentication: Authentication = setting(Variable(
        name="QUEUER_AUTH", default=Authentication.KUBERNETES, form=f"one of {', '.join(Authentication)}",
        parse=_authentication,
        meaning="Who says who asks. With `none` nobody logs in, and the server listens on loopback only.",
    ))
    kubeconfig: Path | None = setting(KUBECONFIG, default=None)
    audiences: tuple[str, ...] = setting(Variable(
        name="QUEUER_TOKEN_AUDIENCES", default="queuer", form=NAMES, parse=names,
        meaning="A token must be for one of these.",
    ))
    file_writers: frozenset[str] = setting(Variable(
        name="QUEUER_FILE_WRITERS", form=NAMES, parse=lambda text: frozenset(names(text)),
        meaning="Users whose writes come from files in a repository.",
    ), default=frozenset())
    url: str = setting(Variable(
        name="QUEUER_URL", form="https://queuer.example", parse=_url,
        meaning="Where browsers reach this server, needed with TLS in front. Cookies are `Secure` unless this, else "
        "the address that is listened on, is plain http on loopback. "
        "A login provider sends them back to `QUEUER_URL/login/callback`.",
    ), default="")
    # fmt: on
    host: str = "127.0.0.1"
    oidc: OidcSettings | None = None
    open_network: bool = False
    max_body: int = 1024 * 1024

    def __post_init__(self) -> None:
        open_to_all = self.authentication is Authentication.NONE
        if self.open_network and not open_to_all:
            raise InvalidInput.at(
                OPEN_FLAG, "is for QUEUER_AUTH=none only", hint="leave it out: callers log in"
            )
        if open_to_all and not self.open_network and not _is_loopback(self.host):
            raise InvalidInput.at(
                "host",
                f"{self.host} can be reached by others, and with QUEUER_AUTH=none nobody logs in",
                hint=f"use 127.0.0.1; {OPEN_FLAG} lets everyone who reaches it change quota",
            )

    @property
    def ways_in(self) -> list[str]:
        """How callers log in; none = nobody has to."""
        if self.authentication is Authentication.NONE:
            return []
        return ["token", "oidc"] if self.oidc else ["token"]

    @property
    def secure_cookies(self) -> bool:
        """Whether cookies go over https only: unless our own address is plain http on loopback."""
        if not self.url:
            return not _is_loopback(self.host)
        own = urlsplit(self.url)
        return own.scheme == "https" or own.hostname not in LOOPBACK_NAMES

    def writer(self, user: str) -> ManagedBy:
        """The writer that a user's writes count for. CRs are written by the controller alone."""
        return ManagedBy.FILE if user in self.file_writers else ManagedBy.API

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str], *, host: str = "127.0.0.1", open_network: bool = False
    ) -> ApiSettings:
        """From `QUEUER_*` and `KUBECONFIG`, as `VARIABLES` and `OIDC` list them. Raises InvalidInput."""
        given = read(environ, VARIABLES)
        oidc = _oidc(environ, given.get("url", ""))
        return cls(host=host, open_network=open_network, oidc=oidc, **given)


VARIABLES, OIDC = variables_of(ApiSettings), variables_of(OidcSettings)
"""The variable of each field; `oidc` has several."""


def _oidc(environ: Mapping[str, str], url: str) -> OidcSettings | None:
    """The provider of `QUEUER_OIDC_*`. Defaults are those of kube-apiserver's flags."""
    if not any(environ.get(variable.name) for variable in OIDC.values()):
        return None
    given = read(environ, OIDC)
    needed = {
        "QUEUER_OIDC_ISSUER": "issuer" in given,
        "QUEUER_OIDC_CLIENT_ID": "client_id" in given,
        "QUEUER_URL": url,
    }
    if missing := [name for name, there in needed.items() if not there]:
        text = "not set, and QUEUER_OIDC_* needs it"
        raise InvalidInput(*(FieldProblem(field=name, message=text) for name in missing))
    prefix = given.pop("username_prefix", "" if given["username_claim"] == "email" else f"{given['issuer']}#")
    return OidcSettings(
        redirect=f"{url}/login/callback", username_prefix="" if prefix == "-" else prefix, **given
    )


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
        raise InvalidInput.at("host", f"{host!r} cannot be resolved: {error}") from error
