"""Questions about a stored cycle, as records that answer themselves where the cycle is kept (`kept_cycle`).

Each answer is a plain record: the question travels to a child process as a pickle, and its answer back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from queuer.domain.errors import InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.intake import check, over_max_pending, refused
from queuer.domain.keys import PRIORITY_CLASS
from queuer.domain.per_user import too_large
from queuer.domain.quantity import Resources, full_name
from queuer.domain.queue import Access, QueueState
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules, allowed_flavors
from queuer.domain.shape_text import parse_amounts, parse_shape
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.clustermap import DomainRow, SlotRow
from queuer.solver.explain.unstartable import Outlook
from queuer.solver.headroom import Headroom, headroom, pod_of
from queuer.solver.job_detail import explain
from queuer.solver.kept_cycle import DecidedCycle
from queuer.solver.shares import Pair, QueueShare, deficits, pairs, shares
from queuer.solver.stored import StoredCycle, again, difference
from queuer.solver.whatif import Difference, Simulated, simulate
from queuer.solver.whatif import difference as rules_difference

FLAVORS, RESOURCES = 4, 4
"""Flavors and resources that a headroom has at most."""
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
_NO_SIZE = ("pods", "ephemeral-storage")
"""Resources that nobody is told a headroom of, unless asked."""


# One job


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJob:
    """Everything that can be said about a waiting job."""

    uid: str

    def answer(self, cycle: DecidedCycle) -> Explanation | None:
        """None: it does not wait after the cycle."""
        return explain(cycle.after, self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateJob:
    """The fate of one more job: the rules of intake, the limits of its user, then the decision.

    `rules`: those in force, or others; `groups`: of its user; `ahead`: how many of its namespace wait in its queue.
    `priority_classes`: the highest gives the priority, none = that of jobs that name none; None = the workload has it
    already.
    """

    workload: Workload
    rules: Rules
    groups: tuple[str, ...] = ()
    priority_classes: frozenset[str] | None = None
    ahead: int = 0

    def answer(self, cycle: DecidedCycle) -> Simulated:
        """Raises InvalidInput, UnsoundPlan."""
        workload, values = self.workload, cycle.stored.priorities
        if self.priority_classes is not None:
            ranks = [_priority(name, values) for name in sorted(self.priority_classes)]
            workload = replace(workload, priority=max(ranks, default=values.get("", 0)))
        refusal = self._refusal(workload, cycle.stored)
        found = Simulated(explanation=refusal)
        if refusal is None:
            found = simulate(cycle.after, workload, self.rules)
        return replace(found, unseen=cycle.stored.unseen.get(workload.namespace, ()))

    def _refusal(self, workload: Workload, cycle: StoredCycle) -> Explanation | None:
        """Why no decision would be asked about it."""
        rules, nodes = self.rules, [state.node for state in cycle.snapshot.nodes]
        fault = check(
            workload, rules.tree, rules.topology, nodes, priorities=cycle.priorities, groups=self.groups
        )
        if fault is not None:
            return fault.explanation
        most = rules.tree.access(workload.queue).max_pending
        if most is None or self.ahead < most:
            return None
        unstartable = Outlook(nodes, rules).unstartable(workload) or too_large(workload, rules.tree)
        return unstartable or over_max_pending(workload.queue, workload.namespace, most)


def _priority(name: str, values: Mapping[str, int]) -> int:
    """The priority of a class. Raises InvalidInput."""
    if name not in values:
        known = [each for each in values if each]
        message = f"there is no PriorityClass {name[:60]!r}"
        raise InvalidInput.at(f"label {PRIORITY_CLASS}", message, nearest(name[:60], known))
    return values[name]


# Queues


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRanks:
    """Places in the order of the cycle."""

    def answer(self, cycle: DecidedCycle) -> dict[str, int]:
        """By uid, of all that take part. A job that can never start is ahead of nobody."""
        why = cycle.plan.explanations
        line = (g.uid for g in cycle.ranked.line if g.uid not in why or not why[g.uid].unstartable)
        return {uid: rank for rank, uid in enumerate(line)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomTable:
    """`state`: the queue's effective one; `access`: with what it inherits; `rows`: by pod shape and flavor."""

    leaf: bool
    state: QueueState
    access: Access
    rows: tuple[Headroom, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHeadroom:
    """How much one job of a user may start now. `shape`: one pod, None = one for each resource with a quota."""

    queue: str
    shape: str | None
    user: str

    def answer(self, cycle: DecidedCycle) -> HeadroomTable | None:
        """None: the cycle does not know the queue. Raises InvalidInput for a wrong shape."""
        tree, nodes = cycle.after.state.book.tree, cycle.after.state.nodes
        if self.queue not in tree:
            return None
        given = None if self.shape is None else parse_amounts(self.shape, resources=nodes.resources)
        pods = self._pods(cycle.after) if given is None else [given]
        return HeadroomTable(
            leaf=tree.is_leaf(self.queue),
            state=tree.effective_state(self.queue),
            access=tree.access(self.queue),
            rows=tuple(row for pod in pods for row in self._rows(cycle.after, pod)),
        )

    def _pods(self, after: AfterCycle) -> list[Resources]:
        """One for each resource that rows on the path name, else for each that a node has."""
        tree, nodes = after.state.book.tree, after.state.nodes
        named = [row.resource for queue in tree.lineage(self.queue) for row in tree[queue].quota]
        names = dict.fromkeys(name for name in named or nodes.resources if name not in _NO_SIZE)
        return [pod_of(name) for name in names if nodes.knows([name])][:RESOURCES]

    def _rows(self, after: AfterCycle, pod: Resources) -> Iterator[Headroom]:
        state = after.state
        probe = PodSet(name="main", count=1, requests=pod)
        flavors = allowed_flavors(
            probe, queue=self.queue, tree=state.book.tree, flavors=state.snapshot.flavors
        )
        for flavor in [f for f in flavors if state.nodes.in_flavor[f].any()][:FLAVORS]:
            yield headroom(after, self.queue, pod, flavor=flavor, user=self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareTable:
    """`deficits`: by leaf and resource; see `solver.shares`."""

    rows: tuple[QueueShare, ...]
    deficits: Mapping[tuple[str, str], int]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """How the order compares the queues below one, and who has what the starved lack."""

    root: str

    def answer(self, cycle: DecidedCycle) -> FairShareTable:
        """Parents before children."""
        after, lacking = cycle.ranked, deficits(cycle.ranked, self.root)
        return FairShareTable(
            rows=tuple(shares(after, self.root)), deficits=lacking, pairs=tuple(pairs(after, lacking))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesDifference:
    """The changes that other rules make for waiting jobs."""

    before: Rules
    after: Rules

    def answer(self, cycle: DecidedCycle) -> Difference:
        """Raises UnsoundPlan, InvalidInput."""
        stored = cycle.stored
        return rules_difference(
            cycle.after, before=self.before, then=self.after,
            refused=lambda workload, rules: refused(workload, rules.tree, stored.priorities),
        )  # fmt: skip


# The cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTable:
    """Domains of one level with the amounts of one resource, those with most free first."""

    levels: tuple[str, ...]
    level: str
    resource: str
    rows: tuple[DomainRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDomains:
    """The domains of a level. Default: the widest, and a device, else cpu."""

    level: str | None
    resource: str | None

    def answer(self, cycle: DecidedCycle) -> DomainTable:
        """Raises InvalidInput for a level or resource that there is not."""
        there = cycle.map
        main = next((name for name in there.resources if name not in _PLAIN), "cpu")
        level = _known(self.level or there.levels[0], there.levels, field="level")
        resource = full_name(self.resource or main, there.resources)
        resource = _known(resource, there.resources, field="resource")
        rows = tuple(there.domains(level, resource))
        return DomainTable(levels=there.levels, level=level, resource=resource, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTable:
    """Gangs that fit now, by level."""

    flavor: str
    rows: tuple[SlotRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSlots:
    """How many gangs of a shape fit. `level`: this alone; `flavor`: default the first."""

    shape: str
    level: str | None
    flavor: str | None

    def answer(self, cycle: DecidedCycle) -> SlotTable:
        """Raises InvalidInput for a wrong shape, and for a level or flavor that there is not."""
        there = cycle.map
        shape = parse_shape(self.shape, resources=there.resources)
        flavor = _known(self.flavor or there.flavors[0], there.flavors, field="flavor")
        rows = there.slots(shape, flavor)
        if self.level is not None:
            level = _known(self.level, [row.level for row in rows], field="level")
            rows = [row for row in rows if row.level == level]
        return SlotTable(flavor=flavor, rows=tuple(rows))


def _known(name: str, known: Iterable[str], *, field: str) -> str:
    names = tuple(known)
    if name not in names:
        message, hint = f"there is no {field} {name[:60]}", nearest(name[:60], names)
        raise InvalidInput.at(field, message, hint)
    return name


# The cycle itself


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReplay:
    """`difference`: the first between the plans, empty where they are the same; `seconds`: of the decision."""

    difference: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCycle:
    """The decision made anew and compared."""

    def answer(self, cycle: DecidedCycle) -> CycleReplay:
        """In the child, which loads CP-SAT for it."""
        began = time.perf_counter()
        found = difference(cycle.plan, again(cycle.stored))
        return CycleReplay(difference=found, seconds=time.perf_counter() - began)
