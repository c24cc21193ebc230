"""How good a plan is: one pure function by which greedy and solver plans are compared (DESIGN 3.4).

First a flag for each gang in tournament order (started 2, bound 1, waiting 0), then the levels: eviction
cost, flavor order, narrowness of topology, fragmentation. All integers, compared lexicographically.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.nodes import Flavor, Topology, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.queue import QueueState, QueueTree
from queuer.domain.workload import PodSet, Workload, demand_of
from queuer.solver.packed.worth import Worth, packed_subtrees
from queuer.solver.problem import Admitted, Assignment, EvictionRule, NodeState, Plan, Snapshot

SHARE = 10**9
"""A dominant share of 1 as an integer."""


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Larger is better, field by field. Costs are negative.

    `flags`: in tournament order; a priority of a packed subtree has one, its sum of worth times flags, where its first
    gang comes. `eviction`: see `eviction_cost`, so that borrowers go before one's own lower work. `flavor`: for each
    gang that is placed, in tournament order as each has its flavors from its turn, ranks in the allowed order, summed
    over pod sets. `width`: levels wider than asked, times pods. `whole`: hosts and domains that hold no workload.
    `fullness`: squares of the hosts' fullness in thousandths. For both, whoever is leaving has gone: else the hosts of
    such work would seem the fullest, and bound gangs be laid on what it leaves first of all.
    """

    flags: tuple[int, ...]
    eviction: tuple[int, int, int, int]
    flavor: tuple[int, ...]
    width: int
    whole: int
    fullness: int


def score(snapshot: Snapshot, plan: Plan, *, now: float) -> Score:
    """The score of a plan for this snapshot."""
    places = {a.uid: a.assignments for a in plan.admissions}
    started = frozenset(places)
    places.update({b.uid: b.assignments for b in plan.bonds})
    workloads = {p.workload.uid: p.workload for p in snapshot.pending}
    flags = tuple(
        _flags(plan, started, places, packed=_packed(snapshot, plan, workloads, started, places, now=now))
    )
    admitted = {a.workload.uid: a for a in snapshot.admitted}
    gone = frozenset(e.uid for e in plan.evictions)
    capacity = live_capacity(snapshot.nodes, snapshot.flavors)
    new = {uid: rows for uid, rows in sorted(places.items()) if uid in workloads}
    evicted = eviction_cost(((admitted[e.uid], e.rule) for e in plan.evictions), capacity=capacity, now=now)
    return Score(
        flags,
        (-evicted[0], -evicted[1], -evicted[2], -evicted[3]),
        tuple(
            -flavor_rank(workloads[uid], new[uid], tree=snapshot.tree, flavors=snapshot.flavors)
            for uid in plan.order
            if uid in new
        ),
        -sum(width(workloads[uid], rows, snapshot=snapshot) for uid, rows in new.items()),
        *_left_whole(snapshot, new, workloads, gone),
    )


def _flags(
    plan: Plan, started: Container[str], places: Container[str], *, packed: Mapping[str, tuple[object, int]]
) -> Iterator[int]:
    """Started 2, bound 1, waiting 0; of those `packed` together one sum where the first comes."""
    told = set()
    for uid in plan.order:
        if uid not in packed:
            yield 2 if uid in started else 1 if uid in places else 0
        elif packed[uid][0] not in told:
            told.add(packed[uid][0])
            yield sum(worth for group, worth in packed.values() if group == packed[uid][0])


def _packed(
    snapshot: Snapshot,
    plan: Plan,
    workloads: Mapping[str, Workload],
    started: Container[str],
    places: Mapping[str, Sequence[Assignment]],
    *,
    now: float,
) -> dict[str, tuple[object, int]]:
    """Gangs that had a turn in a packed subtree: it and their priority, and their worth times their flag."""
    tree, before = snapshot.tree, {b.uid for b in snapshot.bonds}
    roots = {
        leaf: root
        for leaf, root in packed_subtrees(tree).items()
        if tree.effective_state(leaf) is QueueState.OPEN
    }
    mine = [
        w
        for w in map(workloads.__getitem__, plan.order)
        if w.queue in roots and not w.hold and w.uid not in before
    ]
    capacity = live_capacity(snapshot.nodes, snapshot.flavors) if mine else {}
    worth = {
        root: Worth((w for w in mine if roots[w.queue] == root), capacity=capacity, now=now)
        for root in {roots[w.queue] for w in mine}
    }
    found: dict[str, tuple[object, int]] = {}
    for workload in mine:
        root = roots[workload.queue]
        counts = dict.fromkeys((p.name for p in workload.pod_sets), 0)
        counts |= {row.pod_set: row.count for row in places.get(workload.uid, ())}
        flag = 2 if workload.uid in started else 1
        found[workload.uid] = ((root, workload.priority), flag * worth[root].of(workload, counts))
    return found


def live_capacity(nodes: Iterable[NodeState], flavors: Sequence[Flavor]) -> dict[str, int]:
    """Allocatable of all nodes that have a flavor, cordoned and unready ones included, by resource.

    Those are included because the work on them is still counted as used.
    """
    total: dict[str, int] = {}
    for state in nodes:
        if flavor_of(state.node, flavors) is not None:
            for resource, amount in state.node.allocatable.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def dominant_share(amounts: Resources, capacity: Mapping[str, int]) -> int:
    """Largest part of the live capacity of any resource, in units of 1/SHARE; resources without capacity are
    left out.
    """
    return max((n * SHARE // capacity[r] for r, n in amounts.items() if capacity.get(r)), default=0)


def lost_work(victim: Admitted, *, capacity: Mapping[str, int], now: float) -> int:
    """What an eviction throws away: dominant share times whole seconds since start or last checkpoint."""
    since = victim.since if victim.checkpoint is None else max(victim.since, victim.checkpoint)
    demand = demand_of(victim.workload.pod_sets, victim.counts)
    return dominant_share(demand, capacity) * max(0, int(now - since))


def eviction_cost(
    victims: Iterable[tuple[Admitted, EvictionRule]], *, capacity: Mapping[str, int], now: float
) -> tuple[int, int, int, int]:
    """(lost work of those preempted for priority, lost work, gangs, sum of priorities); smaller is better."""
    preempted = lost = gangs = priority = 0
    for victim, rule in victims:
        work = lost_work(victim, capacity=capacity, now=now)
        preempted += preempted_work(work, rule)
        lost += work
        gangs += 1
        priority += victim.workload.priority
    return preempted, lost, gangs, priority


def preempted_work(work: int, rule: EvictionRule) -> int:
    """What the eviction of a gang with this lost work adds to the first level of the cost: nothing where it is
    reclaimed, else more than nothing even if it has just started.
    """
    return work + 1 if rule is EvictionRule.PREEMPT else 0


def allowed_flavors(
    pod_set: PodSet, *, queue: str, tree: QueueTree, flavors: Sequence[Flavor]
) -> tuple[str, ...]:
    """Flavors that the queue allows for a pod set, best first (DESIGN 3.1).

    For each resource that it asks for, the nearest queue on the path whose rows for it name flavors says
    which and in what order; with several such resources the first (by row order) gives the order, the others
    restrict it. No such row: all declared flavors in their order.
    """
    names = tuple(f.name for f in flavors) or ("default",)
    chosen: tuple[str, ...] | None = None
    for resource in sorted(r for r, n in pod_set.requests.items() if n):
        rows = next(
            (
                found
                for path in tree.lineage(queue)
                if path in tree and (found := _named(tree, path, resource))
            ),
            (),
        )
        if rows:
            chosen = rows if chosen is None else tuple(name for name in chosen if name in rows)
    return names if chosen is None else tuple(name for name in chosen if name in names)


def _named(tree: QueueTree, path: str, resource: str) -> tuple[str, ...]:
    return tuple(
        row.flavor for row in tree[path].quota if row.resource == resource and row.flavor is not None
    )


def flavor_rank(
    workload: Workload, assignments: Sequence[Assignment], *, tree: QueueTree, flavors: Sequence[Flavor]
) -> int:
    """Sum over pod sets of the flavor's place in the allowed order, 0 = first choice."""
    sets = {p.name: p for p in workload.pod_sets}
    total = 0
    for row in assignments:
        allowed = allowed_flavors(sets[row.pod_set], queue=workload.queue, tree=tree, flavors=flavors)
        total += allowed.index(row.flavor) if row.flavor in allowed else len(allowed)
    return total


def width(workload: Workload, assignments: Sequence[Assignment], *, snapshot: Snapshot) -> int:
    """How much wider than asked a place is: levels times pods, 0 = as narrow as asked.

    `required`: levels from host up to the narrowest one that holds all. `preferred`: levels above the
    preferred one.
    """
    nodes = {s.node.name: s for s in snapshot.nodes}
    sets = {p.name: p for p in workload.pod_sets}
    parts = [
        (
            workload.required,
            workload.preferred,
            [n for row in assignments for n in row.nodes],
            sum(r.count for r in assignments),
        )
    ]
    parts += [
        (sets[r.pod_set].required, sets[r.pod_set].preferred, list(r.nodes), r.count) for r in assignments
    ]
    total = 0
    for required, preferred, names, count in parts:
        level = required or preferred
        at = None if level is None else snapshot.topology.find(level)
        if at is None:
            continue
        last = len(snapshot.topology.keys) - 1
        aim = last if required else at
        found = narrowest(snapshot.topology, [nodes[n] for n in names], start=aim)
        total += (aim - found) * count
    return total


def narrowest(topology: Topology, states: Sequence[NodeState], *, start: int) -> int:
    """Index of the narrowest level, not below `start`, with one domain that holds all nodes; -1 = none."""
    for level in range(start, -1, -1):
        domains = {topology.domain(s.node, level) for s in states}
        if len(domains) == 1 and None not in domains:
            return level
    return -1


def _left_whole(
    snapshot: Snapshot,
    new: Mapping[str, Sequence[Assignment]],
    workloads: Mapping[str, Workload],
    gone: frozenset[str],
) -> tuple[int, int]:
    taken: set[str] = set()
    used = {s.node.name: dict(s.used) for s in snapshot.nodes}
    for admitted in snapshot.admitted:
        if admitted.releasing or admitted.workload.uid in gone:
            for name, amounts in admitted.bound.items():
                _add(used, name, amounts, times=-1)
            continue
        taken.update(admitted.bound)
        taken.update(host for row in admitted.unbound for host in row.hosts)
    for uid, rows in new.items():
        sets = {p.name: p for p in workloads[uid].pod_sets}
        for row in rows:
            taken.update(row.nodes)
            for name, count in row.nodes.items():
                _add(used, name, sets[row.pod_set].requests, times=count)
    whole = 0
    for level in range(len(snapshot.topology.keys)):
        domains: dict[tuple[str, ...], bool] = {}
        for state in snapshot.nodes:
            domain = snapshot.topology.domain(state.node, level)
            if domain is not None:
                domains[domain] = domains.get(domain, True) and state.node.name not in taken
        whole += sum(domains.values())
    fullness = sum(_fullness(s, used[s.node.name]) ** 2 for s in snapshot.nodes)
    return whole, fullness


def _add(used: dict[str, dict[str, int]], name: str, amounts: Resources, *, times: int) -> None:
    if name in used:
        for resource, amount in amounts.items():
            used[name][resource] = used[name].get(resource, 0) + times * amount


def _fullness(state: NodeState, used: Mapping[str, int]) -> int:
    return max(
        (used.get(r, 0) * 1000 // n for r, n in state.node.allocatable.items() if n and r != "pods"),
        default=0,
    )
