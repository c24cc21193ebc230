"""`queuer login` and `logout`: a token kept for one server, and sent to that one alone."""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from queuer.cli import token as tokens
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.output import say

_MAKE = "kubectl create token NAME -n NAMESPACE --audience queuer"


def login(
    server: Annotated[str | None, typer.Argument(help="Its address; default: QUEUER_API.")] = None,
) -> None:
    """Keep a token for a server: asked for on a terminal, else read from stdin. It must be valid now."""
    url = _server(server)
    found = _read(url).strip()
    given = tokens.checked(found, "what was given")
    if not given.token:
        raise CommandFailed(
            given.missing or "no token was given", hint=f"make one: {_MAKE}", exit_code=Exit.USAGE
        )
    with Client(url, login=given) as client:
        name = client.get("/me")["name"]
    tokens.keep(url, given.token, os.environ)
    say(f"logged in to {url} as {name}")
    if url != os.environ.get("QUEUER_API", tokens.DEFAULT_API).rstrip("/"):
        say(f"next: export QUEUER_API={url}")


def logout(
    server: Annotated[str | None, typer.Argument(help="Its address; default: QUEUER_API.")] = None,
) -> None:
    """Forget the token that is kept for a server."""
    url = (server or os.environ.get("QUEUER_API") or tokens.DEFAULT_API).rstrip("/")
    there = tokens.forget(url, os.environ)
    say(f"the token for {url} is forgotten" if there else f"no token is kept for {url}")


def _server(given: str | None) -> str:
    """Where to log in. Raises CommandFailed where a token would travel open."""
    url = (given or os.environ.get("QUEUER_API") or tokens.DEFAULT_API).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandFailed(f"{url!r} is no http address", hint="https://HOST", exit_code=Exit.USAGE)
    if parts.scheme == "http" and parts.hostname not in tokens.LOOPBACK:
        raise CommandFailed(
            "a token is not kept for a server that is reached by plain http",
            hint=f"queuer login https://{parts.netloc}",
            exit_code=Exit.USAGE,
        )
    return url


def _read(url: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read()
    say(f"paste a token for {url}; to make one: {_MAKE}")
    return str(typer.prompt("token", hide_input=True, err=True))
