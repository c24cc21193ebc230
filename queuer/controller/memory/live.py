"""One workload as the controller's memory holds it: the row of the store, the job of the cluster, its
admission.

Records are immutable; a change is a new record put in place of the old one after it is in the database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any

from queuer.controller.memory.pods import PodView
from queuer.domain.assignments import Placement
from queuer.domain.override import Override
from queuer.domain.per_user import is_unstartable
from queuer.domain.reasons import Explanation
from queuer.domain.workload import State, Workload
from queuer.store.tables import NotAsked
from queuer.store.workloads import Setback, StoredWorkload

HOUR = 3600.0
"""How long an eviction is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A gang that misses pods, from look to look.

    `since`: when a pod last came onto a node, or was made where none was waiting. At first, when the job was patched or
    the loss was seen. Never before the pods that leave are to be gone. `made`: whether pods of it are waiting for a
    node. `gated`: pods that came in place of others and still have our gate. `due`: pods that have still to come onto a
    node until each place was filled once. `seen`: uids of the pods on nodes at the last look. `lost`: one did not end
    well: that is told, and later that all are back.
    """

    since: float
    made: bool = False
    gated: int = 0
    due: int = 0
    seen: frozenset[str] = frozenset()
    lost: bool = False


FIRST = 900.0
"""Seconds after an interruption in which work goes before all other: as long as a landing may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A workload that waits, runs, or has ended with something left to release.

    `told`: when a decision last wrote
    down its explanation. `landed`: when the last pod was bound.
    `short`: what it misses; None = nothing, or nobody has looked since this process leads. `not_asked`: why no
    decision is asked about it. `avoid`, `failures`, `rest`, `first`: see `setback`.
    `displaced_by`: see `Pending`. `evictions`: when it was evicted, none of the last `HOUR` left out.
    `left`: since when it is on its way out; None = it is not, or was before this process led. `taken_down`: when Queuer
    last deleted pods that were left, and suspended the Jobs that make them. `asked`: what its
    owner asked for when it was last read whole; None = not since this process leads. `override`: what counts instead
    of the job's own words.
    """

    workload: Workload
    state: State
    attempt: int = 1
    placement: Placement | None = None
    explanation: Explanation | None = None
    not_asked: NotAsked | None = None
    told: float = 0.0
    landed: float | None = None
    running: float | None = None
    short: Short | None = None
    avoid: Mapping[str, float] = field(default_factory=dict)
    failures: int = 0
    first: bool = False
    displaced_by: frozenset[str] = frozenset()
    evictions: tuple[float, ...] = ()
    rest: float | None = None
    left: float | None = None
    taken_down: float | None = None
    asked: Workload | None = None
    deleted: bool = False
    override: Override | None = None

    @property
    def uid(self) -> str:
        """Uid of the job."""
        return self.workload.uid

    @property
    def setback(self) -> Setback:
        """The traces of earlier admissions, as the store keeps them."""
        return Setback(
            uid=self.uid, avoid=self.avoid, first=self.first, failures=self.failures, rest=self.rest
        )

    @property
    def in_line(self) -> bool:
        """Whether it has a place in the line of its queue: it waits, and nothing is wrong with it."""
        return self.state is State.QUEUED and self.not_asked in (None, NotAsked.OVER_MAX_PENDING)

    @property
    def unstartable(self) -> bool:
        """Whether it waits, and was told that it can never start on these nodes and queues, whoever's it is."""
        return self.in_line and is_unstartable(self.explanation)

    def lately(self, *, now: float) -> tuple[float, ...]:
        """When it was evicted in the last hour."""
        return tuple(at for at in self.evictions if at > now - HOUR)

    def goes_first(self, *, now: float) -> bool:
        """Whether a failure of the cluster interrupted it so lately that it goes before all others."""
        return self.first and bool(self.evictions) and now - self.evictions[-1] < FIRST

    @property
    def charged(self) -> bool:
        """Whether its ledger is open: it holds quota and capacity."""
        return self.placement is not None

    @property
    def is_over(self) -> bool:
        """Whether it has ended or its job is gone, and it holds nothing: memory forgets it."""
        return (self.state.ended or self.deleted) and not self.charged


SLACK = 30.0
"""Seconds after its grace in which a pod is mostly gone: whoever deletes it may be behind, and the kubelet kills what
still runs, unmounts and reports before the object goes.
"""


def gone_by(live: Live, pods: Collection[PodView]) -> float | None:
    """Until when it is expected to hold nothing any more; None = nobody knows.

    Kubernetes tells of a pod that is being deleted when its grace ends. Other pods will be
    told to go once their controller has seen that the job ends. Without pods only our own release is to come.
    """
    asked = [pod.deleted for pod in pods if not pod.ended and pod.deleted is not None]
    others = [pod.grace for pod in pods if not pod.ended and pod.deleted is None]
    if live.left is not None:
        return max([live.left, *asked, *(live.left + grace for grace in others)]) + SLACK
    return None if others or not asked else max(asked) + SLACK


def take_down_at(live: Live, *, after: float) -> float:
    """When Queuer deletes pods that the controller of an evicted job leaves alone; inf = never, as its owner suspended
    it. A controller that makes them anew is given twice as long each time.
    """
    if live.left is None or live.left not in live.evictions:
        return inf
    return live.left + (after if live.taken_down is None else 2 * (live.taken_down - live.left))


def silent_at(live: Live, *, after: float) -> float:
    """From when on a leaving job without pods needs no word of its controller; inf = it does, nobody knows since when
    it leaves. One that makes pods anew does so at once, or through Jobs that Queuer suspends first.
    """
    return inf if live.left is None else max(live.left, live.taken_down or live.left) + after


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The job object, as far as landing and patching need it.

    `suspended`: as its spec says. `failure`: what it says itself of its failure. `quiet`: its controller confirms
    that it is suspended with no active pod. `admission`: id in our annotation. `left`: pods that it still owes, None
    where it does not count them. `restarts`, `repeats`, `lingers`: see `JobKind`. `sizes`: pods by pod set that it runs
    at once, as it says now; {} = not known. `declared`: pods by pod set as its owner wrote, whatever is left to run; {}
    = its owner wrote no number. `late`: pod sets whose pods are made once all others are ready. `groups`: of the user
    who queued it. `gated`: its pods that still have our gate. `comes_back`: see `JobKind`. `deleting`: its deletion was
    asked for, and finalizers keep it. `unfinished`: its controller is about to make what it is read from.
    `makes_jobs`: see `JobKind`.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    resource_version: str
    suspended: bool
    quiet: bool = False
    outcome: State | None = None
    failure: str = ""
    admission: str | None = None
    status: str | None = None
    left: int | None = None
    restarts: bool = True
    repeats: bool = False
    lingers: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    deleting: bool = False
    gated: int = 0
    comes_back: bool = True
    unfinished: bool = False
    makes_jobs: bool = False
    object: Any = None


def lingers(live: Live, job: JobView | None) -> bool:
    """Whether it has ended and its pods stay until it is evicted: it can be, like running work."""
    placement = live.placement
    if placement is None or placement.unconfirmed or not live.state.ended or live.deleted:
        return False
    return job is not None and job.outcome is not None and job.lingers and not job.deleting


def live_of(
    stored: StoredWorkload,
    placement: Placement | None,
    *,
    displacer: str | None,
    evictions: tuple[float, ...] = (),
    held: Mapping[str, int] = MappingProxyType({}),
) -> Live:
    """A workload as memory held it before the restart. `displacer`: for whose sake it was last evicted; `evictions`:
    see `Live`; `held`: see `ledger.load_held`. A pod set whose row is missing is charged in full: that is drift.

    When its PATCH was sent and its pods landed is read from the cluster again; a landing deadline starts anew.
    """
    setback = stored.setback
    if placement is not None:
        counts = placement.counts
        charged = {name: held.get(name, count) for name, count in counts.items()}
        placement = placement if charged == counts else replace(placement, reduced=charged)
    return Live(
        workload=stored.workload,
        state=stored.state,
        attempt=stored.attempt,
        placement=placement,
        explanation=stored.explained,
        not_asked=stored.not_asked,
        landed=stored.landed_at,
        running=stored.landed_at,
        avoid=setback.avoid,
        failures=setback.failures,
        rest=setback.rest,
        first=setback.first,
        displaced_by=frozenset() if displacer is None else frozenset({displacer}),
        evictions=evictions,
        deleted=stored.deleted_at is not None,
        override=stored.override,
    )


def matters(before: Live | None, after: Live | None) -> bool:
    """Whether a decision may come out differently because of this step."""
    if before is None or after is None:
        return True
    landed = before.landed is None and after.landed is not None
    whole = before.short is not None and after.short is None  # its hosts are others' again
    waits = (before.workload, before.state, before.not_asked, before.rest) != (
        after.workload, after.state, after.not_asked, after.rest,
    )  # fmt: skip
    return landed or whole or _held(before) != _held(after) or (after.state.waiting and waits)


def _held(live: Live) -> Mapping[str, int] | None:
    return None if live.placement is None else live.placement.held
