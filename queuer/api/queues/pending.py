"""The line of a queue, in the order of the last cycle: own jobs in full, runs of others' as counts and amounts.

The places in line after the newest stored cycle are asked for once, and kept until there is a newer one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Annotated

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.deps import app_part
from queuer.api.http.lists import make_cursor
from queuer.api.latest_cycle import CycleAnswer, LatestCycle
from queuer.api.queues import models
from queuer.api.single_flight import SingleFlight
from queuer.api.workloads import views
from queuer.domain.quantity import format_resources
from queuer.solver import ask
from queuer.store import waiting
from queuer.store.waiting import InLine

Ranks = dict[str, int]
"""Places in the order of a cycle, by uid."""


def queue_ranks(latest: LatestCycle) -> SingleFlight[CycleAnswer[Ranks] | None]:
    """The cache of an app; None: no cycle is stored that this program reads."""

    async def renew(known: CycleAnswer[Ranks] | None) -> CycleAnswer[Ranks] | None:
        if known is not None and known.cycle == await latest.number():
            return known
        return await latest.ask(ask.QueueRanks())

    return SingleFlight(renew)


RankCache = Annotated[SingleFlight[CycleAnswer[Ranks] | None], app_part("ranks")]
ORDER = "rank"
"""The order that a cursor of this list names."""


def _begin(there: Sequence[InLine], after: tuple[int, str]) -> int:
    """Where a page begins: after the last job shown if it still waits, else at the place where it was."""
    rank, mark = after
    near = sorted(range(len(there)), key=lambda place: abs(place - rank))
    found = next((place for place in near if _mark(there[place].uid) == mark), None)
    return min(max(rank, 0), len(there)) if found is None else found + 1


def _mark(uid: str) -> str:
    """A hash of a uid, since the last job shown may be another team's."""
    return blake2b(uid.encode(), digest_size=8).hexdigest()


async def page(
    connection: AsyncConnection,
    queue: str,
    placed: Ranks | None,
    *,
    readable: Collection[str] | None,
    limit: int,
    after: tuple[int, str] | None,
) -> tuple[list[models.InLine | models.Others], str | None]:
    """Entries of a queue with all below it, and the cursor of the next page. `placed`: None before the first cycle;
    `readable`: namespaces whose jobs are shown, None = all; `after`: rank and mark of the last job shown.
    """
    rank_of = placed or {}
    there = await waiting.waiting(connection, queue)
    there.sort(
        key=lambda row: rank_of.get(row.uid, len(rank_of))
    )  # who has no place stays in the queue's order
    begin = _begin(there, after) if after else 0
    runs = _runs(there[begin:], readable, limit)
    shown = [row.uid for own, run in runs if own for row in run]
    jobs = await waiting.these(connection, shown)
    others = {n: [row.uid for row in run] for n, (own, run) in enumerate(runs) if not own}
    amounts = await waiting.amounts(connection, others)
    found: list[models.InLine | models.Others] = []
    at = begin
    for n, (own, run) in enumerate(runs):
        if own:
            for place, row in enumerate(run, start=at + 1):
                job = views.row_of(jobs[row.uid])
                found.append(models.InLine(rank=place if row.uid in rank_of else None, workload=job))
        else:
            found.append(
                models.Others(
                    first=at + 1, last=at + len(run), gangs=len(run), amounts=format_resources(amounts[n])
                )
            )
        at += len(run)
    following = make_cursor(ORDER, at, _mark(there[at - 1].uid)) if at < len(there) else None
    return found, following


def _runs(
    there: Sequence[InLine], readable: Collection[str] | None, limit: int
) -> list[tuple[bool, list[InLine]]]:
    """Runs of own jobs and of others', no more than `limit` entries; a run of others is one."""
    found: list[tuple[bool, list[InLine]]] = []
    left = limit
    for own, run in groupby(there, key=lambda row: readable is None or row.namespace in readable):
        if not left:
            break
        rows = list(run)
        rows = rows[:left] if own else rows
        found.append((own, rows))
        left -= len(rows) if own else 1
    return found
