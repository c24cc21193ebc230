"""`queuer events`: what happened to jobs and queues, newest first, or as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from queuer.cli.arguments import InQueue, Namespace, Watch
from queuer.cli.client import Client
from queuer.cli.jobs import find, looks, reference, refuse_documents
from queuer.cli.names import job_names
from queuer.cli.output import Column, Printer, View, printed


@printed
def events(
    job: Annotated[
        str | None, typer.Argument(help="Only of this job: NAME or KIND/NAME.", autocompletion=job_names)
    ] = None,
    *,
    namespace: Namespace = None,
    queue: InQueue = None,
    type: Annotated[
        str | None, typer.Option(help="Only of this type, or its first word: workload, queue.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    watch: Watch = False,
    out: Printer,
) -> None:
    """List what happened, newest first; with -w in the order in which it happens.

    Examples:

      queuer events -w -q root.research

      queuer events job/llama-70b -n team-a
    """
    if watch:
        refuse_documents(out)
    with Client.from_env() as client:
        uid = find(client, job, namespace)["uid"] if job else None
        asked = {"queue": queue, "uid": uid, "type": type, "limit": str(limit)}
        page = client.get("/events", **asked)
        if not watch:
            out.listing(page, _VIEW, nothing="nothing has happened")
            return
        out.entries(_VIEW, page["items"][::-1])
        after = page["seq"]
        client.persist()
        for _ in looks():
            after = _news(client, asked, after, out)


def _news(client: Client, asked: Mapping[str, str | None], after: int, out: Printer) -> int:
    """Print what is new, and say from where to go on."""
    while True:
        page = client.get("/events", **asked, after=str(after))
        out.entries(_VIEW, page["items"], headers=False)
        if page["next"] is None:
            return max(after, int(page["seq"]))
        after = page["next"]


def _job(event: Mapping[str, Any]) -> str:
    """As other verbs call it, with its namespace."""
    job = event["job"]
    return f"{reference(job)} -n {job['namespace']}" if job else ""


def _why(event: Mapping[str, Any]) -> str:
    """The user or the cycle that it comes from."""
    data = event["data"]
    return data.get("by") or (f"cycle {data['cycle']}" if data.get("cycle") is not None else "")


_VIEW = View(
    name=lambda event: str(event["id"]),
    columns=[
        Column("AT", lambda event: event["at"][:19].replace("T", " "), exact="at"),
        Column("TYPE", "type"),
        Column("QUEUE", "queue"),
        Column("JOB", _job),
        Column("BY", _why),
        Column("ID", "id", right=True, wide=True),
        Column("UID", "uid", wide=True),
        Column("WHAT", "text"),
    ],
)
