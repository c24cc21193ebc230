"""Limits of one user at a time (`access.perUser`). A decision is offered only as many of a user's waiting
jobs, in order, as fit beside the user's use. So whichever of them it starts, no limit is exceeded.

A job that is offered keeps its part while it waits: later jobs of the same user do not pass it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

from queuer.domain.quantity import format_quantity, readable, short
from queuer.domain.queue import PerUser, QueueState, QueueTree
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload, demand_of

JOBS = ""
"""What counts jobs; every other key of amounts is a resource."""
_WHOSE = frozenset({"perUser", "resourceQuota"})
"""Parameters of what one user, or one namespace, may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that waits. `first`: before all others of its leaf. `bound`: its place is held, whatever the
    limit. `unstartable`: it can never start as it is. `why`: its last reason.
    """

    workload: Workload
    first: bool = False
    bound: bool = False
    unstartable: bool = False
    why: Explanation | None = None

    def turn(self) -> tuple[bool, bool, bool, int, float, str]:
        """As a leaf offers them; but what can never start takes nothing from what can."""
        own = self.workload
        return not self.bound, self.unstartable, not self.first, -own.priority, own.submitted, own.uid


def is_unstartable(why: Explanation | None) -> bool:
    """Whether a job was told that it can never start as it is, whoever's it is."""
    return why is not None and _WHOSE.isdisjoint(why.primary.params) and why.unstartable


def too_large(workload: Workload, tree: QueueTree) -> Explanation | None:
    """Why the workload can never start, where it exceeds by itself what one user may have."""
    short = Shares(tree).short(workload)
    return None if short is None else _explanation(workload.user, *short)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One user's use and limit in a queue. `resource`: `JOBS` counts jobs; `used`: admitted; `ahead`: asked
    by
    waiting jobs of the user that are offered before this one.
    """

    queue: str
    resource: str
    limit: int
    used: int
    ahead: int

    @property
    def room(self) -> int:
        """The rest of it."""
        return max(0, self.limit - self.used - self.ahead)


class Shares:
    """Each user's use and requests of offered jobs, by user, queue and resource."""

    def __init__(self, tree: QueueTree) -> None:
        self._rows: dict[str, list[tuple[str, Mapping[str, int]]]] = {}
        self._tree = tree
        self._used = Counter[tuple[str, str, str]]()
        self._ahead = Counter[tuple[str, str, str]]()

    def use(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """It has so many pods of each set."""
        for share, amount in self.asked(workload, counts):
            self._used[workload.user, share.queue, share.resource] += amount

    def offer(self, workload: Workload) -> None:
        """It may start in this cycle, at its full size."""
        for share, amount in self.asked(workload):
            self._ahead[workload.user, share.queue, share.resource] += amount

    def short(self, workload: Workload) -> tuple[Share, int] | None:
        """The limit that it would exceed, with what it asks; first one that it exceeds by itself."""
        found = None
        for share, asks in self.asked(workload):
            if asks > share.limit:
                return share, asks
            if found is None and asks > share.room:
                found = share, asks
        return found

    def asked(
        self, workload: Workload, counts: Mapping[str, int] | None = None
    ) -> Iterator[tuple[Share, int]]:
        """The limits of its user on its path, with what it has of each; what it has nothing of is left out. `counts`:
        by pod set, None = all.
        """
        rows, user = self._limits(workload.queue), workload.user
        sizes = {p.name: p.count for p in workload.pod_sets} if counts is None else counts
        asks = {JOBS: 1, **demand_of(workload.pod_sets, sizes)} if rows else {}
        for queue, limits in rows:
            for resource, limit in limits.items():
                if asks.get(resource):
                    key = user, queue, resource
                    used, ahead = self._used[key], self._ahead[key]
                    share = Share(queue=queue, resource=resource, limit=limit, used=used, ahead=ahead)
                    yield share, asks[resource]

    def _limits(self, path: str) -> list[tuple[str, Mapping[str, int]]]:
        if path not in self._rows:
            self._rows[path] = [(q, _limits(own)) for q, own in self._tree.per_user.get(path, ())]
        return self._rows[path]


def over_user_limit(
    waiting: Iterable[Waiting],
    shares: Shares,
    tree: QueueTree,
    *,
    guard: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> dict[str, Explanation]:
    """The workloads that a decision is not offered, each with the reason.

    `shares`: of what is admitted; workloads that are offered are added. `guard`: around the work for one uid. A job in
    a queue that is not open takes no share from jobs elsewhere; the decision tells it that its queue is closed.
    """
    open_ = {path for path in tree.per_user if tree.effective_state(path) is QueueState.OPEN}
    limited = (each for each in waiting if each.workload.queue in open_ or each.bound)
    found, told = dict[str, Explanation](), cache(_explanation)
    for each in sorted(limited, key=Waiting.turn):
        own = each.workload
        with guard(own.uid):
            short = shares.short(own)
            if short is None or each.bound:
                shares.offer(own)
            else:
                # A job that can never start is not told to wait for others.
                found[own.uid] = each.why if each.unstartable and each.why else told(own.user, *short)
    return found


def _explanation(user: str, share: Share, asks: int) -> Explanation:
    """`asks` is more than the limit, or than the room that is left."""
    counts_jobs = share.resource == JOBS
    what = "jobs" if counts_jobs else share.resource
    figures = {"limit": share.limit, "used": share.used, "ahead": share.ahead, "asks": asks}
    said = {name: readable(n, resource=what) for name, n in figures.items()}
    who, where = f"user {user}" if user else "who is not named", f"in {share.queue} (perUser)"
    if asks > share.limit:
        token = Token.EXCEEDS_MAX_QUOTA
        text = f"Asks {said['asks']} {short(what)}; {who} may have {said['limit']} at most {where}."
    else:
        token = Token.WAITING_FOR_QUOTA
        text = f"{who} has {said['used']} of {said['limit']} {short(what)} {where}"
        text += f", and asks {said['ahead']} in waiting jobs before this one" if share.ahead else ""
        text += "." if counts_jobs else f"; this job asks {said['asks']}."
    key = "maxRunning" if counts_jobs else "limits"
    shown = {name: format_quantity(n, resource=what) for name, n in figures.items()}
    named = {} if counts_jobs else {"resource": share.resource}
    return simple(token, text, queue=share.queue, user=user, perUser=key, **named, **shown)


def _limits(own: PerUser) -> Mapping[str, int]:
    return own.limits if own.max_running is None else {JOBS: own.max_running, **own.limits}
