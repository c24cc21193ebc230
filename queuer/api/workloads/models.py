"""The shapes of answers about workloads."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from queuer.api.controller import Controller
from queuer.api.http.lists import Page
from queuer.api.models import Amounts, Instant, Job, Model, instant
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.domain import reasons
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State
from queuer.store.tables import CommandVerb

_TIMES = frozenset({"deadline", "retryAt", "unmanagedSince", "until"})
"""Parameters of reasons that are times."""


class Reason(Model):
    """Why a workload waits: a stable token, what to do about it, and a sentence with the numbers."""

    token: Token
    verdict: Verdict
    unstartable: bool = Field(default=False, description="The job can never start as it is.")
    text: str


class PodSet(Model):
    """Pods of one role and shape; `requests` are the effective requests of one pod."""

    name: str
    count: int
    min_count: int | None = None
    requests: Amounts


class Setting(Model):
    """The author of a setting, when it was made, and why."""

    by: str
    at: Instant
    reason: str


class HoldSetting(Setting):
    """Whether the job is held, whatever it says itself."""

    value: bool


class PrioritySetting(Setting):
    """The priority that counts, whatever the job says itself."""

    value: int


class Override(Model):
    """Settings made over REST that beat the job's own words; null = the job's own counts."""

    hold: HoldSetting | None
    priority: PrioritySetting | None


class Workload(Job):
    """A row of the list: one user job. `priority`: the one that counts."""

    user: str
    priority: int
    state: State
    attempt: int
    demand: Amounts
    submitted: Instant
    admitted: Instant | None
    landed: Instant | None
    finished: Instant | None
    deleted: Instant | None = Field(description="When the job object was gone.")
    reason: Reason | None
    failure: str | None = Field(
        default=None, description="The cause of which it failed, or lost work as it ended."
    )
    domains: list[str] = Field(description="Where it was admitted to; empty while it waits.")
    holds: Amounts = Field(default={}, description="What it holds now, at the size that runs.")
    override: Override | None = None


class WorkloadGroup(Model):
    """Live jobs that are alike. `key`: what they have in common; null: they have none, as running ones no reason."""

    key: str | None
    jobs: int
    amounts: Amounts = Field(description="What all of them ask for together.")
    oldest: Instant = Field(description="The earliest submit time.")
    newest: Instant = Field(description="The latest submit time.")


class WorkloadList(Page):
    """A page of workloads; ask for the next one with `cursor=next`. With `groupBy` it has groups and no items."""

    items: list[Workload]
    next: str | None
    others: int | None = Field(
        description="Live jobs that match in namespaces that the caller may not read; null where it is not told."
    )
    groups: list[WorkloadGroup] | None = Field(default=None, description="Those of most jobs first.")
    groups_total: int | None = Field(default=None, description="How many groups there are, shown or not.")
    controller: Controller


class ReasonDetail(Reason):
    """A reason with its figures, which depend on the token, and since when it holds."""

    params: dict[str, Any] = Field(description="Amounts are quantities, times RFC 3339.")
    since: Instant | None = None

    @classmethod
    def from_record(cls, record: reasons.Reason, **more: Any) -> Self:
        """The same of a reason, whose figures are in base units and seconds."""
        times = {key: instant(record.params[key]) for key in _TIMES & record.params.keys()}
        return super().from_record(record, params={**record.shown, **times}, **more)


class Paragraph(Model):
    """A part of an answer in words."""

    label: str
    text: str


class Explanation(Model):
    """Why a workload waits: one primary reason, all others that hold, and the figures behind them.

    `paragraphs`: everything but the primary reason as it is shown to people.
    """

    uid: str
    state: State
    as_of: Instant | None = Field(description="When the last decision was.")
    cycle: int | None = Field(description="The last decision.")
    age_seconds: float | None
    kept: int | None = Field(
        description="The newest decision on record: one that changes nothing is not kept."
    )
    verdict: Verdict | None
    primary: ReasonDetail | None
    others: list[ReasonDetail]
    would_admit: list[WouldAdmit]
    detail: Detail
    do: str = Field(default="", description="What the reader can do now; empty: nothing has to be done.")
    next: str | None = Field(
        default=None,
        description="A command that does it or shows more. It runs as it stands, and the caller may give it.",
    )
    paragraphs: list[Paragraph] = Field(default=[])


class Placement(Model):
    """Where a pod set of an admitted workload goes: `count` pods to `nodes`, as was decided."""

    pod_set: str
    flavor: str
    count: int
    nodes: dict[str, int]
    hosts: dict[str, int] = Field(default={}, description="Where its pods ran once all of the gang did.")
    held: int | None = Field(
        default=None, description="Pods that it holds room for now; null: none any more."
    )
    selector: dict[str, str]


class Admission(Model):
    """The admission in force: which cycle decided it, and the places."""

    id: str
    cycle: int
    domains: list[str]
    placements: list[Placement]


class Moment(Model):
    """One entry of a workload's history."""

    at: Instant
    what: str
    text: str


class OrderedEviction(Model):
    """An eviction that somebody has ordered for later."""

    at: Instant
    reason: str


class WorkloadDetail(Workload):
    """One workload with everything that is known of it."""

    preemptible: bool
    required: str | None
    preferred: str | None
    max_runtime_seconds: float | None
    state_since: Instant
    hold: bool
    pod_sets: list[PodSet]
    admission: Admission | None
    eviction: OrderedEviction | None
    queue_borrows: Amounts = Field(
        default={},
        description="While it runs: what its queue uses above its guarantee, of resources that the job asks for. Other "
        "queues may take back their own from jobs there; of which of them, the decision says at its time.",
    )
    safe_until: Instant | None = Field(
        default=None,
        description="While it runs: no job takes its place before, by the minRuntime of its queue; null: at any time.",
    )
    explanation: Explanation
    timeline: list[Moment]
    may: list[CommandVerb] = Field(
        default=[], description="What the caller may do to it, as far as rights go."
    )
    as_of: Instant


class Span(Model):
    """A state that it was in; `to` null = it still is."""

    state: State
    begin: Instant = Field(serialization_alias="from")
    end: Instant | None = Field(serialization_alias="to")
    seconds: float
    attempt: int
    cause: str


class ReasonSpan(Model):
    """A reason for which it waited; `to` null = it still does."""

    token: Token
    text: str
    begin: Instant = Field(serialization_alias="from")
    end: Instant | None = Field(serialization_alias="to")
    seconds: float
    cycle: int | None


class Tick(Model):
    """A decision about it: it was started, evicted, or told another reason."""

    cycle: int
    at: Instant
    decision: str


class Timeline(Model):
    """The past of a workload. `seconds` of all reasons sum to `waitedSeconds`."""

    uid: str
    as_of: Instant
    submitted: Instant
    waited_seconds: float
    spans: list[Span]
    reasons: list[ReasonSpan]
    ticks: list[Tick]
