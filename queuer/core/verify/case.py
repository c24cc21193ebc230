"""What the verifier's checks share: rules, violations, and a snapshot with its plan from useful sides.

Only what the plan touches is looked at; over all nodes and all that waits there is one pass each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain

from queuer.core.records import Admitted, Assignment, Bond, NodeState, Pending, Plan, Snapshot
from queuer.core.verify.quota import Asks, Book, Part, Use, asks_of
from queuer.domain.nodes import DEFAULT_FLAVOR, SchedulingTerms, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet, Workload

Rows = Sequence[Assignment]


class Rule(StrEnum):
    """The rules a plan can break."""

    REFERENCE = "reference"  # names what is not there, or names it twice
    GANG = "gang"  # a pod set missing, or of a wrong size
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
    """One broken rule. `uid`: the gang to take out of the plan; of several that together are too much, the last in
    order. It is in the plan unless it is named wrongly, misses its reason, or lost its bond. `at`: the node or queue.
    """

    rule: Rule
    uid: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.rule} {self.uid}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Pods of one set that land on `hosts`. `slots`: how many of them each host could take by what is open there,
    hosts that take none left out. `choice`: they may land otherwise than planned (DESIGN 3.5).
    """

    uid: str
    pod_set: PodSet
    count: int
    hosts: Collection[str]
    slots: Mapping[str, int]
    choice: bool


def slots(free: Resources, pod_set: PodSet) -> int:
    """How many pods of the set fit into `free`; a pod that asks for nothing fits without end."""
    most = 1 if pod_set.exclusive_host else 2**31
    for resource, amount in pod_set.requests.items():
        if amount:
            most = min(most, free.get(resource, 0) // amount)
    return max(0, most)


def add(total: dict[str, int], requests: Resources, times: int = 1) -> None:
    """Count that many pods in, or out."""
    for resource, amount in requests.items():
        total[resource] = total.get(resource, 0) + amount * times


class Case:
    """A snapshot and a plan with the views that all checks share."""

    def __init__(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self.snapshot, self.plan, self.now = snapshot, plan, now
        self.flavor_at = cache(self._flavor_at)
        self.domain = cache(self._domain)
        self.open = cache(self._open)
        self.asks = cache(self._asks)
        self._labelled = cache(self._by_label)
        self._pins: dict[object, Collection[str]] = {}
        self._tolerations = {f.name: f.tolerations for f in snapshot.flavors}

    # What is there.

    @cached_property
    def states(self) -> Mapping[str, NodeState]:
        """Nodes with what their pods take, by name."""
        return {state.node.name: state for state in self.snapshot.nodes}

    @cached_property
    def pending(self) -> Mapping[str, Pending]:
        """Waiting workloads by uid."""
        return {p.workload.uid: p for p in self.snapshot.pending}

    @cached_property
    def running(self) -> Mapping[str, Admitted]:
        """Admitted workloads by uid."""
        return {a.workload.uid: a for a in self.snapshot.admitted}

    @cached_property
    def declared(self) -> frozenset[str]:
        """Names of all flavors."""
        return frozenset(f.name for f in self.snapshot.flavors) or frozenset({DEFAULT_FLAVOR})

    @cached_property
    def releasing(self) -> frozenset[str]:
        """Admitted workloads that are leaving already."""
        return frozenset(a.workload.uid for a in self.snapshot.admitted if a.releasing)

    @cached_property
    def gone(self) -> frozenset[str]:
        """All that leaves, this plan's victims included."""
        return self.releasing.union(e.uid for e in self.plan.evictions)

    def _flavor_at(self, name: str) -> str | None:
        """The flavor of a node."""
        return flavor_of(self.states[name].node, self.snapshot.flavors)

    def _domain(self, name: str, level: int) -> tuple[str, ...] | None:
        """The domain of a node."""
        return self.snapshot.topology.domain(self.states[name].node, level)

    # What is planned.

    @cached_property
    def started(self) -> Mapping[str, Rows]:
        """What this plan starts."""
        return {a.uid: a.assignments for a in self.plan.admissions}

    @cached_property
    def bound(self) -> Mapping[str, Rows]:
        """What this plan holds for gangs that still wait."""
        bonds = self.plan.bonds
        return {b.uid: b.assignments for b in bonds if b.uid in self.pending and b.uid not in self.started}

    def until(self, bond: Bond) -> float:
        """Its deadline, later where its victims are known to take longer to leave."""
        by = [self.running[v].gone_by for v in bond.victims if v in self.releasing]
        return max([bond.deadline, *(at for at in by if at is not None)])

    @cached_property
    def resumed(self) -> frozenset[str]:
        """Gangs that start at the flavors and sizes that a bond holds for them; after its deadline only where nobody
        whom it waited for is leaving still.
        """
        return frozenset(
            bond.uid
            for bond in self.snapshot.bonds
            if bond.uid in self.started
            and (self.until(bond) > self.now or self.releasing.isdisjoint(bond.victims))
            and _shape(self.started[bond.uid]) == _shape(bond.assignments)
        )

    @cached_property
    def new(self) -> Mapping[str, Rows]:
        """What this plan decides anew, in turn: what resumes, then admissions, and bonds that did not hold just these
        places before or for which somebody goes now, in the plan's order.
        """
        old = {b.uid: _place(b.assignments) for b in self.snapshot.bonds if self.until(b) > self.now}
        for eviction in self.plan.evictions:
            old.pop(eviction.beneficiary, None)
        found = {**self.started, **{u: rows for u, rows in self.bound.items() if old.get(u) != _place(rows)}}
        resumed = [uid for uid in found if uid in self.resumed]
        turns = dict.fromkeys(chain(resumed, filter(found.__contains__, self.plan.order), found))
        return {uid: found[uid] for uid in turns}

    def last(self, uids: Iterable[str]) -> str:
        """Of gangs that are decided anew the last in turn."""
        return max(uids, key=self._turns.__getitem__)

    @cached_property
    def _turns(self) -> Mapping[str, int]:
        return {uid: turn for turn, uid in enumerate(self.new)}

    def workload(self, uid: str) -> Workload:
        """A waiting workload."""
        return self.pending[uid].workload

    def pods(self, uid: str, rows: Rows) -> Iterable[tuple[Assignment, PodSet]]:
        """Assignments with their pod sets."""
        sets = {p.name: p for p in self.pending[uid].workload.pod_sets}
        return [(row, sets[row.pod_set]) for row in rows]

    @cached_property
    def on_node(self) -> Mapping[str, Sequence[tuple[str, PodSet, int]]]:
        """By node uid, pod set and count of all that is planned: standing bonds, then what is new in turn."""
        found: dict[str, list[tuple[str, PodSet, int]]] = {}
        standing = {uid: rows for uid, rows in self.bound.items() if uid not in self.new}
        for uid, rows in chain(standing.items(), self.new.items()):
            for row, pod_set in self.pods(uid, rows):
                for name, count in row.nodes.items():
                    found.setdefault(name, []).append((uid, pod_set, count))
        return found

    def pin(self, pod_set: PodSet, row: Assignment) -> Collection[str]:
        """Names of the nodes that kube-scheduler may choose for a pod of this assignment, resources aside: by its own
        terms, with the flavor's tolerations and the pin's labels.
        """
        terms = pod_set.terms
        selector = {**terms.node_selector, **row.selector}
        tolerations = (*terms.tolerations, *self._tolerations.get(row.flavor, ()))
        asked = SchedulingTerms(node_selector=selector, tolerations=tolerations, affinity=terms.affinity)
        if row.hosts is not None:
            return self._accepting(dict.fromkeys(row.hosts), asked)
        key = (tuple(sorted(selector.items())), tolerations, terms.affinity)
        if key not in self._pins:
            inside = (self._labelled(label).get(value, ()) for label, value in selector.items())
            names: Collection[str] = min(inside, key=len, default=self.states)
            self._pins[key] = self._accepting(names, asked)
        return self._pins[key]

    def _accepting(self, names: Iterable[str], asked: SchedulingTerms) -> Collection[str]:
        states = self.states
        return {name: None for name in names if name in states and states[name].node.accepts(asked)}

    def _by_label(self, key: str) -> Mapping[str, Collection[str]]:
        """Names of the nodes with a label, by its value."""
        found: dict[str, list[str]] = {}
        for name, state in self.states.items():
            if key in state.node.labels:
                found.setdefault(state.node.labels[key], []).append(name)
        return found

    # What is free.

    def _open(self, name: str) -> Resources:
        """What no bound pod requests of a node."""
        found = dict(self.states[name].node.allocatable)
        add(found, self.states[name].used, -1)
        return found

    def group(self, uid: str, pod_set: PodSet, count: int, hosts: Collection[str]) -> Group:
        """Pods that land on these hosts."""
        found = {h: n for h in hosts if h in self.states and (n := slots(self.open(h), pod_set))}
        choice = len(hosts) > 1 and sum(found.values()) > count
        return Group(uid, pod_set, count, hosts, found, choice)

    @cached_property
    def coming(self) -> Mapping[str, Sequence[Group]]:
        """What starts, by uid."""
        return {
            uid: [self.group(uid, p, row.count, self.pin(p, row)) for row, p in self.pods(uid, rows)]
            for uid, rows in self.started.items()
        }

    @cached_property
    def landing(self) -> Mapping[str, Sequence[Group]]:
        """Pods of earlier cycles that are still to land, by host that could take any: those that meet the plan."""
        touched = set(self.on_node).union(h for own in self.coming.values() for g in own for h in g.slots)
        found: dict[str, list[Group]] = {}
        for admitted in self.snapshot.admitted:
            for rest in admitted.unbound:
                if touched.isdisjoint(rest.hosts):
                    continue
                workload = admitted.workload
                for pod_set in workload.pod_sets:
                    if pod_set.name == rest.pod_set:
                        group = self.group(workload.uid, pod_set, rest.count, rest.hosts)
                        for host in group.slots:
                            found.setdefault(host, []).append(group)
        return found

    def room(
        self, names: Iterable[str], gone: Collection[str] = frozenset()
    ) -> dict[str, dict[str, int]]:
        """What is open on these nodes once `gone` have left, less the pods of earlier cycles that have no choice but
        to come there.
        """
        found = {name: dict(self.open(name)) for name in names}
        for uid in gone:
            bound = self.running[uid].bound
            for name in found.keys() & bound.keys():
                add(found[name], bound[name])
        for name, left in found.items():
            for group in self.landing.get(name, ()):
                if not group.choice and group.uid not in gone:
                    add(left, group.pod_set.requests, -min(group.slots[name], group.count))
        return found

    # What counts for quota.

    @cached_property
    def book(self) -> Book:
        """Quota rows."""
        return Book(self.snapshot)

    @cached_property
    def use(self) -> Use:
        """Use of all that is admitted at the start of the cycle."""
        return Use(self.book).count(map(part_of, self.snapshot.admitted))

    def part(self, uid: str, rows: Rows) -> Part:
        """What a waiting gang counts for at these places."""
        counts = {row.pod_set: row.count for row in rows}
        return self.pending[uid].workload, counts, {row.pod_set: row.flavor for row in rows}

    def parts(self, uids: Iterable[str]) -> Iterable[Part]:
        """Of gangs that the plan starts or holds."""
        return [self.part(uid, self.new[uid] if uid in self.new else self.bound[uid]) for uid in uids]

    def _asks(self, uid: str) -> Asks:
        """What a gang that is decided anew counts for, by account."""
        return asks_of(self.part(uid, self.new[uid]))

    @property
    def standing(self) -> Iterable[str]:
        """Bonds of earlier cycles that hold on as they were."""
        return [uid for uid in self.bound if uid not in self.new]


def part_of(admitted: Admitted) -> Part:
    """What an admitted gang counts for."""
    return admitted.workload, admitted.counts, admitted.flavors


def _shape(rows: Rows) -> Mapping[str, tuple[str, int]]:
    return {row.pod_set: (row.flavor, row.count) for row in rows}


def _place(rows: Rows) -> Sequence[object]:
    """What is held, however the pin is worded: that follows the labels."""
    return [(row.pod_set, row.flavor, row.nodes) for row in rows]
