"""The shapes of answers about queues."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from queuer.api.controller import Controller
from queuer.api.http.lists import Page
from queuer.api.models import Amounts, Instant, Model, Quantity
from queuer.api.workloads.models import Workload
from queuer.domain.queue import ManagedBy, QueueState
from queuer.solver.headroom import Cap


class QuotaRow(Model):
    """A row of quota as written; without `flavor` it counts all flavors together."""

    resource: str
    flavor: str | None = None
    guaranteed: Quantity | None = None
    limit: Quantity | None = None
    lend: Quantity | None = None


class Origin(Model):
    """The change by which a queue came to be so. `queue`: the one that was changed."""

    queue: str
    at: Instant
    by: str
    reason: str


class Account(Model):
    """A queue's amounts of one resource, in one flavor or (`flavor` null) in all together.

    `borrowed`: used above guaranteed. `lent`: own guarantee used by others. `pending`: demand not admitted.
    `starved`: the next job of this leaf fits the guarantee, and others borrow the room that it lacks. `outside`:
    used by pods that no queue pays for; of root alone.
    """

    resource: str
    flavor: str | None
    guaranteed: Quantity
    limit: Quantity | None
    used: Quantity
    borrowed: Quantity
    lent: Quantity
    pending: Quantity
    starved: bool
    over_limit: Quantity = Field(description="Used above the limit that is written on the queue.")
    cut: Origin | None = Field(
        description="Of an account over its limit: the cut of the limit, where it is known."
    )
    outside: Quantity | None = None
    remainder: str | None = Field(
        default=None, description="That what is left of the guarantee is too small for every pending job."
    )


class Queue(Model):
    """A queue with its configuration and its live figures, its own subtree included.

    A job that waits is pending, held (itself, its queue or its namespace, on purpose), or unstartable: it can never
    start as it is.
    """

    path: str
    parent: str | None
    leaf: bool
    weight: float
    state: QueueState
    effective_state: QueueState
    managed_by: ManagedBy | None = Field(description="Its one writer; null for a root nobody wrote.")
    revision: int
    namespaces: list[str] = Field(
        description="Who may use it; inherited from the nearest queue that names any."
    )
    policy: dict[str, Any] = Field(description="The policy in force, inherited parts included.")
    access: dict[str, Any] = Field(
        description="Who may use it and what jobs may ask, inherited parts included; `perUser` is its own."
    )
    placement: list[dict[str, Any]] = Field(description="Its own rules: where jobs go that name it.")
    quota: list[QuotaRow]
    accounts: list[Account]
    pending_workloads: int
    unstartable_workloads: int
    held_workloads: int
    admitted_workloads: int
    oldest_pending: Instant | None = Field(description="When the first of the pending was submitted.")
    closed: Origin | None = Field(
        description="Where it is not open: the change that holds or drains it, or a queue above it, where it is known."
    )
    starved_since: Instant | None = Field(
        description="Since when it is starved; null for less than a minute, or if it is not."
    )


class QueueVerb(StrEnum):
    """A deed on a queue."""

    HOLD = "hold"
    DRAIN = "drain"
    RESUME = "resume"
    EDIT = "edit"


class QueueDetail(Queue):
    """One queue, with what its reader may do."""

    may: list[QueueVerb] = Field(description="What the caller may do to it, as far as rights go.")


class QueueList(Page):
    """Queues, parents before children."""

    items: list[Queue]
    next: str | None = None
    revision: int
    controller: Controller


class Room(Model):
    """The room that a limit on the path leaves one job. `live`: the limit is the live capacity; `per_user`: it is that
    of one user.
    """

    queue: str
    flavor: str | None
    limit: str
    room: str
    live: bool
    per_user: bool = False


class HeadroomRow(Model):
    """How much of a resource one job of the queue may start now in a flavor, in pods of this shape.

    `own`: what is guaranteed and not used; `borrowable`: what may start beyond that. `may_start_now` is what a probe
    job really got from the decision, nobody evicted. `largest_gang`: pods in one domain of each level.
    """

    resource: str
    flavor: str
    pod: Amounts
    guaranteed: Quantity
    used: Quantity
    own: Quantity
    borrowable: Quantity
    free: Quantity = Field(
        description="Unused on nodes of the flavor that take pods, whatever limits say, and what is reserved too."
    )
    rooms: list[Room] = Field(description="Limits on the path, from the leaf up.")
    pods: int | None
    may_start_now: Quantity | None = Field(description="Null where the queue takes no jobs itself.")
    below: Quantity | None = Field(
        description="Of such a queue: what its limits and the nodes leave to all below it together."
    )
    capped_by: Cap
    ancestor: str | None = Field(description="Whose limit or state is the cap.")
    largest_gang: dict[str, int]
    reclaimable: Quantity = Field(
        description="What one job may have beyond that at most, as the guarantee is taken back from others by eviction."
    )
    reclaimed_from: list[str] = Field(description="Whose it would be, most first.")


class Headroom(Model):
    """How much one job may start now, as of a cycle; it is no reservation."""

    queue: str
    text: str
    rows: list[HeadroomRow]
    cycle: int | None
    as_of: Instant | None
    controller: Controller | None = None


class InLine(Model):
    """A job that waits. `rank` counts from 1; null: the last cycle did not have it in its order."""

    rank: int | None
    workload: Workload


class Others(Model):
    """Jobs of other namespaces between: places, how many, and what they ask for together."""

    first: int
    last: int
    gangs: int
    amounts: Amounts


class Pending(Model):
    """A page of those who wait in a queue and below, in the order of the last cycle."""

    items: list[InLine | Others]
    next: str | None
    cycle: int | None
    controller: Controller
    as_of: Instant


class HistoryAccount(Model):
    """Averages over one step."""

    resource: str
    flavor: str | None
    used: Quantity
    guaranteed: Quantity
    borrowed: Quantity
    lent: Quantity
    pending: Quantity
    limit: Quantity | None = None


class HistoryPoint(Model):
    """One step, by its start."""

    at: Instant
    pending_workloads: int
    admitted_workloads: int
    accounts: list[HistoryAccount]


class Waits(Model):
    """From submission to the first start, of the newest 10,000 that started in the window."""

    started: int
    p50_seconds: float | None
    p90_seconds: float | None


class History(Model):
    """A queue with all below it over time. Steps in which nobody led are missing."""

    queue: str
    since: Instant
    until: Instant
    step_seconds: int
    points: list[HistoryPoint]
    waits: Waits


class PastQueue(Model):
    """A queue with all below it at a past time."""

    path: str
    pending_workloads: int
    admitted_workloads: int
    accounts: list[HistoryAccount]


class PastTree(Model):
    """All queues at a past time. `at`: the start of the minute or hour told, null where none near it is kept."""

    asked: Instant
    at: Instant | None
    step_seconds: int
    items: list[PastQueue]


class Factors(Model):
    """`share` = excess / capacity / weight; `score` = `share` + `past`. The least score goes first among borrowers."""

    resource: str | None
    excess: Quantity
    capacity: Quantity | None
    weight: float
    share: float
    past: float
    score: float


class QueueShare(Model):
    """A queue as the one above compares it. `offered`: with the gang counted in that it offers, null = it has none.

    `entitled`: that gang is inside a guarantee and goes before all borrowers, whatever the score.
    """

    path: str
    parent: str
    weight: float
    guaranteed: Amounts
    used: Amounts
    past: Amounts = Field(description="Decayed average use; empty where no policy says halfLife.")
    ordered_by: str
    now: Factors
    offered: Factors | None
    entitled: bool


class Deficit(Model):
    """The part of a leaf's guarantee that is unused while jobs that each fit it lack room alone."""

    queue: str
    resource: str
    amount: Quantity


class Pair(Model):
    """A part of a deficit and who borrows it; null: nobody, it is free in pieces that do not help, or lost."""

    resource: str
    starved: str
    borrower: str | None
    amount: Quantity


class FairShare(Model):
    """All queues below `root`, parents before children; pairs of each starved queue sum to its deficit."""

    root: str
    items: list[QueueShare]
    deficits: list[Deficit]
    pairs: list[Pair]
    cycle: int | None
    as_of: Instant | None
    controller: Controller | None = None
