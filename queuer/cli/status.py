"""`queuer status`: is something admitted, who needs somebody, where is room, what do jobs wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from queuer.cli.client import Client
from queuer.cli.output import (
    Column,
    Printer,
    ago,
    amount_column,
    clean,
    decided,
    moment,
    printed,
    say,
    styled,
)
from queuer.cli.why import reasons

_CAPACITY = [
    Column("RESOURCE", "resource"),
    *(amount_column(key) for key in ("used", "outside", "reserved", "free", "allocatable")),
]


@printed
def status(*, out: Printer) -> None:
    """Show the cluster on one screen: controller, capacity, what needs somebody, why jobs wait."""
    with Client.from_env(quiet=out.for_people) as client:  # its first line says how the controller is
        found = client.get("/overview")
    if out.answered(found, names=(item["ref"] or item["kind"] for item in found["attention"])):
        return
    now = moment(found["asOf"])
    for label, text in _facts(found, now):
        out.line(styled(f"{label:<12}{clean(text)}"))
    if found["capacity"]:
        out.line("")
        out.table(_CAPACITY, found["capacity"])
        say("OUTSIDE: by pods that no queue pays for. RESERVED: held for jobs that wait, see `queuer topo`.")
        say("FREE: the rest, but for nodes out of use")
    if found["reasons"]:
        out.line("")
        out.entries(reasons(now), found["reasons"])


def _facts(found: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    leader, kept = found["controller"], found["cycle"]
    last = decided(leader["cycle"], leader["cycleAgeSeconds"], kept and kept["id"])
    yield "controller", "; ".join(filter(None, (leader["text"], last)))
    counts = ", ".join(f"{count} {state}" for state, count in found["counts"].items() if count)
    yield "jobs", f"{counts or 'none'}; {found['queues']} queues"
    if found["oldestPending"]:
        yield "oldest", f"has waited for {ago(found['oldestPending'], now)}"
    for item in found["attention"]:
        since = f" (for {ago(item['since'], now)})" if item["since"] else ""
        yield item["severity"], f"{item['text']}{since}"
    left_out = found["attentionTotal"] - len(found["attention"])
    if left_out:
        yield "", f"and {left_out} more"
    if not found["attention"]:
        yield "attention", "nothing needs you"
