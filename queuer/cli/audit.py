"""`queuer audit`: who did what, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from queuer.cli.arguments import Namespace
from queuer.cli.client import Client
from queuer.cli.jobs import find
from queuer.cli.names import queue_paths
from queuer.cli.output import Column, Printer, View, printed, say


@printed
def audit(
    *,
    target: Annotated[
        str | None,
        typer.Option(help="A queue with all below it, a KIND/NAME, or a uid.", autocompletion=queue_paths),
    ] = None,
    namespace: Namespace = None,
    actor: Annotated[str | None, typer.Option(help="Only what this user did.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    out: Printer,
) -> None:
    """List who did what and why, newest first. For administrators of queues.

    Examples:

      queuer audit --target root.research --actor alice

      queuer audit --target job/llama-70b -n team-a
    """
    with Client.from_env() as client:
        about = find(client, target, namespace)["uid"] if target and "/" in target else target
        page = client.get("/audit", target=about, actor=actor, limit=str(limit))
    out.listing(page, _VIEW, nothing="no such deed is recorded")
    if page["next"] and out.for_people:
        say("there are older ones; narrow with --target, --actor, or raise --limit")


_VIEW = View(
    name=lambda entry: str(entry["id"]),
    columns=[
        Column("AT", lambda entry: entry["at"][:19].replace("T", " "), exact="at"),
        Column("ACTOR", "actor"),
        Column("ACTION", "action"),
        Column("WHAT", "text"),
        Column("REVISION", "revision", right=True),
        Column("ID", "id", right=True, wide=True),
        Column("SOURCE", "source", wide=True),
        Column("REASON", "reason"),
    ],
)
