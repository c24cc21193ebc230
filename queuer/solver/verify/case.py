"""What the verifier's checks share: rules, violations, and a snapshot with its plan from useful sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from queuer.domain.nodes import DEFAULT_FLAVOR, SchedulingTerms, flavor_of
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, Assignment, Bond, NodeState, Pending, Plan, Snapshot
from queuer.solver.verify.quota import Amounts, QuotaRows, Uses, amounts_at, amounts_of

_MOST = 2**62
"""As in `queuer.solver.sound`, and apart from it on purpose: the verifier shares no code with what it judges."""

_SOON = 300.0
"""Seconds, as in `queuer.solver.ends`."""


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
    CLOSED = "closed"  # the queue is held or draining, the workload on hold or malformed
    STRICT = "strict-order"
    RESERVATION = "reservation"
    EXPLANATION = "explanation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule; `uid` is the workload it is broken for, `text` a sentence with the numbers. `at`: the node or
    queue where all together are too many, for which no workload is named.
    """

    rule: Rule
    uid: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.rule} {self.uid}: {self.text}"


def well_formed(workload: Workload) -> bool:
    """Whether it asks for pods in numbers that can be summed; nothing is decided about one that does not."""
    names = {p.name for p in workload.pod_sets}
    sizes = [workload.priority, *(p.count for p in workload.pod_sets)]
    sizes += [p.min_count for p in workload.pod_sets if p.min_count is not None]
    sizes += [n for p in workload.pod_sets for n in p.requests.values()]
    times = [workload.submitted, *(t for t in (workload.max_runtime, workload.estimate) if t is not None)]
    return (
        0 < len(names) == len(workload.pod_sets)
        and all(type(size) is int for size in sizes)
        and all(type(time) is not bool and isinstance(time, int | float) for time in times)
        and all(-_MOST <= number <= _MOST for number in (workload.priority, *times))
        and all(1 <= (p.count if p.min_count is None else p.min_count) <= p.count for p in workload.pod_sets)
        and all(0 <= n * p.count <= _MOST for p in workload.pod_sets for n in p.requests.values())
    )


@dataclass(frozen=True)
class Case:
    """A snapshot and a plan with the views that all checks share."""

    snapshot: Snapshot
    plan: Plan
    now: float

    @cached_property
    def states(self) -> Mapping[str, NodeState]:
        """Nodes with what their pods take, by name."""
        return {state.node.name: state for state in self.snapshot.nodes}

    @cached_property
    def _labelled(self) -> dict[str, Mapping[str, Sequence[str]]]:
        return {}

    def labelled(self, key: str, value: str) -> Sequence[str]:
        """Names of the nodes with a label, in the snapshot's order."""
        if key not in self._labelled:
            found: dict[str, list[str]] = {}
            for name, state in self.states.items():
                if key in state.node.labels:
                    found.setdefault(state.node.labels[key], []).append(name)
            self._labelled[key] = found
        return self._labelled[key].get(value, ())

    def flavor_at(self, name: str) -> str | None:
        """The flavor of a node."""
        if name not in self._flavors:
            self._flavors[name] = flavor_of(self.states[name].node, self.snapshot.flavors)
        return self._flavors[name]

    @cached_property
    def _flavors(self) -> dict[str, str | None]:
        return {}

    @cached_property
    def declared(self) -> frozenset[str]:
        """Names of all flavors."""
        return frozenset(f.name for f in self.snapshot.flavors) or frozenset({DEFAULT_FLAVOR})

    @cached_property
    def pending(self) -> Mapping[str, Pending]:
        """Waiting workloads by uid."""
        return {p.workload.uid: p for p in self.snapshot.pending}

    @cached_property
    def running(self) -> Mapping[str, Admitted]:
        """Admitted workloads by uid."""
        return {a.workload.uid: a for a in self.snapshot.admitted}

    @cached_property
    def releasing(self) -> frozenset[str]:
        """Admitted workloads that are leaving already."""
        return frozenset(a.workload.uid for a in self.snapshot.admitted if a.releasing)

    @cached_property
    def started(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan starts."""
        return {a.uid: a.assignments for a in self.plan.admissions}

    @cached_property
    def resumed(self) -> frozenset[str]:
        """Gangs that this plan starts at the flavors and sizes that a bond holds for them; after its deadline only
        where nobody whom it waited for is leaving still.
        """
        return frozenset(
            bond.uid
            for bond in self.snapshot.bonds
            if bond.uid in self.started
            and (self.until(bond) > self.now or self.releasing.isdisjoint(bond.victims))
            and _shape(self.started[bond.uid]) == _shape(bond.assignments)
        )

    @cached_property
    def bound(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan holds for gangs that still wait."""
        return {
            b.uid: b.assignments
            for b in self.plan.bonds
            if b.uid in self.pending and b.uid not in self.started
        }

    @cached_property
    def bonds_of(self) -> Mapping[str, Sequence[Bond]]:
        """Bonds of the snapshot and of the plan, by uid."""
        found: dict[str, list[Bond]] = {}
        for bond in (*self.snapshot.bonds, *self.plan.bonds):
            found.setdefault(bond.uid, []).append(bond)
        return found

    @cached_property
    def new(self) -> Mapping[str, tuple[Assignment, ...]]:
        """What this plan decides anew: admissions, and bonds that did not hold just these places before, or for which
        somebody goes now.
        """
        old = {b.uid: _place(b.assignments) for b in self.snapshot.bonds if self.until(b) > self.now}
        for eviction in self.plan.evictions:
            old.pop(eviction.beneficiary, None)
        return {**self.started, **{u: rows for u, rows in self.bound.items() if old.get(u) != _place(rows)}}

    def until(self, bond: Bond) -> float:
        """Its deadline, later where its victims are known to take longer to leave."""
        by = (self.running[v].gone_by for v in bond.victims if v in self.releasing)
        return max([bond.deadline, *(at for at in by if at is not None)])

    @cached_property
    def vacating(self) -> frozenset[str]:
        """Those of them that are said to be gone soon."""
        by = {uid: self.running[uid].gone_by for uid in self.releasing}
        return frozenset(u for u, at in by.items() if at is not None and self.now < at <= self.now + _SOON)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Who is on its way out and waited for: victims of the plan's bonds, one that has come back is not, and all
        that are said to be gone soon.
        """
        going = self.releasing | {e.uid for e in self.plan.evictions}
        return self.vacating.union(uid for bond in self.plan.bonds for uid in bond.victims if uid in going)

    @cached_property
    def rows(self) -> QuotaRows:
        """Quota rows."""
        return QuotaRows(self.snapshot)

    @cached_property
    def _pins(self) -> dict[object, frozenset[str]]:
        return {}

    def workload(self, uid: str) -> Workload:
        """A waiting workload."""
        return self.pending[uid].workload

    @cached_property
    def _sets(self) -> dict[str, Mapping[str, PodSet]]:
        return {}

    def sets(self, uid: str) -> Mapping[str, PodSet]:
        """Pod sets of a waiting workload, by name."""
        found = self._sets.get(uid)
        if found is None:
            found = self._sets[uid] = {p.name: p for p in self.pending[uid].workload.pod_sets}
        return found

    def terms(self, pod_set: PodSet, flavor: str) -> SchedulingTerms:
        """What a pod sent to a flavor asks of its node: its own terms, with the flavor's tolerations. Labels come with
        the pin, in place of a selector of its own that says otherwise: then none of the nodes inside will do.
        """
        found = next((f for f in self.snapshot.flavors if f.name == flavor), None)
        if found is None:
            return pod_set.terms
        tolerations = (*pod_set.terms.tolerations, *found.tolerations)
        return replace(pod_set.terms, tolerations=tolerations)

    def pin(self, pod_set: PodSet, row: Assignment) -> frozenset[str]:
        """Names of the nodes that kube-scheduler may choose for a pod of this assignment, resources aside."""
        terms = self.terms(pod_set, row.flavor)
        selector = {**terms.node_selector, **row.selector}
        key = (tuple(sorted(selector.items())), terms.tolerations, terms.affinity, row.hosts)
        if key not in self._pins:
            pinned = replace(terms, node_selector=selector)
            names: Collection[str] = self.states if row.hosts is None else row.hosts
            if row.hosts is None and selector:
                names = min((self.labelled(*label) for label in selector.items()), key=len)
            self._pins[key] = frozenset(
                n for n in names if n in self.states and self.states[n].node.accepts(pinned)
            )
        return self._pins[key]

    @cached_property
    def used(self) -> Uses:
        """Use of all that hold quota at the start of the cycle; not to be counted on."""
        return Uses.of(self.rows, self.snapshot.admitted)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Victims of bonds of earlier cycles that are on their way out."""
        return frozenset(uid for b in self.snapshot.bonds for uid in b.victims if uid in self.releasing)

    @cached_property
    def used_then(self) -> Uses:
        """`used` less these; not to be counted on."""
        return self.uses(without=self.gone)

    def uses(self, *, without: frozenset[str] = frozenset(), bonds: Iterable[str] = ()) -> Uses:
        """`used` less some admitted workloads, `bonds` of then counted in."""
        found = self.used.copy()
        for uid in without:
            if gone := self.running.get(uid):
                amounts = amounts_of(gone.workload, gone.counts, gone.flavors)
                found.count(gone.workload.queue, amounts, times=-1)
        counted = frozenset(bonds)
        for bond in self.snapshot.bonds:
            if bond.uid in counted and bond.uid in self.pending:
                found.count(
                    self.workload(bond.uid).queue, amounts_at(self.workload(bond.uid), bond.assignments)
                )
        return found

    @cached_property
    def _parts(self) -> dict[str, tuple[str, Amounts]]:
        return {}

    def part(self, uid: str) -> tuple[str, Amounts]:
        """Queue and amounts of a gang that the plan starts or holds."""
        if uid not in self._parts:
            places = self.started[uid] if uid in self.started else self.bound[uid]
            self._parts[uid] = (self.workload(uid).queue, amounts_at(self.workload(uid), places))
        return self._parts[uid]

    @cached_property
    def in_turn(self) -> Sequence[str]:
        """Uids of what is decided anew, in tournament order."""
        listed = dict.fromkeys(filter(self.new.__contains__, self.plan.order))
        return [*listed, *sorted(self.new.keys() - listed.keys())]


def _shape(rows: Sequence[Assignment]) -> Mapping[str, tuple[str, int]]:
    return {row.pod_set: (row.flavor, row.count) for row in rows}


def _place(rows: Sequence[Assignment]) -> Sequence[object]:
    """What is held, however the pin is worded: that follows the labels."""
    return [(row.pod_set, row.flavor, row.nodes) for row in rows]
