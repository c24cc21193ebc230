"""Sentences about other jobs: who is ahead, whose pods are landing or leaving, and what a cycle did not decide.

Another job is named if the reader may know it, else by its queue alone; see `queuer.domain.reasons.hide`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from queuer.domain.assignments import LostWork
from queuer.domain.keys import MANAGED
from queuer.domain.reasons.amounts import moment, plural
from queuer.domain.reasons.run_sentences import all_lost

REFUSES = "the API server refuses the write"


class OtherJob(TypedDict, total=False):
    """Another job. `owner`: its uid; only `ownerQueue` is left of a job that the reader may not see."""

    owner: str
    namespace: str
    name: str
    ownerQueue: str


class BehindParams(OtherJob, total=False):
    """The job that goes first, and how many `others`. `landing`: its pods are landing, on `host`; `held`: room is held
    for it; `nodes`: how many it has reserved. Without these it is ahead in `queue`, whose order is strict.

    `headUnstartable`: it can never start, for the reason `why`. `maxPending`: the limit of a queue for a namespace.
    """

    queue: str
    others: int
    landing: bool
    host: str
    held: bool
    nodes: int
    headUnstartable: bool
    why: str
    maxPending: int


class BoundParams(TypedDict, total=False):
    """The place that is held for a job. `left`: of its `victims` how many have not left; `jobs`: the first of these.
    `lost`: a `LostWork` of all who are evicted for it, where that is known.
    """

    hosts: Sequence[str]
    victims: int
    left: int
    jobs: Sequence[OtherJob]
    deadline: float
    lost: Mapping[str, Any]


class UndecidedParams(TypedDict, total=False):
    """Why a cycle decided nothing. `freed`: `quota` or `room` that was given back; `retryAt`: when it is tried again;
    `said`: what the verifier refused.
    """

    freed: str
    cause: str
    said: str
    retryAt: float


class ClosedQueue(TypedDict, total=False):
    """A queue that is not open. `since`: RFC 3339; `by` whom and `reason`: as the audit has them, where it does."""

    queue: str
    state: str
    since: str
    by: str
    reason: str


class SuspendedParams(TypedDict, total=False):
    """The queues on its path that are not open, the nearest first. Or since when, in seconds, its `namespace` is not
    managed any more, and whether somebody has `started` the job.
    """

    queue: str
    closed: Sequence[ClosedQueue]
    namespace: str
    unmanagedSince: float
    started: bool


def left_pods(count: int, *, of: str, seconds: float) -> str:
    """Pods that stay after an eviction; `of`: the kind of their job."""
    were, them = ("was", "it") if count == 1 else ("were", "them")
    return (
        f"{plural(count, 'pod')} {were} left {seconds:.0f} s after the eviction: the controller of {of} objects "
        f"did not delete {them}, and Queuer does"
    )


def left_jobs(*, of: str, seconds: float) -> str:
    """Jobs that may make pods after an eviction; `of`: the kind of the job that they belong to."""
    return (
        f"the controller of {of} objects has not confirmed the suspension for {seconds:.0f} s: "
        "Queuer suspends the Jobs that it made"
    )


def refused_write(said: str, *, starts: bool, since: float) -> str:
    """A write to a job that the API server refuses again and again, in its words."""
    what = "starts the job" if starts else "takes the job back"
    return f"{REFUSES} that {what}, since {moment(since)}; the job is charged until that goes through: {said}"


def behind(p: BehindParams) -> str:
    """Another job goes first."""
    owner = _job(p)
    first = owner[0].upper() + owner[1:] if "name" not in p else owner
    if p.get("landing"):
        where = f" on {p['host']}" if "host" in p else ""
        also = f" and of {plural(p['others'], 'other job')}" if p["others"] else ""
        text = f"It fits but for pods of {owner}{also} that are still landing{where}"
        return f"{text}; it is tried again when they are bound."
    if p.get("held"):
        also = f" and {plural(p['others'], 'other job')}" if p["others"] else ""
        return f"Room that it needs is held for {owner}{also}; it is tried again when that ends."
    if "nodes" in p:
        others = "1 other" if p["others"] == 1 else f"{p['others']} others"
        also = f", as well as {others}" if p["others"] else ""
        return f"{first} holds a reservation of {plural(p['nodes'], 'node')} that this job would break{also}."
    text = f"{first} is ahead of it in {p['queue']}, whose order is strict, and "
    if p.get("headUnstartable") and "why" not in p:
        return f"{text}can never start; who owns it or administers the queue must change, hold or delete it."
    if p.get("headUnstartable"):
        return f"{text}can never start; change, hold or delete it: {p['why']}"
    return f"{text}waits."


def bound(p: BoundParams) -> str:
    """A place is held while other jobs leave."""
    hosts, left = len(p["hosts"]), p["left"]
    text = f"{plural(hosts, 'node')} {'is' if hosts == 1 else 'are'} held for it; "
    if not p["victims"]:
        return f"{text}it starts in room that workloads evicted for other jobs leave."
    if not left:
        gone = "the workloads that it waited for have left"
        return f"{text}{gone}, and it starts when nothing else is in the way there."
    named = _jobs(p["jobs"])
    lost = f" {all_lost(LostWork(**p['lost']))}" if "lost" in p else ""
    if left == len(p["jobs"]):
        return f"{text}it starts when the pods of {named} have left.{lost}"
    return f"{text}it starts when the pods of {left} workloads have left: {named} and others.{lost}"


def given_back(p: UndecidedParams) -> str:
    """Quota or room that the job needed at its turn was given back later in the same cycle."""
    lacked = {"quota": "Quota", "room": "Room"}[p["freed"]]
    return f"{lacked} that it needed at its turn has been given back in this cycle; the next cycle decides."


def deferred(p: UndecidedParams) -> str:
    """The plan says nothing of the job."""
    return (
        "This cycle came to no decision about it; the next one tries again." if p["cause"] == "Plan" else ""
    )


def suspended(p: SuspendedParams) -> str:
    """Its queue, or one above it, is held or drains; or its namespace opted out."""
    if "unmanagedSince" in p:
        fate = "runs, and no queue pays for it" if p["started"] else "stays suspended"
        lost = f"namespace {p['namespace']} lost {MANAGED}; the job {fate}"
        return f"not queued any more since {moment(p['unmanagedSince'])}: {lost}."
    return "; ".join(map(_closed, p["closed"])) + "."


def _closed(row: ClosedQueue) -> str:
    since = f" since {moment(datetime.fromisoformat(row['since']))}" if "since" in row else ""
    by = f", by {row['by']}" if row.get("by") else ""
    why = f': "{row["reason"]}"' if row.get("reason") else ""
    return f"{row['queue']} {'drains' if row['state'] == 'draining' else 'is held'}{since}{by}{why}"


def _job(p: OtherJob) -> str:
    return f"{p['namespace']}/{p['name']}" if "name" in p else f"a job of {p['ownerQueue']}"


def _jobs(rows: Sequence[OtherJob]) -> str:
    """The jobs that are named, then how many more of each queue."""
    named = [_job(row) for row in rows if "name" in row]
    others = Counter(row["ownerQueue"] for row in rows if "name" not in row)
    return ", ".join([*named, *(f"{plural(n, 'job')} of {queue}" for queue, n in others.items())])
