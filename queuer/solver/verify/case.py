"""What the verifier's checks share: rules, violations, and a snapshot with its plan from useful sides.

Only what the plan touches is looked at; over all nodes and all that waits there is one pass each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain

from queuer.domain.nodes import DEFAULT_FLAVOR, SchedulingTerms, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Admitted, Assignment, Bond, Plan, Snapshot
from queuer.solver.verify.quota import Book, Part, Use, asks_of

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


@dataclass(frozen=True, slots=True)
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
    """Pods of one set that land on `hosts`. `slots`: how many of them each host could take by what is open there, if
    any; all on a single host. `choice`: they may land otherwise than planned (DESIGN 3.5).
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


def least(pod_set: PodSet) -> int:
    """The fewest pods that the set may have."""
    return pod_set.count if pod_set.min_count is None else pod_set.min_count


def part_of(admitted: Admitted) -> Part:
    """What an admitted gang counts for."""
    return admitted.workload, admitted.counts, admitted.flavors


class Case:
    """By uid: `started`, what the plan starts; `bound`, what it holds for gangs that wait; `rows`, both; `new`, what is
    decided anew of these, in turn. `standing`: bonds that hold on as they were; `resumed`: starts at the flavors and
    sizes of such a bond. `releasing`: who leaves already; `gone`: this plan's victims, too.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        self.snapshot, self.plan, self.now = snapshot, plan, now
        self.states = {state.node.name: state for state in snapshot.nodes}
        self.pending = {p.workload.uid: p for p in snapshot.pending}
        self.running = {a.workload.uid: a for a in snapshot.admitted}
        self.releasing = {uid for uid, admitted in self.running.items() if admitted.releasing}
        self.gone = self.releasing | {e.uid for e in plan.evictions}
        self.tolerations = {f.name: f.tolerations for f in snapshot.flavors} or {DEFAULT_FLAVOR: ()}
        self.started: dict[str, Rows] = {a.uid: a.assignments for a in plan.admissions}
        held = [b for b in plan.bonds if b.uid in self.pending and b.uid not in self.started]
        self.bound: dict[str, Rows] = {b.uid: b.assignments for b in held}
        self.rows = {**self.bound, **self.started}
        old = {b.uid: b.assignments for b in snapshot.bonds if self.until(b) > now and b.uid in self.rows}
        same = {u for u, rows in old.items() if u in self.bound and _places(rows) == _places(self.rows[u])}
        same.difference_update(e.beneficiary for e in plan.evictions)
        self.standing = {uid: rows for uid, rows in self.bound.items() if uid in same}
        again = (u for u, rows in old.items() if u in self.started and _sizes(rows) == _sizes(self.rows[u]))
        self.resumed = dict.fromkeys(again)
        turns = chain(self.resumed, filter(self.rows.__contains__, plan.order), self.rows)
        self.new = {uid: self.rows[uid] for uid in turns if uid not in same}
        self.flavor_at = cache(lambda name: flavor_of(self.states[name].node, snapshot.flavors))
        self.domain = cache(lambda name, level: snapshot.topology.domain(self.states[name].node, level))
        self.asks = cache(lambda uid: asks_of(self.part(uid, self.rows[uid])))
        self.open, self._labelled = cache(self._open), cache(self._by_label)

    def until(self, bond: Bond) -> float:
        """Its deadline, later where its victims are known to take longer to leave."""
        by = [self.running[v].gone_by for v in bond.victims if v in self.releasing]
        return max([bond.deadline, *(at for at in by if at is not None)])

    def workload(self, uid: str) -> Workload:
        """A waiting workload."""
        return self.pending[uid].workload

    def pods(self, uid: str, rows: Rows) -> list[tuple[Assignment, PodSet]]:
        """Assignments of a waiting workload with their pod sets."""
        sets = {p.name: p for p in self.pending[uid].workload.pod_sets}
        return [(row, sets[row.pod_set]) for row in rows]

    # Nodes

    @cached_property
    def coming(self) -> Mapping[str, Sequence[tuple[Assignment, Group]]]:
        """What is decided anew, by uid in turn."""
        return {
            uid: [(row, self.group(uid, p, row.count, self.pin(p, row))) for row, p in self.pods(uid, rows)]
            for uid, rows in self.new.items()
        }

    def sums(self, places: Iterable[tuple[str, Rows]]) -> dict[str, dict[str, int]]:
        """Requests of waiting gangs at these places, by node."""
        found: dict[str, dict[str, int]] = {}
        for uid, rows in places:
            for row, pod_set in self.pods(uid, rows):
                for name, count in row.nodes.items():
                    add(found.setdefault(name, {}), pod_set.requests, count)
        return found

    def asking(self, name: str, resource: str, among: Collection[str]) -> list[str]:
        """Gangs decided anew that take a resource of a node, in turn."""
        pods = ((uid, *pod) for uid in self.new if uid in among for pod in self.pods(uid, self.new[uid]))
        return [uid for uid, row, pod_set in pods if name in row.nodes and pod_set.requests.get(resource)]

    def pin(self, pod_set: PodSet, row: Assignment) -> Collection[str]:
        """Names of the nodes that kube-scheduler may choose for a pod of this assignment, resources aside."""
        terms, states = pod_set.terms, self.states
        labels = {**terms.node_selector, **row.selector}
        tolerations = (*terms.tolerations, *self.tolerations.get(row.flavor, ()))
        asked = SchedulingTerms(node_selector=labels, tolerations=tolerations, affinity=terms.affinity)
        inside = (self._labelled(key).get(value, ()) for key, value in labels.items())
        names = row.hosts if row.hosts is not None else min(inside, key=len, default=states)
        return dict.fromkeys(name for name in names if name in states and states[name].node.accepts(asked))

    def _by_label(self, key: str) -> Mapping[str, Collection[str]]:
        """Names of the nodes with a label, by its value."""
        found: dict[str, list[str]] = {}
        for name, state in self.states.items():
            if key in state.node.labels:
                found.setdefault(state.node.labels[key], []).append(name)
        return found

    def _open(self, name: str) -> Resources:
        """What no bound pod requests of a node."""
        found = dict(self.states[name].node.allocatable)
        add(found, self.states[name].used, -1)
        return found

    def group(self, uid: str, pod_set: PodSet, count: int, hosts: Collection[str]) -> Group:
        """Pods that land on these hosts."""
        if len(hosts) < 2:
            return Group(uid, pod_set, count, hosts, dict.fromkeys(hosts, count), False)
        found = {h: n for h in hosts if h in self.states and (n := slots(self.open(h), pod_set))}
        return Group(uid, pod_set, count, hosts, found, sum(found.values()) > count)

    @cached_property
    def landing(self) -> Mapping[str, Sequence[Group]]:
        """Pods of earlier cycles that are still to land, by host that could take any: those that meet the plan."""
        touched = {name for rows in self.rows.values() for row in rows for name in row.nodes}
        touched.update(host for pods in self.coming.values() for _, group in pods for host in group.slots)
        found: dict[str, list[Group]] = {}
        for uid, admitted in self.running.items():
            for rest in admitted.unbound:
                sets = [p for p in admitted.workload.pod_sets if p.name == rest.pod_set]
                if sets and not touched.isdisjoint(rest.hosts):
                    group = self.group(uid, sets[0], rest.count, rest.hosts)
                    for host in group.slots:
                        found.setdefault(host, []).append(group)
        return found

    def room(self, names: Iterable[str], gone: Collection[str] = ()) -> dict[str, dict[str, int]]:
        """What is open on these nodes once `gone` have left, less pods of earlier cycles that have no choice: as many
        as fit one after the other.
        """
        found = {name: dict(self.open(name)) for name in names if name in self.states}
        for name, left in found.items():
            for group in self.landing.get(name, ()):
                if not group.choice and group.uid not in gone:
                    add(left, group.pod_set.requests, -min(slots(left, group.pod_set), group.count))
        for uid in gone:
            bound = self.running[uid].bound
            for name in found.keys() & bound.keys():
                add(found[name], bound[name])
        return found

    # Quota

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
        return [self.part(uid, self.rows[uid]) for uid in uids]

    @cached_property
    def entitled(self) -> Mapping[str, frozenset[str]]:
        """Where on its path a gang is entitled at its turn, beside all that is admitted or was decided before; of gangs
        for which somebody goes, and those that nobody may evict.
        """
        asked = {e.beneficiary for e in self.plan.evictions}
        asked.update(uid for uid in self.new if not self.workload(uid).preemptible)
        use, before, found = Use(self.book, self.use), [*self.standing], dict[str, frozenset[str]]()
        for uid in self.new if asked else ():
            if uid in asked:
                use.count(self.parts(before))
                before = []
                found[uid] = use.entitled(self.workload(uid).queue, self.asks(uid))
            before.append(uid)
        return found


def _sizes(rows: Rows) -> Mapping[str, tuple[str, int]]:
    return {row.pod_set: (row.flavor, row.count) for row in rows}


def _places(rows: Rows) -> Sequence[object]:
    """What is held, however the pin is worded: that follows the labels."""
    return [(row.pod_set, row.flavor, row.nodes) for row in rows]
