"""The input and the answer of `decide()`: a snapshot of cluster and queues, and a plan.

Both are plain immutable records without I/O, so that controller, simulator, what-if and replay share them.
Amounts are base units (`queuer.domain.quantity`), times seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from queuer.domain.assignments import Admission, Bond, Eviction, Reservation, SolveStatus
from queuer.domain.nodes import Flavor, Node, Topology
from queuer.domain.outside import Outside
from queuer.domain.past_use import Past
from queuer.domain.quantity import NOTHING, Resources
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node and what all pods bound to it request together, ours and others', terminating ones included."""

    node: Node
    used: Resources = field(default_factory=lambda: NOTHING)


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
    node name. `unbound`: pods that are still to land. `releasing`: being evicted or finished with pods left; it
    counts in full and is no victim any more. `gone_by`: of releasing work, until when its pods are expected to be gone
    (seconds); None = nobody knows. `expected_end`: None = unknown. `displaced_by`: see `Pending`; it stays while the
    gang runs again. `evicted`: how often it was evicted in the last hour.
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
    evicted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A workload that waits.

    `avoid`: nodes it recently failed to land on. `first`: just interrupted by a failure that was not its own, so
    that it is offered before all others, whatever their queues. `displaced_by`: the uid for whose sake it was last
    evicted, which it never evicts; none where it never was, or for nobody's sake. `unstartable`: a decision found that
    it can never start as it is; told of those alone who are not offered. `failed`: more than one start in a row failed,
    so that it evicts nobody.
    """

    workload: Workload
    avoid: frozenset[str] = frozenset()
    first: bool = False
    displaced_by: frozenset[str] = frozenset()
    unstartable: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a decision depends on, besides now, seed and budget. Every uid occurs once over admitted and
    pending. `past`: of queues chosen by a policy with `halfLife`.

    `over_limit`: others that wait, of whom nothing is decided, as their users have what they may (`access.perUser`).
    They are told for questions about other rules. `outside`: owners of the pods in `used` that no queue pays for; told
    for whoever asks who holds the room.
    """

    nodes: tuple[NodeState, ...]
    tree: QueueTree
    topology: Topology = field(default_factory=Topology)
    flavors: tuple[Flavor, ...] = ()
    admitted: tuple[Admitted, ...] = ()
    pending: tuple[Pending, ...] = ()
    over_limit: tuple[Pending, ...] = ()
    bonds: tuple[Bond, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    past: Past = field(default_factory=lambda: MappingProxyType({}))
    outside: tuple[Outside, ...] = ()

    @property
    def rules(self) -> Rules:
        """The configuration, whose revision a snapshot does not know."""
        return Rules(tree=self.tree, flavors=self.flavors, topology=self.topology)

    @classmethod
    def under(cls, rules: Rules, *, nodes: tuple[NodeState, ...]) -> Snapshot:
        """These nodes under a configuration, without any work."""
        return cls(nodes=nodes, tree=rules.tree, topology=rules.topology, flavors=rules.flavors)

    def workloads(self) -> dict[str, Workload]:
        """All that waits or runs, by uid."""
        rows: tuple[Pending | Admitted, ...] = (*self.pending, *self.admitted)
        return {row.workload.uid: row.workload for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one decision.

    `deterministic`: CP-SAT's deterministic time, the same on every machine; 0 = CP-SAT is not asked. `wall`: seconds
    after which the caller gives the solver process up. `bond`: seconds a bond lasts, unless those it waits for are
    known to take longer.
    """

    deterministic: float = 2.0
    wall: float = 5.0
    bond: float = 300.0


WITHOUT_SOLVER = Budget(deterministic=0.0)
"""Every question beside the decisions is answered without CP-SAT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStats:
    """Figures of one decision; part of the cycle's record.

    `turns`: gangs that had one. `searches`: how often victims were looked for; `proved`: how often nothing was
    cheaper on the nodes that were looked at. `contested`: gangs that the repair was asked to fit in. `repaired`:
    those of them that start. `solver_time`: deterministic time of CP-SAT, in the unit of `Budget.deterministic`.
    `refused`: gangs that the verifier took out. `more`: a limit of this cycle left something out, so the next
    should follow at once.

    The caller of `decide()` sets three fields. `phases`: seconds by phase. `fallback`: the fate of the solver
    process if another had to decide. `note`: the same as a sentence.
    """

    status: SolveStatus
    turns: int = 0
    searches: int = 0
    proved: int = 0
    contested: int = 0
    repaired: int = 0
    refused: int = 0
    solver_time: float = 0.0
    more: bool = False
    phases: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    fallback: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer of one cycle.

    `bonds`, `reservations`: all that hold after this cycle, old ones that stand included. `explanations`: one
    for every pending workload that is not admitted, by uid; gangs that wait for the same share one. `order`: pending
    uids in the order of their turns, those that had none after these.
    """

    admissions: tuple[Admission, ...]
    evictions: tuple[Eviction, ...]
    bonds: tuple[Bond, ...]
    reservations: tuple[Reservation, ...]
    explanations: Mapping[str, Explanation]
    order: tuple[str, ...]
    stats: CycleStats
