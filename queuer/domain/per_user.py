"""What one user may have in a queue at a time (`access.perUser`), what a job asks of it, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from queuer.domain.quantity import format_quantity
from queuer.domain.queue import PerUser, QueueTree
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload, demand_of

_JOBS = ""
"""What counts jobs; every other key of amounts is a resource."""
Rows = tuple[tuple[str, Mapping[str, int]], ...]
"""The queues on a path that limit each user, with the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A limit that a job would exceed. `used`: admitted; `ahead`: asked by waiting jobs of the user before it."""

    queue: str
    user: str
    resource: str
    limit: int
    used: int
    ahead: int
    asks: int


def limits_of(rows: Iterable[tuple[str, PerUser]]) -> Rows:
    """As `QueueTree.per_user` has them."""
    return tuple((queue, _limits(own)) for queue, own in rows)


def asked(rows: Rows, workload: Workload, counts: Mapping[str, int]) -> Iterator[tuple[str, str, int, int]]:
    """Queue, resource, limit and what the workload has of it at this size; what it has nothing of is left out."""
    asks = {_JOBS: 1, **demand_of(workload.pod_sets, counts)} if rows else {}
    for queue, limits in rows:
        for resource, limit in limits.items():
            if asks.get(resource):
                yield queue, resource, limit, asks[resource]


def too_large(workload: Workload, tree: QueueTree) -> Explanation | None:
    """Why the workload can never start, where it exceeds by itself what one user may have."""
    rows, counts = (
        limits_of(tree.per_user.get(workload.queue, ())),
        {p.name: p.count for p in workload.pod_sets},
    )
    for queue, resource, limit, asks in asked(rows, workload, counts):
        if asks > limit:
            short = Short(
                queue=queue, user=workload.user, resource=resource, limit=limit, used=0, ahead=0, asks=asks
            )
            return explanation(short)
    return None


def explanation(short: Short) -> Explanation:
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
