"""Notes on jobs beside the effects: why they wait (the status annotation), and Events. One task writes
them with best effort and within a budget. A note never delays an admission, and is given up rather than
waited for.

Both come together. A reason that asks the owner for a change is told at once, any other once the job has
waited for a while. Another token, or the same of another queue or user, is told when it has stood for some seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any, Protocol

from queuer.controller.ledger.round import Change
from queuer.controller.logs import logger
from queuer.controller.memory.lines import Turns
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import QueuerError, Unavailable
from queuer.domain.reasons import ROWS, AdvisedJob, NextStep, Reason, Verdict, save_work
from queuer.domain.workload import Cause, Workload
from queuer.kube.client import ApiError, ConflictError
from queuer.store.commands import EvictionOrder

log = logger("notes")

FIRST = 30.0
"""Seconds that a job waits before it is told why, unless its owner must change something."""
SETTLED = 10.0
"""Seconds that another kind of reason stands before it is told."""
AGAIN, MOVED = 60.0, 1.0
"""Seconds after which a note is tried again that was refused, or met a job that had just changed."""
_FIGURES = re.compile(r"\d[\w.]*")
_LIMITS = ("queue", "resource", "user")
"""Parameters of a reason that say whose limit is in the way: another one is news, as another token is."""
_LOOK = 1.0
_MOST_EVENTS = 1000
_SLICE = 1000
"""Workloads that are looked at before others may use the thread."""


class What(StrEnum):
    """Reasons of our Events; beside these, a reason token."""

    EVICTED = "Evicted"
    ROLLED_BACK = "RolledBack"
    REFUSED = "WriteRefused"
    ORDERED = "EvictionOrdered"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something to be told on a job. `reason`: a `What`, or the token of why it waits."""

    uid: str
    reason: str
    message: str
    warning: bool


class Jobs(Protocol):
    """The jobs of the cluster, as notes are written on them."""

    def status(self, uid: str, said: str | None) -> Mapping[str, Any] | None:
        """The PATCH that writes this on the job, or takes it off; None where it is so already or the job is gone."""

    async def patch(self, uid: str, body: Mapping[str, Any]) -> str:
        """Merge-patch the job. Raises ApiError or Unavailable."""

    async def report(self, event: JobEvent) -> None:
        """Create the Event, if the job is still known. Raises ApiError or Unavailable."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """How many notes may be written: a share of all other writes, and a few a minute besides."""

    share: float = 0.1
    a_minute: float = 60.0
    most: float = 100.0
    left: float = 100.0
    at: float = 0.0

    def earn(self) -> None:
        """Another write was made."""
        self.left = min(self.most, self.left + self.share)

    def has(self, now: float) -> bool:
        """Whether there is a note's worth at this time (seconds)."""
        self.left = min(self.most, self.left + self.a_minute * max(0.0, now - self.at) / 60)
        self.at = now
        return self.left >= 1

    def spend(self) -> None:
        """A note was written."""
        self.left -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """`says`: what tells one reason from the next; `since`: when it was first heard to wait; `due`: when to tell."""

    namespace: str
    says: str
    since: float
    due: float


@dataclass(slots=True, kw_only=True)
class Notes:
    """Notes of one leadership. Call `look` and `evicted` for what is committed; `run` writes."""

    state: ClusterState
    jobs: Jobs
    clock: Callable[[], float]
    budget: Budget = field(default_factory=Budget)
    _heard: dict[str, _Heard] = field(default_factory=dict)
    _urgent: Turns = field(default_factory=Turns)
    _due: Turns = field(default_factory=Turns)
    _events: deque[JobEvent] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    _later: list[tuple[float, str]] = field(default_factory=list)
    _orders: dict[str, EvictionOrder] = field(default_factory=dict)
    _rung: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self, lives: Iterable[tuple[str, Live | None]]) -> None:
        """Workloads as they are now, by uid; None = gone."""
        now = self.clock()
        for uid, live in lives:
            if live is None or live.explanation is None or not live.state.waiting:
                self._heard.pop(uid, None)
            else:
                self._hear(uid, live.workload.namespace, live.explanation.primary, now=now)

    def _hear(self, uid: str, namespace: str, reason: Reason, *, now: float) -> None:
        urgent = reason.verdict is Verdict.CHANGE
        says = f"{reason.token}: {reason.text}" if urgent else _limit(reason)
        known = self._heard.get(uid)
        if known is not None and known.says == says:
            return
        since = now if known is None else known.since
        due = now if urgent else max(since + FIRST, now if known is None else now + SETTLED)
        self._heard[uid] = _Heard(namespace=namespace, says=says, since=since, due=due)
        if urgent:
            self._urgent.add(uid, namespace)
            self._rung.set()
        else:
            heappush(self._later, (due, uid))

    def evicted(self, evictions: Iterable[Change]) -> None:
        """Gangs that are taken back, each with a sentence that says for whom or why."""
        for eviction in evictions:
            what = What.ROLLED_BACK if eviction.cause == Cause.LANDING_TIMEOUT else What.EVICTED
            self.warn(eviction.uid, what, eviction.note)

    def ordered(self, order: EvictionOrder) -> None:
        """Somebody has ordered an eviction for later: it stands on the job until then. Its Event is of the leader that
        heard it first.
        """
        if order.news:
            live = self.state.live.get(order.uid)
            found = None if live is None else self.state.outlook.unstartable(live.workload)
            never = "" if found is None else found.primary.text
            self.warn(order.uid, What.ORDERED, save_work(order.at, never=never).after(order.text))
        self._orders[order.uid] = order
        for due in (self.clock(), order.at + SETTLED):
            heappush(self._later, (due, order.uid))

    def warn(self, uid: str, what: What, message: str) -> None:
        """An Event of its own, a warning."""
        self._events.append(JobEvent(uid=uid, reason=what, message=message, warning=True))
        self._rung.set()

    async def run(self) -> None:
        """Write notes until cancelled."""
        known = list(self.state.live.items())
        for start in range(0, len(known), _SLICE):
            self.look(known[start : start + _SLICE])
            await asyncio.sleep(0)
        while True:
            if await self.write_one():
                await asyncio.sleep(0)  # thousands may be due that say it already
            else:
                await self._rest()

    async def write_one(self) -> bool:
        """Write the next note; False where none is due or none can be afforded."""
        now = self.clock()
        self._gather(now)
        note = self._next() if self.budget.has(now) else None
        if note is None:
            return False
        if isinstance(note, JobEvent):
            await self._try(self.jobs.report(note), note.uid)
        else:
            await self._tell(note)
        return True

    def _gather(self, now: float) -> None:
        """Entries that are due, if the job still waits for the same reason: another reason has an entry of
        its own.
        """
        for _ in range(_SLICE):
            if not self._later or self._later[0][0] > now:
                return
            _, uid = heappop(self._later)
            heard, live = self._heard.get(uid), self.state.live.get(uid)
            if live is None:
                self._orders.pop(uid, None)
            elif uid in self._orders or (heard is not None and heard.due <= now):
                self._due.add(uid, live.workload.namespace)

    def _next(self) -> JobEvent | str | None:
        """An Event, or the uid of a job whose reason is due."""
        if self._events and not self._urgent:
            return self._events.popleft()
        return next(iter(self._urgent.take(1) or self._due.take(1)), None)

    async def _tell(self, uid: str) -> None:
        live, job = self.state.live.get(uid), self.state.jobs.get(uid)
        if live is None or job is None or live.state.waiting:
            self._orders.pop(uid, None)
        if live is None or job is None:
            return
        if not live.state.waiting:
            await self._tell_order(uid, job.status or "")
        elif live.explanation is not None:
            await self._tell_reason(live, live.explanation.primary, job.status or "")

    async def _tell_reason(self, live: Live, reason: Reason, status: str) -> None:
        urgent, said = reason.verdict is Verdict.CHANGE, f"{reason.token}: {reason.text}"
        moved = not urgent and _FIGURES.sub("", status) != _FIGURES.sub("", said)
        news = moved or status.partition(":")[0] != reason.token
        if (news or urgent) and await self._write(live.uid, said) and news:
            warning = reason.verdict in (Verdict.CHANGE, Verdict.ESCALATE)
            message = _next(live.workload, reason).after(reason.text) if warning else reason.text
            self._events.append(JobEvent(uid=live.uid, reason=reason.token, message=message, warning=warning))

    async def _tell_order(self, uid: str, status: str) -> None:
        """It is taken off where the job runs on, as limits hold without its eviction."""
        order = self._orders.get(uid)
        if order is None:
            return
        over = self.clock() >= order.at + SETTLED
        there = status.startswith(What.ORDERED) or not over
        written = there and await self._write(uid, None if over else f"{What.ORDERED}: {order.text}")
        if over and (written or not there):
            self._orders.pop(uid, None)

    async def _write(self, uid: str, said: str | None) -> bool:
        """Whether this stands on the job. It is tried again where it was refused."""
        body = self.jobs.status(uid, said)
        if body is None:
            return True
        refused = await self._try(self.jobs.patch(uid, body), uid)
        if refused is not None:
            due = self.clock() + (MOVED if isinstance(refused, ConflictError) else AGAIN)
            if (heard := self._heard.get(uid)) is not None:
                self._heard[uid] = replace(heard, due=due)
            heappush(self._later, (due, uid))
        return refused is None

    async def _try(self, write: Awaitable[object], uid: str) -> QueuerError | None:
        """The refusal; None if it was written."""
        self.budget.spend()
        try:
            await write
        except ConflictError as error:
            return error
        except (ApiError, Unavailable) as error:
            log.warning("note not written", workload=uid, said=str(error))
            await asyncio.sleep(getattr(error, "retry_after", None) or _LOOK)
            return error
        return None

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(_LOOK):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()


def _limit(reason: Reason) -> str:
    """The token and whose limit it is about, without figures."""
    return " ".join([reason.token, *(str(reason.params.get(name, "")) for name in _LIMITS)])


def _next(workload: Workload, reason: Reason) -> NextStep:
    """The next step of its owner."""
    job = AdvisedJob(
        uid=workload.uid, kind=workload.kind, namespace=workload.namespace, name=workload.name,
        queue=workload.queue, params=reason.shown, pods={p.name: (p.least, p.requests) for p in workload.pod_sets},
    )  # fmt: skip
    return ROWS[reason.token].next(job)
