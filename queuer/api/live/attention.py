"""Matters that need somebody, each with its cause: entries of the overview, and those about queues."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from queuer.api.models import Instant, Model, instant
from queuer.domain.quantity import amount_text
from queuer.domain.queue import QueueState
from queuer.domain.reasons import closed_queue, over_limit_of
from queuer.store.origins import Origins, over_limit
from queuer.store.usage import QueueView, TreeView


class Attention(StrEnum):
    """Matters that need somebody, the gravest first."""

    CONTROLLER_STALE = "controllerStale"
    STARVED = "starved"
    OVER_LIMIT = "overLimit"
    OUTSIDE = "outside"
    ESCALATED = "escalated"
    STUCK = "stuck"
    EVICTIONS = "evictions"
    CLOSED = "closed"
    NODES_OUT = "nodesOut"
    UNMANAGED = "unmanaged"
    UNSTARTABLE = "unstartable"


class Severity(StrEnum):
    """How grave it is."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


GRAVEST = tuple(Attention)
_SEVERITY = {
    Attention.CONTROLLER_STALE: Severity.CRITICAL,
    Attention.CLOSED: Severity.INFO,
    Attention.UNSTARTABLE: Severity.INFO,
}


class AttentionItem(Model):
    """One thing that needs somebody. `ref`: the queue that it is about; `yours`: of `count` jobs those that the caller
    may list, where it is known.
    """

    kind: Attention
    severity: Severity
    ref: str | None
    since: Instant | None
    count: int
    yours: int | None = None
    text: str


def item(
    kind: Attention,
    text: str,
    *,
    ref: str | None = None,
    since: float | None = None,
    count: int = 1,
    yours: int | None = None,
    severity: Severity | None = None,
) -> AttentionItem:
    """An entry; `severity`: None = that of its kind."""
    return AttentionItem(
        kind=kind,
        severity=severity or _SEVERITY.get(kind, Severity.WARNING),
        ref=ref,
        since=None if since is None else instant(since),
        count=count,
        yours=yours,
        text=text,
    )


def of_queues(view: TreeView, origins: Origins) -> list[AttentionItem]:
    """Queues that are starved, over a limit, or closed themselves: an entry a queue and kind, the gravest first."""
    found = [
        entry
        for queue in view.queues.values()
        for made in (_starved(queue), _over(queue, origins), _closed(queue, origins))
        for entry in made
    ]
    return sorted(found, key=lambda entry: (GRAVEST.index(entry.kind), entry.ref or ""))


def _starved(found: QueueView) -> Iterator[AttentionItem]:
    lacks = [amount_text(amounts.starved, amounts.resource) for amounts in found.amounts if amounts.starved]
    if lacks:
        path = found.queue.path
        text = f"{path} is starved of {', '.join(lacks)}: it is guaranteed that, and others borrow it"
        yield item(Attention.STARVED, text, ref=path, since=found.starved_since)


def _over(found: QueueView, origins: Origins) -> Iterator[AttentionItem]:
    path, over, cuts = found.queue.path, [], []
    for amounts in found.amounts:
        if more := over_limit(amounts):
            over.append(amount_text(more, amounts.resource))
            cuts.append(origins.cut.get((path, (amounts.flavor, amounts.resource))))
    if over:
        cut = max((made for made in cuts if made is not None), key=lambda made: made.at, default=None)
        by, why = ("", "") if cut is None else (cut.actor, cut.reason)
        text = over_limit_of(path, ", ".join(over), by=by, why=why)
        yield item(Attention.OVER_LIMIT, text, ref=path, since=None if cut is None else cut.at)


def _closed(found: QueueView, origins: Origins) -> Iterator[AttentionItem]:
    queue = found.queue
    if queue.state is not QueueState.OPEN:
        made = origins.closed.get(queue.path)
        by, why = ("", "") if made is None else (made.actor, made.reason)
        text = closed_queue(queue.path, queue.state, by=by, why=why, jobs=found.waiting + found.held)
        since = None if made is None else made.at
        yield item(Attention.CLOSED, text, ref=queue.path, since=since, count=found.waiting + found.held)
