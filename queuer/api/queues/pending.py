"""The line of a queue, in the order of the last cycle: own jobs in full, runs of others' as counts and amounts."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.http.cursor import not_a_cursor
from queuer.api.queues import models
from queuer.api.queues.queue_ranks import Ranks
from queuer.api.workloads import views
from queuer.domain.quantity import format_resources
from queuer.store import line
from queuer.store.line import InLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The place after the last one shown: its rank, and a hash of its uid, which may be another team's."""

    rank: int
    mark: str

    @classmethod
    def read(cls, text: str) -> Anchor:
        """From a cursor. Raises InvalidInput."""
        try:
            rank, mark = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, TypeError, Error) as error:
            raise not_a_cursor() from error
        if type(rank) is not int or type(mark) is not str or rank < 0:
            raise not_a_cursor()
        return cls(rank=rank, mark=mark)

    @classmethod
    def after(cls, rank: int, uid: str) -> Anchor:
        """The place after this one."""
        return cls(rank=rank, mark=_mark(uid))

    def __str__(self) -> str:
        return urlsafe_b64encode(json.dumps([self.rank, self.mark]).encode()).decode().rstrip("=")

    def begin(self, there: Sequence[InLine]) -> int:
        """Where the next page begins: after the last one shown if it still waits, else at its place."""
        near = sorted(range(len(there)), key=lambda place: abs(place - self.rank))
        found = next((place for place in near if _mark(there[place].uid) == self.mark), None)
        return min(self.rank, len(there)) if found is None else found + 1


def _mark(uid: str) -> str:
    return blake2b(uid.encode(), digest_size=8).hexdigest()


async def page(
    connection: AsyncConnection,
    queue: str,
    placed: Ranks | None,
    *,
    readable: Collection[str] | None,
    limit: int,
    after: Anchor | None,
) -> tuple[list[models.InLine | models.Others], Anchor | None]:
    """Entries of a queue with all below it, and where the next page begins. `placed`: None before the first cycle;
    `readable`: namespaces whose jobs are shown, None = all.
    """
    rank_of = placed or {}
    there = await line.waiting(connection, queue)
    there.sort(
        key=lambda row: rank_of.get(row.uid, len(rank_of))
    )  # who has no place stays in the queue's order
    begin = after.begin(there) if after else 0
    runs = _runs(there[begin:], readable, limit)
    shown = [row.uid for own, run in runs if own for row in run]
    jobs = await line.these(connection, shown)
    others = {n: [row.uid for row in run] for n, (own, run) in enumerate(runs) if not own}
    amounts = await line.amounts(connection, others)
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
    return found, Anchor.after(at, there[at - 1].uid) if at < len(there) else None


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
