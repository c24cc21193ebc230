"""The shapes of answers about queues."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from queuer.api.live.controller import Controller
from queuer.api.models import Model
from queuer.domain.queue import ManagedBy, QueueState


class QuotaRow(Model):
    """A row of quota as written; without `flavor` it counts all flavors together."""

    resource: str
    flavor: str | None = None
    guaranteed: str | None = None
    limit: str | None = None
    lend: str | None = None


class Account(Model):
    """What a queue has and uses of one resource, in one flavor or (`flavor` null) in all together.

    `borrowed`: used above guaranteed. `lent`: own guarantee used by others. `pending`: demand not admitted.
    `starved`: work waits for room alone although less is used than guaranteed.
    """

    resource: str
    flavor: str | None
    guaranteed: str
    limit: str | None
    used: str
    borrowed: str
    lent: str
    pending: str
    starved: bool


class Queue(Model):
    """A queue with its configuration and its live figures, its own subtree included.

    Jobs that can never start as they are count as `misconfigured` alone, not as pending.
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
    access: dict[str, Any] = Field(description="What its jobs may ask, inherited parts included.")
    quota: list[QuotaRow]
    accounts: list[Account]
    pending_workloads: int
    misconfigured_workloads: int
    admitted_workloads: int
    oldest_pending: datetime | None


class Cycle(Model):
    """The newest run of the decision."""

    id: int
    finished: datetime
    status: str


class QueueList(Model):
    """All queues, parents before children."""

    items: list[Queue]
    revision: int
    cycle: Cycle | None
    controller: Controller
    as_of: datetime
