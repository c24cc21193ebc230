"""What one user may have at a time (`access.perUser`): of a user's waiting jobs only so many are offered to a decision,
in order, as fit beside what the user has. So whichever of them it starts, no limit is exceeded.

A job that is offered keeps its part while it waits: later jobs of the same user do not pass it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from queuer.controller.ledger.commit import about
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.quantity import format_quantity
from queuer.domain.queue import PerUser, QueueState
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.waiting import impossible
from queuer.domain.workload import Workload, demand_of

_JOBS = ""
"""What counts jobs; every other key of amounts is a resource."""
Rows = Mapping[str, tuple[tuple[str, Mapping[str, int]], ...]]
"""By queue, the queues on its path that limit each user, with the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Short:
    """A limit that a job would exceed. `used`: admitted; `ahead`: asked by waiting jobs of the user before it."""

    queue: str
    user: str
    resource: str
    limit: int
    used: int
    ahead: int
    asks: int


class _Shares:
    """What each user has, and asks for in jobs that are offered, by user, queue and resource."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._used = Counter[tuple[str, str, str]]()
        self._ahead = Counter[tuple[str, str, str]]()

    def use(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """It has so many pods of each set."""
        for queue, resource, _, amount in self._limited(workload, counts):
            self._used[workload.user, queue, resource] += amount

    def offer(self, workload: Workload) -> None:
        """It may start in this cycle, at its full size."""
        for queue, resource, _, amount in self._limited(workload, _whole(workload)):
            self._ahead[workload.user, queue, resource] += amount

    def short(self, workload: Workload) -> _Short | None:
        """The limit that it would exceed; first one that it exceeds by itself."""
        found = None
        for queue, resource, limit, asks in self._limited(workload, _whole(workload)):
            key = workload.user, queue, resource
            used, ahead = self._used[key], self._ahead[key]
            if asks > limit or (found is None and used + ahead + asks > limit):
                found = _Short(
                    queue=queue, user=workload.user, resource=resource, limit=limit, used=used, ahead=ahead, asks=asks
                )  # fmt: skip
                if asks > limit:
                    break
        return found

    def _limited(self, workload: Workload, counts: Mapping[str, int]) -> Iterator[tuple[str, str, int, int]]:
        """Queue, resource, limit and what the workload has of it; what it has nothing of is left out."""
        rows = self._rows.get(workload.queue, ())
        asks = {_JOBS: 1, **demand_of(workload.pod_sets, counts)} if rows else {}
        for queue, limits in rows:
            for resource, limit in limits.items():
                if asks.get(resource):
                    yield queue, resource, limit, asks[resource]


def beyond(waiting: Iterable[Live], state: ClusterState) -> dict[str, Explanation]:
    """Those of the waiting workloads that are not to be offered, and why. Never who is bound: work was lost for its
    place. Raises Mishandled.
    """
    tree = state.rules.tree
    per_user = tree.per_user
    if not per_user:
        return {}
    shares = _Shares({path: tuple((q, _limits(own)) for q, own in rows) for path, rows in per_user.items()})
    for live in (state.live[uid] for uid in state.holds):
        assert live.placement is not None
        # Who is set aside already is not named again: the decision would never be asked.
        with suppress(Exception) if live.uid in state.quarantine else about(live.uid):
            shares.use(live.workload, {**_whole(live.workload), **live.placement.held})
    bound = {bond.uid for bond in state.bonds}
    # Where nothing starts nobody takes part from jobs elsewhere, and is told by the decision that the queue is closed.
    open_ = {path for path in per_user if tree.effective_state(path) is QueueState.OPEN}
    limited = (live for live in waiting if live.workload.queue in open_ or live.uid in bound)
    found, told = dict[str, Explanation](), cache(_explanation)
    for live in sorted(limited, key=lambda live: (live.uid not in bound, *_order(live))):
        with about(live.uid):
            short = shares.short(live.workload)
            if short is None or live.uid in bound:
                shares.offer(live.workload)
            else:
                # What can never start is not told to wait for others.
                found[live.uid] = live.explanation if _hopeless(live) and live.explanation else told(short)
    return found


def _order(live: Live) -> tuple[bool, bool, int, float, str]:
    """As a leaf offers them; but what can never start takes nothing from what can."""
    own = live.workload
    return _hopeless(live), not live.first, -own.priority, own.submitted, own.uid


def _hopeless(live: Live) -> bool:
    """Whether a decision found that it can never start as it is."""
    why = None if live.explanation is None else live.explanation.primary
    return why is not None and "perUser" not in why.params and impossible(why)


def _explanation(short: _Short) -> Explanation:
    """`asks > limit`, or `used + ahead + asks > limit`."""
    counts_jobs = short.resource == _JOBS
    what = "jobs" if counts_jobs else short.resource
    figures = {"limit": short.limit, "used": short.used, "ahead": short.ahead, "asks": short.asks}
    said = {name: str(n) if counts_jobs else format_quantity(n, resource=what) for name, n in figures.items()}
    who, where = f"user {short.user}" if short.user else "who is not named", f"in {short.queue} (perUser)"
    if short.asks > short.limit:
        token = Token.EXCEEDS_MAX_QUOTA
        text = f"Asks {said['asks']} {what}; {who} may have {said['limit']} at most {where}."
    else:
        token = Token.WAITING_FOR_QUOTA
        text = f"{who} has {said['used']} of {said['limit']} {what} {where}"
        text += f", and asks {said['ahead']} in waiting jobs before this one" if short.ahead else ""
        text += "." if counts_jobs else f"; this job asks {said['asks']}."
    key = "maxRunning" if counts_jobs else "limits"
    named = {} if counts_jobs else {"resource": short.resource}
    return simple(token, text, queue=short.queue, user=short.user, perUser=key, **named, **said)


def _limits(own: PerUser) -> Mapping[str, int]:
    return own.limits if own.max_running is None else {_JOBS: own.max_running, **own.limits}


def _whole(workload: Workload) -> dict[str, int]:
    return {p.name: p.count for p in workload.pod_sets}
