"""`queuer login`, `logout`, `whoami` and `open`: the caller and the server, and the server's dashboard.

A token is kept for one server, and sent to that one alone.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from queuer.cli import token as tokens
from queuer.cli.client import Client
from queuer.cli.failures import Misused
from queuer.cli.jobs import find
from queuer.cli.output import Printer, printed, say
from queuer.domain.queue import ROOT

_MAKE = "kubectl create token NAME -n NAMESPACE --audience queuer"
Server = Annotated[str | None, typer.Argument(help="Its address; default: QUEUER_API.")]


def login(server: Server = None) -> None:
    """Keep a token for a server: asked for on a terminal, else read from stdin. It must be valid now."""
    url = _server(server)
    found = _read(url).strip()
    given = tokens.checked(found, "what was given")
    if not given.token:
        raise Misused(given.missing or "no token was given", hint=f"make one: {_MAKE}")
    with Client(url, login=given) as client:
        name = client.get("/me")["name"]
    tokens.keep(url, given.token, os.environ)
    say(f"logged in to {url} as {name}")
    if url != _address(None):
        say(f"next: export QUEUER_API={url}")


def logout(server: Server = None) -> None:
    """Forget the token that is kept for a server."""
    url = _address(server)
    there = tokens.forget(url, os.environ)
    say(f"the token for {url} is forgotten" if there else f"no token is kept for {url}")


def _address(given: str | None) -> str:
    return (given or os.environ.get("QUEUER_API") or tokens.DEFAULT_API).rstrip("/")


def _server(given: str | None) -> str:
    """Where to log in. Raises CommandFailed where a token would travel open."""
    url = _address(given)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misused(f"{url!r} is no http address", hint="write https://HOST")
    if parts.scheme == "http" and parts.hostname not in tokens.LOOPBACK:
        text = "a token is not kept for a server that is reached by plain http"
        raise Misused(text, next=f"queuer login https://{parts.netloc}")
    return url


def _read(url: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read()
    say(f"paste a token for {url}; to make one: {_MAKE}")
    return str(typer.prompt("token", hide_input=True, err=True))


@printed
def whoami(*, out: Printer) -> None:
    """Show who you are to the server: name, groups, what you may read and change."""
    with Client.from_env() as client:
        me = client.get("/me")
    if out.answered(me, names=[me["name"]]):
        return
    reads = "all namespaces" if me["readsEverything"] else ", ".join(me["namespaces"])
    facts = {
        "name": me["name"],
        "groups": ", ".join(me["groups"]),
        "reads jobs of": reads,
        "holds jobs of": ", ".join(me["updates"]),
        "changes queues": ", ".join(me["administers"]),
        "reads also": ", ".join(what for what in ("cycles", "audit") if me[f"reads{what.title()}"]),
        "server": client.url,
    }
    for label, value in facts.items():
        out.line(f"{label:<16}{value or 'none'}")


def open_page(
    ref: Annotated[
        str | None, typer.Argument(help="A queue's path, a cycle's number, or a job; default: the overview.")
    ] = None,
    *,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Of the job.")] = None,
) -> None:
    """Print the address of a page, and open it where there is a desktop."""
    with Client.from_env() as client:
        url = client.url + page_of(client, ref, namespace)
    sys.stdout.write(f"{url}\n")
    if sys.stdout.isatty() and _desktop():
        import webbrowser

        webbrowser.open(url)


def page_of(client: Client, ref: str | None, namespace: str | None) -> str:
    """The path of the page. Raises CommandFailed where there is no such job."""
    if ref is None:
        return "/"
    if ref == ROOT or ref.startswith(f"{ROOT}."):
        return f"/queues/{quote(ref)}"
    if ref.isdecimal():
        return f"/cycles/{ref}"
    return f"/jobs/{find(client, ref, namespace)['uid']}"


def _desktop() -> bool:
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY")
    )
