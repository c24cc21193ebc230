"""`queuer ahead` and `queuer queue pending`: who waits, in the order of the last cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from queuer.cli.arguments import Job, Namespace, QueuePath
from queuer.cli.client import Client
from queuer.cli.jobs import find, moment, reference
from queuer.cli.output import Column, Printer, View, age, clean, printed, say
from queuer.domain.figures import devices
from queuer.domain.quantity import add, format_resources, parse_quantity


@printed
def pending(
    path: QueuePath,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    out: Printer,
) -> None:
    """List who waits in a queue and below, in the order of the last cycle."""
    with Client.from_env() as client:
        page = client.get(f"/queues/{path}/pending", limit=str(limit))
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
        out.line(f"{reference(found)} is {found['state']}: it waits for nothing")
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
    before: list[Mapping[str, Any]] = []
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


def _sum(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    total: Mapping[str, int] = {}
    for entry in entries:
        amounts = entry["workload"]["demand"] if "workload" in entry else entry["amounts"]
        total = add(total, {name: parse_quantity(text, resource=name) for name, text in amounts.items()})
    return format_resources(total)


def _view(page: Any) -> View:
    """Jobs, and runs of others' jobs as one line each."""
    now = moment(page["asOf"])

    def own(entry: Mapping[str, Any], key: str) -> object:
        return entry["workload"][key] if "workload" in entry else "-"

    return View(
        name=lambda entry: (
            reference(entry["workload"]) if "workload" in entry else f"{entry['gangs']} others"
        ),
        columns=[
            Column(title="RANK", of=_rank, right=True),
            Column(title="JOB", of=_job),
            Column(title="NAMESPACE", of=lambda entry: own(entry, "namespace")),
            Column(title="QUEUE", of=lambda entry: own(entry, "queue")),
            Column(title="PRIO", of=lambda entry: own(entry, "priority"), right=True),
            Column(title="ASKS", of=_asks),
            Column(
                title="WAITS",
                of=lambda entry: _waits(entry, now),
                right=True,
                exact=("submitted", _submitted),
            ),
            Column(title="USER", of=lambda entry: own(entry, "user"), wide=True),
            Column(title="UID", of=lambda entry: own(entry, "uid"), wide=True),
        ],
    )


def _rank(entry: Mapping[str, Any]) -> object:
    if "workload" in entry:
        return entry["rank"]
    return entry["first"] if entry["first"] == entry["last"] else f"{entry['first']}-{entry['last']}"


def _job(entry: Mapping[str, Any]) -> str:
    if "workload" in entry:
        return reference(entry["workload"])
    return f"({entry['gangs']} of other namespaces)"


def _asks(entry: Mapping[str, Any]) -> str:
    return devices(entry["workload"]["demand"] if "workload" in entry else entry["amounts"])


def _submitted(entry: Mapping[str, Any]) -> str:
    submitted: str = entry["workload"]["submitted"] if "workload" in entry else ""
    return submitted


def _waits(entry: Mapping[str, Any], now: datetime) -> str:
    submitted = _submitted(entry)
    return age((now - moment(submitted)).total_seconds()) if submitted else "-"
