"""`queuer queue history`: what a queue used and waited for over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from queuer.cli.arguments import QueuePath
from queuer.cli.client import Client
from queuer.cli.output import Column, Printer, View, age, printed, say

_AMOUNTS = ("used", "guaranteed", "borrowed", "lent", "pending")


@printed
def history(
    path: QueuePath,
    *,
    since: Annotated[str | None, typer.Option(help="From when, RFC 3339; default: a day ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Until when; default: now.")] = None,
    step: Annotated[str | None, typer.Option(help="One line for each, e.g. 5m or 1h.")] = None,
    resource: Annotated[str | None, typer.Option(help="Show this resource; default: the first.")] = None,
    out: Printer,
) -> None:
    """Show what a queue with all below it used and waited for, step by step."""
    with Client.from_env() as client:
        found = client.get(f"/queues/{path}/history", since=since, until=until, step=step)
    named = resource or _first(found["points"])
    out.listing(found, _view(named), nothing="nothing is recorded for this time")
    if out.for_people and found["points"]:
        waits = found["waits"]
        half = "" if waits["p50Seconds"] is None else f"; half within {age(waits['p50Seconds'])}"
        most = "" if waits["p90Seconds"] is None else f", nine tenths within {age(waits['p90Seconds'])}"
        say(f"{named or 'no resource'}; {waits['started']} started{half}{most}")


def _first(points: list[Any]) -> str | None:
    """A device where there is one."""
    names = sorted({row["resource"] for point in points for row in point["accounts"]})
    return next((name for name in names if "/" in name), names[0] if names else None)


def _view(resource: str | None) -> View:
    def amount(point: Mapping[str, Any], key: str) -> str:
        rows = (a for a in point["accounts"] if a["resource"] == resource and a["flavor"] is None)
        return next((row[key] for row in rows), "-")

    def column(key: str) -> Column:
        return Column(title=key.upper(), of=lambda point: amount(point, key), right=True)

    return View(
        items="points",
        name=lambda point: point["at"],
        columns=[
            Column(title="AT", of=lambda point: point["at"]),
            *map(column, _AMOUNTS),
            Column(title="WAITING", of=lambda point: point["pendingWorkloads"], right=True),
            Column(title="ADMITTED", of=lambda point: point["admittedWorkloads"], right=True),
        ],
    )
