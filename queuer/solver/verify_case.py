"""What the verifier's checks share: rules, violations, and a snapshot with its plan from useful sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from queuer.domain.nodes import DEFAULT_FLAVOR, Flavor, Node, SchedulingTerms, flavor_of
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Assignment, Pending, Plan, Snapshot
from queuer.solver.verify_quota import Amounts, Rows, Uses, amounts_at, amounts_of


class Rule(StrEnum):
    """The rules a plan can break."""

    REFERENCE = "reference"  # names what is not there, or names it twice
    GANG = "gang"  # a pod set missing, of a wrong size, or on several flavors
    FLAVOR = "flavor"  # a flavor that the queue's rows or the nodes do not allow
    NODE = "node"  # labels, taints, affinity, cordon, avoid
    EXCLUSIVE = "exclusive-host"
    LEVEL = "level"
    CAPACITY = "capacity"
    PIN = "pin"
    LANDING = "landing"
    QUOTA = "quota"
    BOND = "bond"
    VICTIM = "victim"
    NON_PREEMPTIBLE = "non-preemptible"
    CLOSED = "closed"  # the queue is held or draining, or the workload is on hold
    STRICT = "strict-order"
    RESERVATION = "reservation"
    EXPLANATION = "explanation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule; `uid` is the workload it is broken for, `text` a sentence with the numbers."""

    rule: Rule
    uid: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} {self.uid}: {self.text}"


@dataclass(frozen=True)
class Case:
    """A snapshot and a plan with the views that all checks share."""

    snapshot: Snapshot
    plan: Plan
    now: float

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {state.node.name: state.node for state in self.snapshot.nodes}

    @cached_property
    def flavor_at(self) -> Mapping[str, str | None]:
        """Flavor by node name."""
        return {name: flavor_of(node, self.snapshot.flavors) for name, node in self.nodes.items()}

    @cached_property
    def pending(self) -> Mapping[str, Pending]:
        """Waiting workloads by uid."""
        return {p.workload.uid: p for p in self.snapshot.pending}

    @cached_property
    def started(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan starts."""
        return {a.uid: a.assignments for a in self.plan.admissions}

    @cached_property
    def bound(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan holds for gangs that still wait."""
        return {
            b.uid: b.assignments
            for b in self.plan.bonds
            if b.uid in self.pending and b.uid not in self.started
        }

    @cached_property
    def new(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan decides anew: admissions, and bonds that were not there before just so."""
        old = {b.uid: b.assignments for b in self.snapshot.bonds}
        return {**self.started, **{u: rows for u, rows in self.bound.items() if old.get(u) != rows}}

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Victims of the plan's bonds that are on their way out; one that has come back is not."""
        going = {a.workload.uid for a in self.snapshot.admitted if a.releasing}
        going |= {e.uid for e in self.plan.evictions}
        return frozenset(uid for bond in self.plan.bonds for uid in bond.victims if uid in going)

    @cached_property
    def rows(self) -> Rows:
        """Quota rows."""
        return Rows(self.snapshot)

    @cached_property
    def _pins(self) -> dict[object, frozenset[str]]:
        return {}

    def workload(self, uid: str) -> Workload:
        """A waiting workload."""
        return self.pending[uid].workload

    def terms(self, pod_set: PodSet, flavor: str) -> SchedulingTerms:
        """The terms of a pod sent to a flavor: its own, the flavor's labels and tolerations."""
        found = next((f for f in self.snapshot.flavors if f.name == flavor), Flavor(name=DEFAULT_FLAVOR))
        return SchedulingTerms(
            node_selector={**pod_set.terms.node_selector, **found.node_labels},
            tolerations=(*pod_set.terms.tolerations, *found.tolerations),
            affinity=pod_set.terms.affinity,
        )

    def pin(self, pod_set: PodSet, row: Assignment) -> frozenset[str]:
        """Names of the nodes that kube-scheduler may choose for a pod of this assignment, resources aside."""
        terms = self.terms(pod_set, row.flavor)
        selector = {**terms.node_selector, **row.selector}
        key = (tuple(sorted(selector.items())), terms.tolerations, terms.affinity, row.hosts)
        if key not in self._pins:
            pinned = SchedulingTerms(
                node_selector=selector, tolerations=terms.tolerations, affinity=terms.affinity
            )
            names = self.nodes if row.hosts is None else row.hosts
            self._pins[key] = frozenset(n for n in names if n in self.nodes and self.nodes[n].accepts(pinned))
        return self._pins[key]

    def uses(self, *, without: frozenset[str] = frozenset(), bonds: Iterable[str] = ()) -> Uses:
        """Use of all that hold quota at the start of the cycle, `bonds` of then counted in."""
        found = Uses(self.rows)
        for a in self.snapshot.admitted:
            if a.workload.uid not in without:
                found.count(a.workload.queue, amounts_of(a.workload, a.counts, a.flavors))
        for bond in self.snapshot.bonds:
            if bond.uid in bonds and bond.uid in self.pending:
                found.count(
                    self.workload(bond.uid).queue, amounts_at(self.workload(bond.uid), bond.assignments)
                )
        return found

    def part(self, uid: str) -> tuple[str, Amounts]:
        """Queue and amounts of a gang that the plan starts or holds."""
        places = self.started.get(uid) or self.bound[uid]
        return self.workload(uid).queue, amounts_at(self.workload(uid), places)

    def in_turn(self) -> list[str]:
        """Uids of what is decided anew, in tournament order."""
        turn = {uid: n for n, uid in enumerate(self.plan.order)}
        return sorted(self.new, key=lambda uid: (turn.get(uid, len(turn)), uid))
