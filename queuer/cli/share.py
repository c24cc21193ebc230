"""`queuer share`: the factors by which queues are compared, and who has what starved ones lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from queuer.cli.client import Client
from queuer.cli.names import queue_paths
from queuer.cli.output import Column, Printer, View, printed, say
from queuer.domain.queue import ROOT

Path = Annotated[str, typer.Argument(help="Queues below this one; default: all.", autocompletion=queue_paths)]


@printed
def share(path: Path = ROOT, *, out: Printer) -> None:
    """Show fair share: each queue's excess, capacity, weight and score; then who borrows what starved queues lack."""
    with Client.from_env() as client:
        found = client.get("/fair-share", root=path)
    out.listing(found, _VIEW, nothing=f"there is nothing to compare below {path} yet")
    if not out.for_people or not found["items"]:
        return
    say("score = excess / capacity / weight + past use; the least goes first among those that borrow")
    if found["pairs"]:
        rows = [(p["starved"], p["amount"], p["resource"], _borrower(p)) for p in found["pairs"]]
        out.line("")
        out.table(("STARVED", "LACKS", "RESOURCE", "BORROWED BY"), rows, right=("LACKS",))


def _borrower(pair: Mapping[str, Any]) -> str:
    return pair["borrower"] or "nobody: it is free in pieces that do not help, or lost"


def _now(title: str, key: str) -> Column:
    return Column(title=title, of=lambda queue: _figure(queue["now"][key]), right=True)


def _figure(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


_VIEW = View(
    name=lambda queue: queue["path"],
    columns=[
        Column(title="QUEUE", of=lambda queue: queue["path"]),
        Column(title="BY", of=lambda queue: queue["now"]["resource"]),
        _now("EXCESS", "excess"),
        _now("CAPACITY", "capacity"),
        _now("WEIGHT", "weight"),
        _now("SHARE", "share"),
        _now("PAST", "past"),
        _now("SCORE", "score"),
        Column(
            title="WITH ITS NEXT",
            of=lambda queue: _figure(queue["offered"]["score"]) if queue["offered"] else None,
            right=True,
        ),
        Column(title="ORDERED BY", of=lambda queue: queue["orderedBy"], wide=True),
        Column(title="NOTE", of=lambda queue: "entitled: goes first" if queue["entitled"] else ""),
    ],
)
