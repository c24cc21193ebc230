"""The common ground of the verifier's checks: rules, violations, and a snapshot with its plan from useful sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain

from queuer.domain.assignments import Assignment, Bond
from queuer.domain.nodes import DEFAULT_FLAVOR, Node, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Admitted, Plan, Snapshot
from queuer.solver.verify.quota import Book, Part, Use, asks_of

Rows = Sequence[Assignment]


class Rule(StrEnum):
    """The rules a plan can break."""

    REFERENCE = "reference"  # names what is not there, or names it twice
    GANG = "gang"  # a pod set missing, of a wrong size, or too close together
    FLAVOR = "flavor"  # a flavor that the queue's rows or the nodes do not allow
    NODE = "node"  # labels, taints, affinity, cordon, avoid, pin
    LEVEL = "level"
    CAPACITY = "capacity"
    LANDING = "landing"
    QUOTA = "quota"
    BOND = "bond"
    VICTIM = "victim"
    NON_PREEMPTIBLE = "non-preemptible"
    CLOSED = "closed"  # the queue is held or draining, the workload on hold or malformed
    RESERVATION = "reservation"
    EXPLANATION = "explanation"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `uid`: the gang to take out of the plan; of several that together are too much, the last in
    order. It is in the plan unless it is named wrongly or misses its reason.
    """

    rule: Rule
    uid: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} {self.uid}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Pods of one set. `nodes`: where the plan has them; `hosts`: where they can land. `slots`: how many of them each
     host could take by what is open there, if any; all on a single host. `choice`: they may land otherwise than
    planned.
    """

    uid: str
    pod_set: PodSet
    flavor: str
    nodes: Mapping[str, int]
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


def alike(one: PodSet, hosts: Collection[str], other: PodSet, others: Collection[str]) -> bool:
    """Whether pods of two sets of a gang can take each other's places: they ask for the same, on the same hosts."""
    if one is other or one.exclusive_host or other.exclusive_host:
        return one is other
    names = one.requests.keys() | other.requests.keys()
    same = all(one.requests.get(name, 0) == other.requests.get(name, 0) for name in names)
    return same and set(hosts) == set(others)


def _alike(groups: Iterable[tuple[PodSet, int, Collection[str]]]) -> list[int]:
    """For each pod set of a gang, with its hosts, how many pods are alike in all."""
    there = list(groups)
    return [sum(n for other, n, at in there if alike(one, hosts, other, at)) for one, _, hosts in there]


def part_of(admitted: Admitted) -> Part:
    """The charge of an admitted gang."""
    return admitted.workload, admitted.counts, admitted.flavors


class VerifierCase:
    """By uid: `started`, what the plan starts; `bound`, what it holds for gangs that wait; `rows`, both, in turn. Of
    these `held` had the quota by a bond already, in that order, `new` are the others. `releasing`: who leaves already;
    `gone`: this plan's victims, too.
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
        waiting = [b for b in plan.bonds if b.uid in self.pending and b.uid not in self.started]
        self.bound: dict[str, Rows] = {b.uid: b.assignments for b in waiting}
        there = {**self.bound, **self.started}
        self._standing = {b.uid: b.assignments for b in snapshot.bonds if self.until(b) > now}
        old = {uid: _sizes(rows) for uid, rows in self._standing.items()}
        self.held = [uid for uid in old if uid in there and old[uid] == _sizes(there[uid])]
        turns = chain(self.held, filter(there.__contains__, plan.order), there)
        self.rows: dict[str, Rows] = {uid: there[uid] for uid in turns}
        self.new = [uid for uid in self.rows if uid not in self.held]
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

    # Nodes

    @cached_property
    def coming(self) -> Mapping[str, Sequence[Group]]:
        """The pods of the plan's gangs, by uid in turn."""
        return {uid: self.groups(uid, rows, starts=uid in self.started) for uid, rows in self.rows.items()}

    def groups(self, uid: str, rows: Rows, *, starts: bool) -> list[Group]:
        """The pods of a waiting gang at these places. One that does not start has no pin yet, and stays where it is.
        At the place of a standing bond it may wait for nodes to become ready.
        """
        sets, found = {p.name: p for p in self.workload(uid).pod_sets}, list[Group]()
        unready = not starts and self._standing.get(uid) == rows
        where = [
            self._accepting(sets[row.pod_set], row.flavor, self.pinned(row) if starts else row.nodes, unready)
            for row in rows
        ]
        alike = _alike((sets[row.pod_set], row.count, hosts) for row, hosts in zip(rows, where, strict=True))
        for row, hosts, count in zip(rows, where, alike, strict=True):
            pod_set = sets[row.pod_set]
            slots, choice = self._landing(pod_set, count, hosts) if starts else (row.nodes, False)
            found.append(Group(uid, pod_set, row.flavor, row.nodes, row.count, hosts, slots, choice))
        return found

    def pinned(self, row: Assignment) -> Iterable[str]:
        """Names of the nodes inside a pin."""
        pin = row.selector.items()
        names = [*self.states]
        if row.hosts is not None:
            names = [name for name in row.hosts if name in self.states]
        elif pin:
            names = min((self._labelled(key).get(value, []) for key, value in pin), key=len)
        return (name for name in names if pin <= self.states[name].node.labels.items())

    def _accepting(self, pod_set: PodSet, flavor: str, names: Iterable[str], unready: bool) -> list[str]:
        """Those that accept the pods, resources aside; `unready`: or will, once they are ready."""
        terms = pod_set.terms
        asked = replace(terms, tolerations=(*terms.tolerations, *self.tolerations.get(flavor, ())))
        nodes = [self.states[name].node for name in names if name in self.states]
        return [n.name for n in nodes if (_once_ready(n) if unready else n).accepts(asked)]

    def _landing(self, pod_set: PodSet, count: int, hosts: Collection[str]) -> tuple[Mapping[str, int], bool]:
        """Slots on each host, and whether there is a choice."""
        if len(hosts) < 2:
            return dict.fromkeys(hosts, count), False
        found = {h: n for h in hosts if h in self.states and (n := slots(self.open(h), pod_set))}
        return found, sum(found.values()) > count

    @cached_property
    def landing(self) -> Mapping[str, Sequence[Group]]:
        """Pods of earlier cycles that are still to land, by host that could take any: those that meet the plan."""
        groups = [group for there in self.coming.values() for group in there]
        touched = {name for group in groups for name in (*group.nodes, *group.slots)}
        found: dict[str, list[Group]] = {}
        for uid, admitted in self.running.items():
            sets = {p.name: p for p in admitted.workload.pod_sets}
            left = [rest for rest in admitted.unbound if rest.pod_set in sets]
            alike = _alike((sets[rest.pod_set], rest.count, rest.hosts) for rest in left)
            for rest, count in zip(left, alike, strict=True):
                if not touched.isdisjoint(rest.hosts):
                    pod_set = sets[rest.pod_set]
                    there, choice = self._landing(pod_set, count, rest.hosts)
                    for host in there:
                        group = Group(uid, pod_set, "", {}, rest.count, rest.hosts, there, choice)
                        found.setdefault(host, []).append(group)
        return found

    def sums(self, groups: Iterable[Group]) -> dict[str, dict[str, int]]:
        """Their requests where the plan has them, by node."""
        found: dict[str, dict[str, int]] = {}
        for group in groups:
            for name, count in group.nodes.items():
                add(found.setdefault(name, {}), group.pod_set.requests, count)
        return found

    def last(self, name: str, resource: str, among: Collection[str]) -> str:
        """The last in turn of these gangs that takes a resource of a node."""
        groups = (group for uid in self.rows if uid in among for group in self.coming[uid])
        return [g.uid for g in groups if name in g.nodes and g.pod_set.requests.get(resource)][-1]

    def _by_label(self, key: str) -> Mapping[str, list[str]]:
        """Names of the nodes with a label, by its value."""
        found: dict[str, list[str]] = {}
        for name, state in self.states.items():
            if key in state.node.labels:
                found.setdefault(state.node.labels[key], []).append(name)
        return found

    def _open(self, name: str) -> Resources:
        """Amounts of a node that no bound pod requests."""
        found = dict(self.states[name].node.allocatable)
        add(found, self.states[name].used, -1)
        return found

    def room(self, names: Iterable[str], gone: Collection[str] = ()) -> dict[str, dict[str, int]]:
        """Room on these nodes once `gone` have left, less the pods of earlier cycles without a choice: as many as fit
        one after the other.
        """
        found = {name: dict(self.open(name)) for name in names}
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
        """The charge of a waiting gang at these places."""
        counts = {row.pod_set: row.count for row in rows}
        return self.pending[uid].workload, counts, {row.pod_set: row.flavor for row in rows}

    def parts(self, uids: Iterable[str]) -> Iterable[Part]:
        """Of gangs that the plan starts or holds."""
        return [self.part(uid, self.rows[uid]) for uid in uids]

    @cached_property
    def entitled(self) -> Mapping[str, frozenset[str]]:
        """The queues of its path at which a gang is entitled at its turn, beside all work admitted or decided
        before. It holds for gangs that evict, and gangs that nobody may evict.
        """
        asked = {e.beneficiary for e in self.plan.evictions}
        asked.update(uid for uid in self.new if not self.workload(uid).preemptible)
        use, before, found = Use(self.book, self.use), list[str](), dict[str, frozenset[str]]()
        for uid in self.rows if asked else ():
            if uid in asked:
                use.count(self.parts(before))
                before = []
                found[uid] = use.entitled(self.workload(uid).queue, self.asks(uid))
            before.append(uid)
        return found


def _once_ready(node: Node) -> Node:
    """The node without its taints for a bad state, which go as it recovers. A cordon stays."""
    lasting = tuple(t for t in node.taints if not t.key.startswith("node.kubernetes.io/"))
    return replace(node, ready=True, taints=lasting)


def _sizes(rows: Rows) -> Mapping[str, tuple[str, int]]:
    return {row.pod_set: (row.flavor, row.count) for row in rows}
