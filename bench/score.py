"""How good a plan is: one pure function by which plans are compared in benches and tests.

A flag for each gang in tournament order (started 2, bound 1, waiting 0), then eviction cost, flavor order, narrowness
of topology, fragmentation: all integers, compared lexicographically.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.assignments import Admission, Assignment, Bond, EvictionRule
from queuer.domain.nodes import Flavor, Topology, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.queue import QueueState
from queuer.domain.rules import allowed_flavors
from queuer.domain.workload import PodSet, Workload
from queuer.solver.eviction.lost_work import Cost, lost_work, preempted_work
from queuer.solver.faults import faults_of_workload
from queuer.solver.packed import Worth, packed_subtrees
from queuer.solver.records import Admitted, NodeState, Plan, Snapshot

Placements = Mapping[str, Sequence[Assignment]]
"""Of started and bound gangs, by uid."""


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Larger is better, field by field. Costs are negative.

    `flags`: in tournament order; a priority of a packed subtree has one, its sum of worth times flags, where its first
    gang comes. `eviction`: see `eviction_cost`. `flavor`: for each gang that is placed, in tournament order, ranks in
    the allowed order, summed over pod sets. `width`: levels wider than asked, times pods. `whole`: hosts and domains
    that hold no workload. `fullness`: squares of the hosts' fullness in thousandths; for both, whoever leaves has gone.
    """

    flags: tuple[int, ...]
    eviction: Cost
    flavor: tuple[int, ...]
    width: int
    whole: int
    fullness: int


def score(snapshot: Snapshot, plan: Plan, *, now: float) -> Score:
    """The score of a plan for this snapshot."""
    waiting = {p.workload.uid: p.workload for p in snapshot.pending}
    admitted = {a.workload.uid: a for a in snapshot.admitted}
    flags = dict.fromkeys(plan.order, 0)
    flags |= {b.uid: 1 for b in plan.bonds} | {a.uid: 2 for a in plan.admissions}
    rows: tuple[Bond | Admission, ...] = (*plan.bonds, *plan.admissions)
    placed: Placements = {r.uid: r.assignments for r in rows if r.uid in waiting}
    p, w, g, s, e = eviction_cost(
        ((admitted[e.uid], e.rule) for e in plan.evictions),
        capacity=live_capacity(snapshot.nodes, snapshot.flavors),
        now=now,
    )
    return Score(
        tuple(_flags(snapshot, plan.order, flags, placed, now=now)),
        (-p, -w, -g, -s, -e),
        tuple(-_flavor_rank(snapshot, waiting[uid], placed[uid]) for uid in plan.order if uid in placed),
        -_width(snapshot, {uid: (waiting[uid], rows) for uid, rows in placed.items()}),
        *_left_whole(snapshot, placed, waiting, frozenset(e.uid for e in plan.evictions)),
    )


def _flags(
    snapshot: Snapshot,
    order: Iterable[str],
    flags: Mapping[str, int],
    placed: Placements,
    *,
    now: float,
) -> Iterator[int]:
    """By gang; of each priority of a packed subtree one sum where its first gang comes. A gang that a failure of the
    cluster interrupted goes before all, and is chosen with nobody.
    """
    tree = snapshot.tree
    alone = {b.uid for b in snapshot.bonds} | {p.workload.uid for p in snapshot.pending if p.first}
    roots = {
        leaf: root
        for leaf, root in packed_subtrees(tree).items()
        if tree.effective_state(leaf) is QueueState.OPEN
    }
    waiting = {p.workload.uid: p.workload for p in snapshot.pending}
    groups: dict[tuple[str, int], list[Workload]] = {}
    for workload in (waiting[uid] for uid in order if roots and uid not in alone):
        if workload.queue in roots and not workload.hold and not any(faults_of_workload(workload)):
            groups.setdefault((roots[workload.queue], workload.priority), []).append(workload)
    first = {group[0].uid: key for key, group in groups.items()}
    summed = {workload.uid for group in groups.values() for workload in group}
    capacity = live_capacity(snapshot.nodes, snapshot.flavors) if groups else {}
    worth = {
        root: Worth((w for key in groups if key[0] == root for w in groups[key]), capacity=capacity, now=now)
        for root in {root for root, _ in groups}
    }
    for uid in order:
        if uid in first:
            root, _ = first[uid]
            yield sum(
                flags[w.uid] * worth[root].of(w, _counts(w, placed.get(w.uid, ())))
                for w in groups[first[uid]]
            )
        elif uid not in summed:
            yield flags[uid]


def _counts(workload: Workload, rows: Iterable[Assignment]) -> dict[str, int]:
    return dict.fromkeys((p.name for p in workload.pod_sets), 0) | {row.pod_set: row.count for row in rows}


def _flavor_rank(snapshot: Snapshot, workload: Workload, rows: Sequence[Assignment]) -> int:
    """Sum over pod sets of the flavor's place in the allowed order, 0 = first choice."""
    sets, total = {p.name: p for p in workload.pod_sets}, 0
    for row in rows:
        allowed = allowed_flavors(
            sets[row.pod_set], queue=workload.queue, tree=snapshot.tree, flavors=snapshot.flavors
        )
        total += allowed.index(row.flavor) if row.flavor in allowed else len(allowed)
    return total


def _width(snapshot: Snapshot, placed: Mapping[str, tuple[Workload, Sequence[Assignment]]]) -> int:
    """How much wider than asked: levels times pods, of gangs and of pod sets with a level of their own.

    `required`: levels from host up to the narrowest one that holds all. `preferred`: levels above the preferred one.
    """
    nodes, topology, total = {s.node.name: s for s in snapshot.nodes}, snapshot.topology, 0
    for workload, rows in placed.values():
        sets = {p.name: p for p in workload.pod_sets}
        asked: list[tuple[Workload | PodSet, Sequence[Assignment]]] = [(workload, rows)]
        asked += [(sets[row.pod_set], (row,)) for row in rows]
        for levels, part in asked:
            at = topology.find(levels.required or levels.preferred or "")
            if at is not None:
                aim = len(topology.keys) - 1 if levels.required else at
                found = _narrowest(topology, [nodes[n] for row in part for n in row.nodes], start=aim)
                total += (aim - found) * sum(row.count for row in part)
    return total


def _narrowest(topology: Topology, states: Sequence[NodeState], *, start: int) -> int:
    """Index of the narrowest level, not below `start`, with one domain that holds all nodes; -1 = none."""
    for level in range(start, -1, -1):
        domains = {topology.domain(s.node, level) for s in states}
        if len(domains) == 1 and None not in domains:
            return level
    return -1


def _left_whole(
    snapshot: Snapshot, placed: Placements, waiting: Mapping[str, Workload], gone: frozenset[str]
) -> tuple[int, int]:
    """Hosts and domains without a workload, and the fullness of hosts."""
    taken: set[str] = set()
    used = {s.node.name: dict(s.used) for s in snapshot.nodes}
    for admitted in snapshot.admitted:
        if admitted.releasing or admitted.workload.uid in gone:
            for name, amounts in admitted.bound.items():
                _add(used, name, amounts, times=-1)
        else:
            taken.update(admitted.bound, *(row.hosts for row in admitted.unbound))
    for uid, rows in placed.items():
        sets = {p.name: p for p in waiting[uid].pod_sets}
        for row in rows:
            taken.update(row.nodes)
            for name, count in row.nodes.items():
                _add(used, name, sets[row.pod_set].requests, times=count)
    whole = 0
    for level in range(len(snapshot.topology.keys)):
        by_node = {s.node.name: snapshot.topology.domain(s.node, level) for s in snapshot.nodes}
        broken = {by_node[name] for name in taken if name in by_node}
        whole += len({*by_node.values()} - broken - {None})
    return whole, sum(_fullness(s, used[s.node.name]) ** 2 for s in snapshot.nodes)


def _add(used: dict[str, dict[str, int]], name: str, amounts: Resources, *, times: int) -> None:
    if name in used:
        for resource, amount in amounts.items():
            used[name][resource] = used[name].get(resource, 0) + times * amount


def _fullness(state: NodeState, used: Mapping[str, int]) -> int:
    return max(
        (used.get(r, 0) * 1000 // n for r, n in state.node.allocatable.items() if n and r != "pods"),
        default=0,
    )


def live_capacity(nodes: Iterable[NodeState], flavors: Sequence[Flavor]) -> dict[str, int]:
    """Allocatable of all nodes that have a flavor, by resource; cordoned and unready ones included, as the work on
    them is still counted as used.
    """
    total: dict[str, int] = {}
    for state in nodes:
        if flavor_of(state.node, flavors) is not None:
            for resource, amount in state.node.allocatable.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def eviction_cost(
    victims: Iterable[tuple[Admitted, EvictionRule]], *, capacity: Mapping[str, int], now: float
) -> Cost:
    """What a set of victims costs; smaller is better."""
    preempted = lost = gangs = priority = evicted = 0
    for victim, rule in victims:
        work = lost_work(victim, capacity=capacity, now=now)
        preempted += preempted_work(work, rule)
        lost += work
        gangs += 1
        priority += victim.workload.priority
        evicted += victim.evicted
    return preempted, lost, gangs, priority, evicted
