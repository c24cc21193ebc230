"""`queuer open`: the dashboard's page of a job, a queue, a cycle, or of all."""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import quote

import typer

from queuer.cli.client import Client
from queuer.cli.jobs import find
from queuer.domain.queue import ROOT


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
