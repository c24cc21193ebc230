"""The figures of an explanation: what is asked for, what there is, who has it, and what comes first.

The decision tells them as plain data with times in epoch seconds; these shapes are what REST says.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from queuer.api.models import Amounts, Instant, Model
from queuer.domain.reasons import JobChange


class Need(Model):
    """The need of one pod set. `per`: of each pod; `level`: the narrowest that it needs to be inside."""

    pod_set: str
    count: int
    per: Amounts
    level: str | None = None


class RoomLeft(Model):
    """The room that limits on one queue still leave a job that waits below."""

    queue: str
    room: Amounts


class Available(Model):
    """The free amounts on the usable nodes of a flavor, and the room by quota, the nearest queue first."""

    flavor: str
    free: Amounts
    headroom: list[RoomLeft]


class Cause(Model):
    """How many nodes have no room for one pod, by the first cause that applies. `largest`: of nodes that are too small
    even if idle, the most that one has of what a pod asks more of.
    """

    why: str
    nodes: int
    largest: Amounts = Field(default={})


class Short(Model):
    """How many domains of a level are too small for the pod set."""

    level: str
    short: int
    of: int


class Excluded(Model):
    """Nodes that have no room for one pod, of all that there are."""

    nodes: int
    of: int
    by: list[Cause]
    domains: Short | None = None


class Holder(Model):
    """A queue or job (`workload`: its uid) that has what it lacks, or a job that has reserved nodes (`reservation`).

    A job of a namespace that the reader may not see is told by its queue alone. `outside`: pods that no queue pays for,
    by the `kind` and `name` of what drives them; `queue` is null then.
    """

    queue: str | None = None
    workload: str | None = None
    reservation: str | None = None
    namespace: str | None = None
    kind: str | None = None
    name: str | None = None
    outside: bool = False
    pods: int | None = None
    resource: str | None = None
    amount: str | None = None
    ends: Instant | None = Field(default=None, description="When it is to end, if that may be told.")
    ordered: bool = Field(default=False, description="It is to be evicted then, as somebody has ordered.")
    runs: int | None = Field(
        default=None, description="The end is learned from so many runs like it; null: it is promised."
    )
    starts: Instant | None = Field(default=None, description="When what is reserved is to start.")
    leaving: bool = False
    starting: bool = Field(default=False, description="The newest cycle has started it.")
    held: bool = Field(default=False, description="It is not there yet: room is held for it.")


class Reservation(Model):
    """Nodes that are kept for it from `start` on, at the latest; null: what is free or frees up there is kept now."""

    start: Instant | None
    expires: Instant
    hosts: list[str]


class Ahead(Model):
    """Its place in the line of its queue."""

    gangs: int
    of: int


class Estimate(Model):
    """A range of starts; null: later than was looked at. `hitRate`: how many of the `n` of the last week held."""

    earliest: Instant = Field(alias="from")
    likely: Instant | None = None
    latest: Instant | None = Field(default=None, alias="to")
    basis: str = ""
    n: int
    hit_rate: float | None


class Beneficiary(Model):
    """The job for whose sake it was evicted."""

    queue: str
    amounts: Amounts
    uid: str | None = None
    namespace: str | None = None
    name: str | None = None


class Evicted(Model):
    """How its last attempt ended: by which right or failure, at which ancestor it was reclaimed, and for whom."""

    at: Instant
    cause: str = ""
    note: str = ""
    reclaim_at: str | None = None
    beneficiary: Beneficiary | None = Field(default=None, alias="for")


class Failure(Model):
    """Why it failed, or of a job that runs which pods it lost last."""

    at: Instant
    text: str


class Detail(Model):
    """Figures behind the reasons. A figure that is not known is empty or null."""

    need: list[Need] = Field(default=[])
    available: list[Available] = Field(default=[])
    excluded: Excluded | None = None
    holders: list[Holder] = Field(default=[])
    reservation: Reservation | None = None
    ahead: Ahead | None = None
    estimate: Estimate | None = None
    no_estimate: str = Field(default="", description="Why a job that waits for others has none.")
    evicted: Evicted | None = None
    failure: Failure | None = None


class WouldAdmit(Model):
    """A change that was tried and lets it start. Where a job has to end: whose it is, what it has, and until when."""

    change: str
    evictions: int
    namespace: str | None = None
    name: str | None = None
    queue: str | None = None
    resource: str | None = None
    amount: str | None = None
    by: Instant | None = None

    @classmethod
    def from_record(cls, record: JobChange, **more: Any) -> Self:
        """The same of a change, with the figures of the job that has to end."""
        told = {key: record.job.get(key) for key in ("namespace", "name", "queue", "resource", "amount")}
        return super().from_record(record, change=record.text, by=record.job.get("ends"), **told, **more)
