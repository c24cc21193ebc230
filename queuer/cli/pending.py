"""`queuer ahead` and `queuer queue pending`: who waits, in the order of the last cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from queuer.cli.arguments import Job, Namespace, QueuePath
from queuer.cli.client import Client, fetch
from queuer.cli.jobs import find, reference
from queuer.cli.output import Column, Printer, View, ago, asked, clean, moment, printed, say
from queuer.domain.quantity import add, devices, format_resources, parse_sum

Entry = Mapping[str, Any]
"""A waiting job by its name, or a run of jobs of other namespaces as one."""


@printed
def pending(
    path: QueuePath,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    out: Printer,
) -> None:
    """List who waits in a queue and below, in the order of the last cycle."""
    page = fetch(f"/queues/{path}/pending", limit=str(limit))
    out.listing(page, _view(page), nothing=f"nobody waits in {path}")
    if page["next"] and out.for_people:
        say(f"the first {limit} are shown; raise --limit")


@printed
def ahead(job: Job, *, namespace: Namespace = None, out: Printer) -> None:
    """Say how many come before a waiting job in its queue, and what they ask for.

    Jobs of namespaces that you may not read are counted, not named.
    """
    with Client.from_env() as client:
        found = find(client, job, namespace)
        page, place = _until(client, found)
    if not out.for_people:
        out.listing(page, _view(page))
        return
    if place is None:
        state = "deleted" if found["deleted"] else found["state"]
        out.line(f"{reference(found)} is {state}: it waits for nothing")
        return
    reason = place["workload"]["reason"]
    if place["rank"] is None and reason and reason["verdict"] == "CHANGE":
        out.line(f"{reference(found)} can never start as it is: {clean(reason['text'])}")
        return
    first = page["items"]
    gangs = sum(entry.get("gangs", 1) for entry in first)
    asks = f", asking for {devices(_sum(first))}" if first else ""
    rank = "has no rank yet" if place["rank"] is None else f"is number {place['rank']}"
    cycle = f"as of cycle {page['cycle']}" if page["cycle"] is not None else "before any cycle"
    out.line(f"{reference(found)} {rank} in {found['queue']}, {cycle}: {gangs} ahead{asks}")
    out.entries(_view(page), first)


def _until(client: Client, job: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any] | None]:
    """Those before a job as one page, and its own entry; None where it does not wait."""
    before: list[Entry] = []
    cursor: str | None = None
    while True:
        page = client.get(f"/queues/{job['queue']}/pending", limit="1000", cursor=cursor)
        for entry in page["items"]:
            if "workload" in entry and entry["workload"]["uid"] == job["uid"]:
                return {**page, "items": before, "next": None}, entry
            before.append(entry)
        cursor = page["next"]
        if cursor is None:
            return {**page, "items": []}, None


def _sum(entries: Iterable[Entry]) -> dict[str, str]:
    total: Mapping[str, int] = {}
    for entry in entries:
        amounts = _demand(entry).items()
        total = add(total, {name: parse_sum(text, resource=name) for name, text in amounts})
    return format_resources(total)


def _demand(entry: Entry) -> Mapping[str, str]:
    amounts: Mapping[str, str] = entry["workload"]["demand"] if "workload" in entry else entry["amounts"]
    return amounts


def _view(page: Any) -> View:
    """Jobs, and runs of others' jobs as one line each."""
    now = moment(page["asOf"])

    return View(
        name=lambda entry: (
            reference(entry["workload"]) if "workload" in entry else f"{entry['gangs']} others"
        ),
        columns=[
            Column("RANK", _rank, right=True),
            Column("JOB", _job),
            _own("NAMESPACE", "namespace"),
            _own("QUEUE", "queue"),
            _own("PRIO", "priority", right=True),
            Column("ASKS", lambda entry: asked(_demand(entry))),
            Column("WAITS", lambda entry: _waits(entry, now), right=True, exact="workload.submitted"),
            _own("USER", "user", wide=True),
            _own("UID", "uid", wide=True),
        ],
    )


def _own(title: str, key: str, *, right: bool = False, wide: bool = False) -> Column:
    """A column that only jobs by name have."""

    def cell(entry: Entry) -> object:
        return entry["workload"][key] if "workload" in entry else "-"

    return Column(title, cell, right=right, wide=wide)


def _rank(entry: Entry) -> object:
    if "workload" in entry:
        return entry["rank"]
    return entry["first"] if entry["first"] == entry["last"] else f"{entry['first']}-{entry['last']}"


def _job(entry: Entry) -> str:
    return reference(entry["workload"]) if "workload" in entry else f"({entry['gangs']} of other namespaces)"


def _waits(entry: Entry, now: datetime) -> str:
    return ago(entry["workload"]["submitted"], now) if "workload" in entry else "-"
