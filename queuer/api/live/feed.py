"""One reader of the database for all live views of an app: it looks when the doorbell rings, at most once a second.

Its news go to each follower as one shared batch. A short past is kept, so that who comes back misses nothing.
The reader is there while somebody follows.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import psycopg
import structlog
from fastapi.sse import format_sse_event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.api.deps import one_view
from queuer.api.http.metrics import ApiMetrics
from queuer.api.http.problems import TooMany
from queuer.api.models import instant
from queuer.api.queues.tree_cache import TreeCache
from queuer.domain.errors import Unavailable
from queuer.domain.quantity import format_quantity
from queuer.domain.queue import ROOT
from queuer.store import lookup, news, summary
from queuer.store.engine import DatabaseUnavailable, unreachable_hint
from queuer.store.news import Moved, TableMark
from queuer.store.usage import QueueView, TreeView

log = structlog.get_logger(part="api")
PAUSE, POLL, TREE_EVERY, START = 1.0, 1.0, 2.0, 10.0
"""Seconds: between two looks at least; until a look without a bell; between two looks at amounts; until the first."""
PAST, BEHIND = 120, 150
"""Batches that are kept for who comes back, and that a follower may be behind before it is dropped."""
MOST, A_CALLER = 300, 8
"""Followers in all, and of one caller, counted as `Caller.party`."""
SEED = 500
"""Events of the time before the first follower that it may have missed."""
JOBS, QUEUES = 5000, 100
"""Rows of one batch; where more have changed the followers are told to read anew."""


class Topic(StrEnum):
    """The topics that may be followed."""

    QUEUES = "queues"
    OVERVIEW = "overview"
    WORKLOADS = "workloads"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The changes up to event `id`. `told`: what everybody may see, by topic, as it is sent; `jobs`: by namespace;
    `anew`: topics with too many changes.
    """

    id: int
    told: Mapping[Topic, bytes]
    jobs: Mapping[str, Sequence[Moved]]
    anew: frozenset[Topic]


@dataclass(slots=True, kw_only=True)
class Follower:
    """One live view. `starts`: the event from which it is told, None = from its own on.

    `too_old`: its own is not known here any more. `ended`: why it gets no more, "" = it does.
    """

    batches: deque[Batch] = field(default_factory=deque)
    starts: int | None = None
    too_old: bool = False
    ended: str = ""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, batch: Batch) -> None:
        """Give it a batch, or up on it."""
        if len(self.batches) >= BEHIND:
            self.end("slow")
        elif not self.ended:
            self.batches.append(batch)
            self._wake.set()

    def end(self, why: str) -> None:
        """It gets no more."""
        self.ended = self.ended or why
        self.batches.clear()
        self._wake.set()

    async def next(self, seconds: float) -> Batch | None:
        """The next batch; None: nothing came for so long, or it has ended."""
        if not self.batches and not self.ended:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return self.batches.popleft() if self.batches else None


class Feed:
    """Of one app."""

    def __init__(self, engine: AsyncEngine, metrics: ApiMetrics, tree: TreeCache) -> None:
        self._engine, self._metrics, self._tree = engine, metrics, tree
        self._followers: dict[int, Follower] = {}
        self._callers: Counter[str] = Counter()
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._forget()

    @asynccontextmanager
    async def followed(self, caller: str, *, after: int | None) -> AsyncIterator[Follower]:
        """A follower from event `after` on, None = from now. Raises TooMany, Unavailable."""
        if self._closed or len(self._followers) >= MOST:
            raise Unavailable("no more streams here for now", hint="try again, or read the lists")
        if self._callers[caller] >= A_CALLER:
            raise TooMany(f"{caller} has {A_CALLER} streams", hint="close one; one follows all topics")
        follower = Follower()
        self._callers[caller] += 1
        self._followers[id(follower)] = follower
        self._metrics.streams.set(len(self._followers))
        try:
            await self._begun()
            if follower.ended:
                raise Unavailable("there are no live views just now", hint="try again, or read the lists")
            self._resume(follower, after)
            if after is not None and await self._forgotten(after):
                follower.too_old, follower.starts = True, self._mark.event
            yield follower
        finally:
            self._callers -= Counter([caller])
            del self._followers[id(follower)]
            self._metrics.streams.set(len(self._followers))
            if not self._followers and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    def close(self) -> None:
        """End all streams: the server stops."""
        self._closed = True
        for follower in self._followers.values():
            follower.end("closing")

    def _resume(self, follower: Follower, after: int | None) -> None:
        follower.batches.clear()
        follower.too_old = after is not None and after < self._oldest
        if after is None or follower.too_old:
            follower.starts = self._mark.event
        else:
            follower.batches.extend(batch for batch in self._past if batch.id >= after)

    async def _forgotten(self, after: int) -> bool:
        """Whether an event is yet to come: its id is of before an older backup was restored."""
        if after <= self._mark.event:
            return False
        async with one_view(self._engine) as connection:
            return after > (await news.mark(connection)).event

    # The reader

    def _forget(self) -> None:
        self._mark = TableMark(event=0, cycle=0)
        self._oldest = 0
        self._past: deque[Batch] = deque()
        self._figures: Mapping[str, Any] = {}
        self._counts: Mapping[Any, int] = {}
        self._looked, self._stale = 0.0, True
        self._first = asyncio.Event()

    async def _begun(self) -> None:
        if self._reader is None:
            self._forget()
            self._reader = asyncio.create_task(self._read(self._first))
            self._tasks.add(self._reader)
            self._reader.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(START):
                await self._first.wait()
        except TimeoutError:
            text = f"there are no live views: PostgreSQL has not answered for {START:.0f} s"
            raise DatabaseUnavailable(text, hint=unreachable_hint("")) from None

    async def _read(self, first: asyncio.Event) -> None:
        """Read for all. A fault of ours ends the followers, who come back; the next of them has a new reader."""
        try:
            await self._read_on(first)
        except Exception as error:
            log.error("the reader of the streams has failed", exc_info=error)
            if first is not self._first:
                return  # another has begun
            self._reader = None
            for follower in self._followers.values():
                follower.end("failed")
            first.set()

    async def _read_on(self, first: asyncio.Event) -> None:
        told = False  # that the database is away: once, until it answers again
        while True:
            try:
                async with news.doorbell(self._engine) as rung:
                    while True:
                        await self._look(begins=not first.is_set())
                        told = False
                        first.set()
                        await asyncio.sleep(PAUSE)
                        await rung(POLL)
            except (DatabaseUnavailable, SQLAlchemyError, psycopg.Error) as error:
                if not told:
                    log.warning("the stream cannot read", error=type(error).__name__)
                told = True
                await asyncio.sleep(POLL)

    async def _look(self, *, begins: bool) -> None:
        async with one_view(self._engine) as connection:
            now = await news.mark(connection)
            since = now.back(SEED) if begins else self._mark
            if now == since and not self._stale:
                return
            older = now.event < since.event
            # An older backup was restored: all that was told may be otherwise.
            anew = Batch(id=now.event, told={}, jobs={}, anew=frozenset(Topic))
            batch = anew if older else await self._batch(connection, since, now)
            self._metrics.stream_lag.set(0 if begins else await news.lag(connection, since))
        if begins or older:
            self._oldest = now.event if older else since.event
            self._past.clear()
        self._mark = now
        self._past.append(batch)
        while len(self._past) > PAST:
            self._oldest = self._past.popleft().id + 1
        for follower in self._followers.values():
            follower.put(batch)

    async def _batch(self, connection: AsyncConnection, since: TableMark, now: TableMark) -> Batch:
        """All is encoded here, once for all who follow."""
        told, anew = dict[Topic, Any](), set[Topic]()
        jobs = defaultdict[str, list[Moved]](list)
        moved = await news.moved(connection, since, count=JOBS + 1)
        if len(moved) > JOBS:
            anew.add(Topic.WORKLOADS)
        else:
            for job in moved:
                jobs[job.namespace].append(job)
        if now.stored != since.stored and (cycle := await lookup.newest_cycle(connection)) is not None:
            told[Topic.CYCLE] = {"id": cycle.id, "at": instant(cycle.finished_at), "status": cycle.status}
        self._stale = True
        if time.monotonic() - self._looked >= TREE_EVERY:
            counts = await summary.states(connection)
            there = await self._tree()
            figures = _figures(there.view)
            changed = [path for path, row in figures.items() if row != self._figures.get(path)]
            gone = [path for path in self._figures if path not in figures]
            if counts != self._counts or changed or gone:
                told[Topic.OVERVIEW] = {"counts": counts}
            if len(changed) + len(gone) > QUEUES:
                anew.add(Topic.QUEUES)
            elif changed or gone:
                rows = [_row(there.view.queues[path]) for path in changed]
                told[Topic.QUEUES] = {"queues": rows, "gone": gone}
            self._counts, self._figures = counts, figures
            self._looked = time.monotonic()
            self._stale = there.marks.event < now.event or there.marks.cycle < now.cycle
        sent = {topic: message(topic, data) for topic, data in told.items()}
        return Batch(id=now.event, told=sent, jobs=jobs, anew=frozenset(anew))


def message(event: str, data: Any) -> bytes:
    """An event as it is sent. `data`: what JSON has, and times."""
    return format_sse_event(event=event, data_str=msgspec.json.encode(data).decode())


def _figures(view: TreeView) -> dict[str, Any]:
    """By path all that a list of queues or the overview shows of a queue: a mark that comes is news like an amount."""
    return {**view.queues, ROOT: (view.queues[ROOT], view.capacity, view.outside)}


def _row(found: QueueView) -> dict[str, Any]:
    """A queue as it is told, with its accounts over all flavors."""
    amounts = [
        {
            "resource": each.resource,
            "used": format_quantity(each.used, resource=each.resource),
            "pending": format_quantity(each.pending, resource=each.resource),
        }
        for each in found.amounts
        if each.flavor is None
    ]
    return {"path": found.queue.path, "waiting": found.waiting, "amounts": amounts}
