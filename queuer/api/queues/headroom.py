"""How much one job of a queue may start now, and what keeps it from more: on the newest stored cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from queuer.api.latest_cycle import CycleAnswer
from queuer.api.models import instant
from queuer.api.queues import models
from queuer.domain.fields import format_duration
from queuer.domain.per_user import Share
from queuer.domain.quantity import amounts_text, format_quantity, readable, short
from queuer.domain.queue import Access, QueueState
from queuer.solver.ask import HeadroomTable
from queuer.solver.headroom import Bound, Cap, Headroom

NAMED = 3
"""Borrowing queues that the sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """The user of the job. `groups`: None = not known."""

    user: str
    groups: tuple[str, ...] | None


def headroom_of(found: CycleAnswer[HeadroomTable | None], path: str, who: Who) -> models.Headroom | None:
    """The answer for a queue; None where the cycle did not know it."""
    table = found.value
    if table is None:
        return None
    rows = [_row(row, resource, leaf=table.leaf) for row in table.rows for resource in row.own]
    say = _sentence if table.leaf else _sentence_below
    text = [say(path, row) for row in rows] or [f"{path} allows no flavor that has a node."]
    if not table.leaf:
        text.insert(0, f"{path} takes no jobs itself: they go to the leaves below it.")
    elif not rows and table.state is not QueueState.OPEN:
        text = [f"{path} is {table.state}: nothing new starts there."]
    text += _asked_of_jobs(table.access, who) if table.leaf else ()
    return models.Headroom(
        queue=path, text=" ".join(text), rows=rows, cycle=found.cycle, as_of=instant(found.at)
    )


def _asked_of_jobs(access: Access, who: Who) -> Iterator[str]:
    """Limits on a job beside its size."""
    if who.groups is not None and not access.admits(who.user, who.groups):
        yield f"{who.user} is not among those who may use it."
    if access.max_runtime is not None:
        yield f"Jobs must promise to end within {format_duration(access.max_runtime)} (maxRuntime)."


def _row(found: Headroom, resource: str, *, leaf: bool) -> models.HeadroomRow:
    guaranteed, used = found.own[resource]
    may, unused = found.pods * found.requests[resource], max(0, guaranteed - used)
    return models.HeadroomRow.from_record(
        found,
        resource=resource,
        pod=found.requests,
        guaranteed=guaranteed,
        used=used,
        own=unused,
        borrowable=max(0, may - unused),
        free=found.free[resource],
        rooms=[
            *(
                _room(bound, resource, flavor=bound.account[0])
                for bound in found.bounds
                if bound.account[1] == resource
            ),
            *(
                _room(share, resource, flavor=None, live=False, per_user=True)
                for share in found.shares
                if share.resource == resource
            ),
        ],
        pods=found.pods if leaf else None,
        may_start_now=may if leaf else None,
        below=None if leaf else may,
        capped_by=found.cap,
        largest_gang=found.levels,
        reclaimable=found.reclaimable * found.requests[resource],
        reclaimed_from=found.borrowers,
    )


def _room(found: Bound | Share, resource: str, **more: Any) -> models.Room:
    texts = {name: format_quantity(getattr(found, name), resource=resource) for name in ("limit", "room")}
    return models.Room.from_record(found, **texts, **more)


_WHY = {
    Cap.LIMIT: "the limit of {} is the cap",
    Cap.PER_USER: "what one user may have in {} (perUser) is the cap",
    Cap.HELD: "{} is held: nothing new starts there",
    Cap.DRAINING: "{} is draining: nothing new starts there",
    Cap.CAPACITY: "free capacity is the cap",
    Cap.LINE: "its order is strict, and others wait there already",
    Cap.PLACEMENT: "more is unused, but reserved or not where one job could use it now",
}


def _sentence(path: str, row: models.HeadroomRow) -> str:
    borrows = f", {_said(row, row.borrowable)} of it borrowed" if row.borrowable != "0" else ""
    gangs = ", ".join(f"{pods} in one {level}" for level, pods in row.largest_gang.items())
    inside = f" Largest gang: {gangs}." if gangs and row.pods else ""
    each = amounts_text({name: amount for name, amount in row.pod.items() if name != "pods"})
    amount = f"{_said(row, row.may_start_now)} {_what(row)} now{borrows}, in pods of {each}"
    if row.reclaimable != "0":
        back = _said(row, row.reclaimable)
        amount += f", and up to {back} more by taking back what {_names(row.reclaimed_from)} borrows"
    return f"{path} may start {amount}; {_WHY[row.capped_by].format(row.ancestor)}.{inside}"


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _sentence_below(_: str, row: models.HeadroomRow) -> str:
    why = _WHY[row.capped_by].format(row.ancestor)
    return f"All of them together may start {_said(row, row.below)} {_what(row)} now at most; {why}."


def _what(row: models.HeadroomRow) -> str:
    return short(row.resource) + ("" if row.flavor == "default" else f" on {row.flavor}")


def _said(row: models.HeadroomRow, amount: str | None) -> str:
    return readable(amount or "0", resource=row.resource)
