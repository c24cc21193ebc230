"""What `decide()` is given and what it answers: a snapshot of the cluster and the queues, and a plan.

Both are plain immutable records without I/O, so that controller, simulator, what-if and replay share them.
Amounts are base units (`queuer.domain.quantity`), times seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from queuer.domain.nodes import Flavor, Node, Topology
from queuer.domain.past import Past
from queuer.domain.quantity import NOTHING, Resources
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Deferral, Explanation
from queuer.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node and what all pods bound to it request together, ours and others', terminating ones included."""

    node: Node
    used: Resources = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Where one pod set goes: one flavor, a number of pods on each host (sum > 0), and the pin that says so
    to kube-scheduler.

    `selector`: node labels to require (flavor labels and, where safe, the widest domain). `hosts`: node names
    to require beside the selector, None = any node under the selector.
    """

    pod_set: str
    flavor: str
    nodes: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hosts: tuple[str, ...] | None = None

    @property
    def count(self) -> int:
        """Pods of this set that are admitted."""
        return sum(self.nodes.values())


class Turn(NamedTuple):
    """When a gang came that has not landed, or lost pods for which others wait: cycle, wave in it, and whether
    its pods are `held` back until those have landed that came before and share a host with it.
    """

    cycle: int
    wave: int
    held: bool = False


def waits_for(one: Turn | None, other: Turn | None) -> bool:
    """Whether the pods of one come only once those of the other have landed, where they share a host. Pods of a landed
    gang that does not recover from the loss of some have no turn: nobody is counted on to wait for them.
    """
    return one is not None and other is not None and one.held and other[:2] < one[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbound:
    """Pods of an admitted gang that are not bound yet: they may land on any of `hosts`, whichever kube-scheduler
    picks. Of pods that keep off each other, hosts where one lies already are not among them.
    """

    pod_set: str
    count: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A workload that holds quota and capacity.

    `counts`, `flavors`: admitted size and flavor by pod set name. `since`: start of the run (or admission
    while placing); lost work counts from `checkpoint` if that is later. `bound`: requests of its live pods by
    node name. `releasing`: being evicted or finished with pods left; it counts in full and is no victim any
    more. `gone_by`: of releasing work, until when its pods are expected to be gone (seconds); None = nobody knows.
    `expected_end`: None = unknown. `displaced_by`: see `Pending`; it stays while the gang runs again. `turn`: of a gang
    that has not landed yet, or misses pods for which others wait; None = its pods come at any time.
    """

    workload: Workload
    counts: Mapping[str, int]
    flavors: Mapping[str, str]
    since: float
    checkpoint: float | None = None
    bound: Mapping[str, Resources] = field(default_factory=lambda: MappingProxyType({}))
    unbound: tuple[Unbound, ...] = ()
    releasing: bool = False
    gone_by: float | None = None
    expected_end: float | None = None
    displaced_by: frozenset[str] = frozenset()
    turn: Turn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A workload that waits.

    `avoid`: nodes it recently failed to land on. `first`: interrupted by a failure that was not its own, so
    that its leaf offers it before all others. `displaced_by`: the uid for whose sake it was last evicted; none
    where it never was, or for nobody's sake. It displaces neither that one in turn, nor the one for whose sake that
    one was last evicted, and so on along those that wait or run (`Prey.spared` says why).
    """

    workload: Workload
    avoid: frozenset[str] = frozenset()
    first: bool = False
    displaced_by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bond:
    """A gang's proven place and quota, held for it while its victims leave. It ends at `deadline` or when it
    landed. `victims`: those evicted for it, and others whose room it needs: who leaves anyway, victims of other gangs.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    victims: tuple[str, ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Capacity held from `start` for a gang that is blocked by capacity alone.

    A `start` that has come: no end is known, and what the place has or gets is kept for the gang from then on.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    start: float
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a decision depends on, besides now, seed and budget. Every uid occurs once over admitted and
    pending. `past`: of queues chosen by a policy with `halfLife`.
    """

    nodes: tuple[NodeState, ...]
    tree: QueueTree
    topology: Topology = field(default_factory=Topology)
    flavors: tuple[Flavor, ...] = ()
    admitted: tuple[Admitted, ...] = ()
    pending: tuple[Pending, ...] = ()
    bonds: tuple[Bond, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    past: Past = field(default_factory=lambda: MappingProxyType({}))

    def workloads(self) -> dict[str, Workload]:
        """All that waits or runs, by uid."""
        rows: tuple[Pending | Admitted, ...] = (*self.pending, *self.admitted)
        return {row.workload.uid: row.workload for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one decision.

    `deterministic`: CP-SAT's deterministic time for all passes of an attempt together, the same on every machine.
    Each attempt after the first has what is left, a quarter at least. Greedy's plan, with which the exact solver's is
    compared where that may have lost something (where a subtree is packed, somebody was moved, or anything was
    contested beside a reservation: docs/decision.md), has a quarter for its proofs. Two and a half times this are
    spent at most. `wall`: seconds after which the caller kills the solver and takes the greedy plan. 0 = greedy only.
    `bond`: seconds a bond lasts, unless those it waits for are known to take longer.
    """

    deterministic: float = 2.0
    wall: float = 5.0
    bond: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A gang to unsuspend now.

    `wave`: gangs of one wave can land in any order, whatever kube-scheduler picks within the pins; a gang of
    a later wave is patched only when all earlier ones that share a host with it have landed.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    wave: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A gang to evict now for the sake of `beneficiary` (a workload uid), with the rule that permits it."""

    uid: str
    beneficiary: str
    rule: EvictionRule


class EvictionRule(StrEnum):
    """DESIGN 3.3: reclaim takes back a guarantee, preempt displaces lower priority."""

    RECLAIM = "reclaim"
    PREEMPT = "preempt"


class SolveStatus(StrEnum):
    """How far the solver came in this cycle."""

    GREEDY = "GREEDY"  # nothing was contested, or budget 0
    OPTIMAL = "OPTIMAL"  # every contested gang settled and every pass proven
    FEASIBLE = "FEASIBLE"  # something is open: gangs are SolverDeferred, await pods or wait apart, or no pass is proven
    FAILED = "FAILED"  # killed, crashed, left out, or its plan was refused: the greedy plan stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How far each pass came, summed over all `attempts` at a plan in one decision. The same arguments give the same.

    Deterministic time of the exact solver, in the unit of `Budget.deterministic`: `selection` of packed subtrees;
    `questions` about contested gangs that open victims, or look at single nodes in small clusters; `layouts`, about
    places alone, proofs by prices included; `improvement` of victims and places. Steps of greedy's searches: `victims`
    who went or came back, `arrangements` and `moves`, placements tried to lay out anew all that has started, or to get
    a few out of the way. In each attempt `evict.WORK`, `rearrange.REARRANGE` and `displace.PLACEMENTS` bound the steps.
    """

    attempts: int = 0
    selection: float = 0.0
    questions: float = 0.0
    layouts: float = 0.0
    improvement: float = 0.0
    victims: int = 0
    arrangements: int = 0
    moves: int = 0

    @property
    def times(self) -> dict[str, float]:
        """Deterministic time by pass."""
        return {name: getattr(self, name) for name in ("selection", "questions", "layouts", "improvement")}

    @property
    def steps(self) -> dict[str, int]:
        """Steps by search."""
        return {name: getattr(self, name) for name in ("victims", "arrangements", "moves")}

    @property
    def spent(self) -> float:
        """Deterministic time of all passes."""
        return sum(self.times.values())

    def __add__(self, other: Passes) -> Passes:
        return Passes(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Passes)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStats:
    """What happened inside one decision; part of the cycle's record. Times in seconds.

    Of the gangs `contested`, some were `rearranged` for, `proved` to have no place (of these `proved_in_place` with the
    victims of the cycle as they are, who might have been others) or `deferred`, by their `causes`. `passes`: None = not
    told.

    Told by who called `decide()`: `phases`, seconds by phase; `fallback`, why greedy stood in for the solver
    process, a word of `queuer.solver.child.Outcome`.
    """

    status: SolveStatus
    considered: int = 0
    contested: int = 0
    rearranged: int = 0
    proved: int = 0
    proved_in_place: int = 0
    deferred: int = 0
    causes: Mapping[Deferral, int] = field(default_factory=lambda: MappingProxyType({}))
    passes: Passes | None = None
    phases: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    fallback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer of one cycle.

    `bonds`, `reservations`: all that hold after this cycle, old ones that stand included. `explanations`: one
    for every pending workload that is not admitted, by uid. `order`: pending uids as they were considered.
    """

    admissions: tuple[Admission, ...]
    evictions: tuple[Eviction, ...]
    bonds: tuple[Bond, ...]
    reservations: tuple[Reservation, ...]
    explanations: Mapping[str, Explanation]
    order: tuple[str, ...]
    stats: CycleStats
