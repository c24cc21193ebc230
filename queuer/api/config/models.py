"""The shapes of answers about changes of the configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from queuer.api.models import Amounts, FieldError, Instant, Job, Model
from queuer.domain.queue import QueueState
from queuer.store.tables import Effect


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
    warnings: list[FieldError]


class Jobs(Model):
    """How many jobs, what they ask for or hold together, and those of them that the caller may see (100 at most)."""

    count: int = 0
    amounts: Amounts = Field(default_factory=dict)
    jobs: list[Job] = Field(default_factory=list)


class OverLimit(Model):
    """A limit that is cut below what is used, by `over`."""

    queue: str
    flavor: str | None
    resource: str
    limit: str
    used: str
    over: str


class Reclaimable(Model):
    """How much more of what runs in a leaf others could take back."""

    queue: str
    flavor: str | None
    resource: str
    amount: str


class Impact(Model):
    """What the decision says on the newest stored cycle. `starts`: waiting jobs that would start now, or once the
    running jobs of `evicted` have left; `unstartable`: those that never could any more; `unstartableRunning`: running
    jobs that never could again once they have left; `unknown`: jobs that came while their queue drained, so that cycle
    does not have them. It is `as of` that cycle, and no promise.
    """

    cycle: int
    as_of: Instant
    starts: Jobs
    evicted: Jobs = Field(default_factory=Jobs)
    unstartable: Jobs
    unstartable_running: Jobs = Field(default_factory=Jobs)
    unknown: Jobs = Field(default_factory=Jobs)


class StateChange(Model):
    """A queue that is held, drains or is opened, with the jobs of its subtree. `text`: what becomes of them."""

    queue: str
    state: QueueState
    running: Jobs
    waiting: Jobs
    text: str


class Report(Model):
    """What a changeset does to work. `reductions`: what needs a reason; `victims`: who would have to go for all limits
    to hold, in this order; they go with `effect: evict` only. `impact` is null where `impactMissing` says why.
    """

    warnings: list[FieldError] = Field(default_factory=list)
    reductions: list[FieldError] = Field(default_factory=list)
    over_limit: list[OverLimit] = Field(default_factory=list)
    reclaimable: list[Reclaimable] = Field(default_factory=list)
    victims: Jobs = Field(default_factory=Jobs)
    states: list[StateChange] = Field(default_factory=list)
    impact: Impact | None = None
    impact_missing: str = ""


class Changeset(Report):
    """A change of the configuration, planned or applied. `id` null: it was not kept, as there is nothing to apply or
    only a dry run was asked for. `root`: who administers this queue may apply it. `revision`: the one that it made;
    `reverts`: the one that it takes back.
    """

    id: str | None
    state: Literal["planned", "expired", "discarded", "applied"]
    root: str
    base_revision: int
    revision: int | None = None
    reverts: int | None = None
    actor: str
    source: str
    managed_by: str
    reason: str | None = None
    effect: Effect = Effect.DRAIN
    evict_after: str | None = None
    planned: Instant | None = None
    expires: Instant | None = None
    applied: Instant | None = None
    changes: list[Change]


class ChangesetList(Model):
    """A page of applied changesets, newest first."""

    items: list[Changeset]
    next: str | None


class ReasonGiven(Model):
    """Why, for the audit."""

    reason: Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00]*$")] = ""
