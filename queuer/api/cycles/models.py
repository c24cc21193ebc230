"""The shapes of answers that are made of the newest stored cycle."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from queuer.api.controller import Controller
from queuer.api.http.lists import Page
from queuer.api.models import Amounts, Instant, Job, Model
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.api.workloads.models import ReasonDetail
from queuer.domain.workload import State


class Answer(StrEnum):
    """The fate of a job that were submitted now."""

    STARTS = "starts"
    EVICTS = "evicts"
    WAITS = "waits"
    UNSTARTABLE = "unstartable"


class Place(Model):
    """Where a pod set would go."""

    pod_set: str
    flavor: str
    count: int
    nodes: dict[str, int]


class Leaving(Model):
    """The evictions in one queue."""

    queue: str
    gangs: int
    amounts: Amounts


class Simulation(Model):
    """The decision's answer to one more job; nothing is held for it."""

    answer: Answer
    label: str = Field(description="How far this can be relied on.")
    warnings: list[str] = Field(default=[], description="What was assumed or not considered, in sentences.")
    not_considered: list[str] = Field(
        default=[],
        description="Kinds of objects in the namespace that may stand against the job, and that nobody looked at.",
    )
    cycle: int
    as_of: Instant
    places: list[Place] = Field(default=[], description="Where it would start.")
    evictions: list[Leaving] = Field(default=[], description="By queue what would have to leave first.")
    primary: ReasonDetail | None = Field(default=None, description="Why it would wait.")
    others: list[ReasonDetail] = Field(default=[], description="Further reasons that hold.")
    would_admit: list[WouldAdmit] = Field(default=[], description="Changes that were tried and work.")
    detail: Detail = Field(default=Detail(), description="Figures as in an explanation.")
    controller: Controller | None = None


class HeldFor(Model):
    """A waiting job that room is held for. Without names where the caller may not read its namespace."""

    uid: str | None
    kind: str | None
    namespace: str | None
    name: str | None
    queue: str
    start: Instant | None = Field(
        description="Of its reservation, past where no end is known; null = once its victims have left."
    )
    amounts: Amounts = Field(description="What it takes there, also of what others still use.")


class Domain(Model):
    """A domain of a level, as the newest cycle leaves it. `reserved` and `free` are of nodes that can be used."""

    domain: str
    parent: str | None = Field(description="The domain one level wider, by its path.")
    nodes: int
    cordoned: int
    not_ready: int
    allocatable: Amounts
    used: Amounts = Field(description="By pods of queues.")
    outside: Amounts = Field(description="By pods that no queue pays for.")
    reserved: Amounts = Field(
        description="Taken by nobody, and held: for `heldFor`, or where pods are landing."
    )
    free: Amounts = Field(description="Neither taken nor reserved.")
    held_for: list[HeldFor]
    whole_nodes: int = Field(description="Nodes that can be used and where nothing of the resource is taken.")


class Topology(Model):
    """Domains of one level, those with most free first."""

    cycle: int
    as_of: Instant
    levels: list[str]
    level: str
    resource: str
    domains: list[Domain]
    left_out: int = Field(description="Domains beyond the bound of an answer.")
    used: str
    outside: str
    reserved: str
    free: str
    largest_free: str
    fragmentation: float = Field(description="1 - largest free amount of a domain / all that is free.")
    controller: Controller | None = None


class Slots(Model):
    """How many gangs of a shape have room now at each level, quota aside."""

    level: str
    domains: int
    gangs: int
    fitting_domains: int
    best: str | None
    best_pods: int
    places: list[str] = Field(
        default=[],
        description="Domains with room for a gang, the best first; told where one level is asked for.",
    )


class SlotTable(Model):
    """The levels, widest first; the last row is the whole flavor."""

    cycle: int
    as_of: Instant
    shape: str
    flavor: str
    rows: list[Slots]
    controller: Controller | None = None


class Cycle(Model):
    """A committed decision."""

    id: int
    started: Instant
    finished: Instant
    trigger: str
    status: str = Field(description="What CP-SAT did: GREEDY not asked, OPTIMAL, FEASIBLE, FAILED.")
    admitted: int
    evicted: int
    waiting: int
    stats: dict[str, Any] = Field(description="Turns, searches, what the repair was asked, seconds by phase.")
    replayable: bool = Field(description="Whether it is the one that is stored.")


class Decision(Job):
    """A job that a decision admitted or evicted."""

    to: State
    amounts: Amounts
    text: str


class CycleDetail(Cycle):
    """A decision with the jobs that it moved, of namespaces that the caller may read."""

    decisions: list[Decision] = Field(description="50 at most.")
    before: int | None = Field(description="The decision that is kept before this one.")
    after: int | None


class CycleList(Page):
    """Decisions, newest first."""

    items: list[Cycle]
    next: str | None


class Replay(Model):
    """The stored decision made anew."""

    cycle: int
    same: bool
    difference: str = Field(description="The first place at which the plans differ; empty where they do not.")
    seconds: float
