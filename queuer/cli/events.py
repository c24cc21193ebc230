"""`queuer events` and `queuer audit`: what happened to jobs and queues, and who did what and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from queuer.cli.arguments import InQueue, Namespace, Watch
from queuer.cli.client import Client
from queuer.cli.completion import job_names, queue_paths
from queuer.cli.jobs import check_namespace, find, full_reference, looks, refuse_documents
from queuer.cli.output import Column, Printer, View, printed, say


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
        asked = {"queue": queue, "uid": uid, "namespace": namespace, "type": type, "limit": str(limit)}
        page = client.get("/events", **asked)
        if namespace and not page["items"]:
            check_namespace(client, namespace)
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


def _why(event: Mapping[str, Any]) -> str:
    """The user or the cycle that it comes from."""
    data = event["data"]
    return data.get("by") or (f"cycle {data['cycle']}" if data.get("cycle") is not None else "")


_AT = Column("AT", lambda entry: entry["at"][:19].replace("T", " "), exact="at")
_VIEW = View(
    name=lambda event: str(event["id"]),
    columns=[
        _AT,
        Column("TYPE", "type"),
        Column("QUEUE", "queue"),
        Column("JOB", lambda event: full_reference(event["job"]) if event["job"] else ""),
        Column("BY", _why),
        Column("ID", "id", right=True, wide=True),
        Column("UID", "uid", wide=True),
        Column("WHAT", "text"),
    ],
)


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
        page = client.get("/audit", target=about, namespace=namespace, actor=actor, limit=str(limit))
        if namespace and not page["items"]:
            check_namespace(client, namespace)
    out.listing(page, _DEEDS, nothing="no such deed is recorded")
    if page["next"] and out.for_people:
        say("there are older ones; narrow with --target, --actor, or raise --limit")


def _deed(entry: Mapping[str, Any]) -> str:
    """What was done and why, in one column: the last one alone may wrap."""
    return f"{entry['text']} ({entry['reason']})" if entry["reason"] else str(entry["text"])


_DEEDS = View(
    name=lambda entry: str(entry["id"]),
    columns=[
        _AT,
        Column("ACTOR", "actor"),
        Column("ACTION", "action"),
        Column("REVISION", "revision", right=True),
        Column("ID", "id", right=True, wide=True),
        Column("SOURCE", "source", wide=True),
        Column("REASON", "reason", wide=True),
        Column("WHAT", _deed, exact="text"),
    ],
)
