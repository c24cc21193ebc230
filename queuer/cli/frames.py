"""What `queuer top` shows: one frame made of an overview and the list of queues, as REST answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.text import Text

from queuer.cli.output import age, styled, table
from queuer.cli.queues import account_of, bar, drawn, main_resource

Answer = Mapping[str, Any]
_STATES = ("Queued", "Held", "Admitted", "Placing", "Running", "Evicting")
_MOST_ATTENTION = 5
_AROUND = 9
"""Lines beside those of queues and of what needs somebody."""


def frame(overview: Answer, queues: Sequence[Answer], *, now: datetime, stale: str, height: int) -> Group:
    """The frame, `height` lines at most. `stale`: why it is old, "" where it is not; then it is grey."""
    resource = main_resource(queues)
    attention = overview["attention"][:_MOST_ATTENTION]
    room = max(1, height - _AROUND - len(attention))
    parts = [_head(overview, now, stale), _counts(overview), *_capacity(overview, resource), Text()]
    parts += [Text(f"! {styled(item['text']).plain}", style="yellow") for item in attention]
    parts += [_queues(queues[:room], resource, now), *_cut(queues[room:]), Text("q quits", style="dim")]
    if stale:
        for part in parts[1:]:
            part.style = "dim"
    return Group(*parts)


def _head(overview: Answer, now: datetime, stale: str) -> Text:
    text = Text(f"Queuer  {styled(overview['controller']['text']).plain}", style="bold")
    if cycle := overview["cycle"]:
        ago = age((now - datetime.fromisoformat(cycle["finished"])).total_seconds())
        text.append(f"  cycle {cycle['id']} {cycle['status']}, {ago} ago", style="not bold")
    if stale:
        seen = age((now - datetime.fromisoformat(overview["asOf"])).total_seconds())
        text.append(f"  STALE: as of {seen} ago: {styled(stale).plain}", style="bold red")
    return text


def _counts(overview: Answer) -> Text:
    counts = overview["counts"]
    said = [f"{counts.get(state, 0)} {state}" for state in _STATES if counts.get(state)]
    return Text("Jobs    " + (", ".join(said) or "none"))


def _capacity(overview: Answer, resource: str | None) -> list[Text]:
    rows = [row for row in overview["capacity"] if row["resource"] == resource] or overview["capacity"][:1]
    return [
        Text(f"Room    {row['used']} used, {row['free']} free of {row['allocatable']} {row['resource']}")
        for row in rows
    ]


def _queues(queues: Sequence[Answer], resource: str | None, now: datetime) -> Any:
    columns = ("QUEUE", "USED/GUAR", "PENDING", "JOBS", "OLDEST", "BAR")
    return table(columns, [_row(*each, resource, now) for each in drawn(queues)], right=columns[1:5])


def _row(label: str, queue: Answer, resource: str | None, now: datetime) -> Sequence[object]:
    account = None if resource is None else account_of(queue, resource, None)
    since = queue["oldestPending"]
    oldest = age((now - datetime.fromisoformat(since)).total_seconds()) if since else "-"
    if account is None:
        return label, "-", "-", queue["pendingWorkloads"], oldest, ""
    starved = " !" if account["starved"] else ""
    used = f"{account['used']}/{account['guaranteed']}"
    return label, used, f"{account['pending']}{starved}", queue["pendingWorkloads"], oldest, bar(account)


def _cut(left_out: Sequence[Answer]) -> list[Text]:
    return [Text(f"… {len(left_out)} more queues: queuer queue tree")] if left_out else []
