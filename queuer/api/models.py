"""The shapes of the REST answers. Amounts are Kubernetes quantities, times RFC 3339, names camelCase.

Additive only within `/api/v1`: fields may be added, never removed or given another meaning.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from queuer.domain.queue import ManagedBy, QueueState
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State

Amounts = dict[str, str]
"""Kubernetes quantities by resource name."""


class Model(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class FieldError(Model):
    """What is wrong with one field, and how to mend it."""

    field: str
    message: str
    hint: str = ""


class Problem(Model):
    """RFC 9457. `errors` names each wrong field."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    request_id: str
    errors: list[FieldError] = []


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
    `starved`: work waits although less is used than guaranteed.
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
    """A queue with its configuration and its live figures, its own subtree included."""

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
    as_of: datetime


class Reason(Model):
    """Why a workload waits: a stable token, what to do about it, and a sentence with the numbers."""

    token: Token
    verdict: Verdict
    text: str


class PodSet(Model):
    """Pods of one role and shape; `requests` are the effective requests of one pod."""

    name: str
    count: int
    min_count: int | None = None
    requests: Amounts


class Workload(Model):
    """A row of the list: one user job."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    user: str
    priority: int
    state: State
    attempt: int
    demand: Amounts
    submitted: datetime
    admitted: datetime | None
    landed: datetime | None
    finished: datetime | None
    deleted: datetime | None = Field(description="When the job object was gone.")
    reason: Reason | None
    domains: list[str] = Field(description="Where it was admitted to; empty while it waits.")


class WorkloadList(Model):
    """A page of workloads; ask for the next one with `cursor=next`."""

    items: list[Workload]
    next: str | None
    as_of: datetime


class ReasonDetail(Reason):
    """A reason with its figures, and since when it holds."""

    params: dict[str, Any]
    since: datetime | None = None


class Explanation(Model):
    """Why a workload waits: one primary reason, all others that hold, and the figures behind them."""

    uid: str
    state: State
    as_of: datetime | None
    cycle: int | None
    age_seconds: float | None
    verdict: Verdict | None
    primary: ReasonDetail | None
    others: list[ReasonDetail]
    would_admit: list[dict[str, Any]]
    detail: dict[str, Any]


class Placement(Model):
    """Where a pod set of an admitted workload goes."""

    pod_set: str
    flavor: str
    count: int
    nodes: dict[str, int]
    selector: dict[str, str]


class Admission(Model):
    """The admission in force: which cycle decided it, and the places."""

    id: str
    cycle: int
    domains: list[str]
    placements: list[Placement]


class Moment(Model):
    """One entry of a workload's history."""

    at: datetime
    what: str
    text: str


class WorkloadDetail(Workload):
    """One workload with everything that is known of it."""

    preemptible: bool
    required: str | None
    preferred: str | None
    max_runtime_seconds: float | None
    hold: bool
    pod_sets: list[PodSet]
    admission: Admission | None
    explanation: Explanation
    timeline: list[Moment]
    as_of: datetime


class Change(Model):
    """One object that differs from the wish. `before`, `after`: as a document spells it, null = absent."""

    kind: str
    name: str
    action: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    text: str


class TreePlan(Model):
    """What a document would change, or (`applied`) has changed, and what is odd though legal."""

    base_revision: int
    revision: int
    applied: bool
    changes: list[Change]
    warnings: list[str]
