"""First in, first out with best-fit domains: the plain rule that `order: packed` is measured against.

By priority, then age; who is blocked is skipped; a walk up the quota limits; the narrowest domain that fits, of those
the one with least left over, its fullest nodes first. GPUs alone, nobody is evicted. All starts can land at once: a pod
set that could land on its hosts in more than one way has them to itself. No code of the decision is shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.instances import GPU, KEYS
from queuer.domain.nodes import HOSTNAME
from queuer.domain.workload import Workload
from queuer.solver.records import Snapshot

Domains = dict[tuple[str, ...], list[str]]
Gpus = dict[str, int]
"""By node."""
Place = dict[str, dict[str, int]]
"""Pods by node, by pod set."""


def fifo(snapshot: Snapshot) -> dict[int, int]:
    """GPUs that start, by priority."""
    free = {s.node.name: s.node.allocatable[GPU] - s.used.get(GPU, 0) for s in snapshot.nodes}
    open_, guests, owned = dict(free), set[str](), set[str]()
    levels = _levels(snapshot)
    used: dict[str, int] = defaultdict(int)
    for admitted in snapshot.admitted:
        for queue in _path(admitted.workload.queue):
            used[queue] += admitted.workload.demand[GPU]
    limits = {q.path: r.limit for q in snapshot.tree for r in q.quota if r.limit is not None}
    started: dict[int, int] = defaultdict(int)
    for workload in sorted((p.workload for p in snapshot.pending), key=lambda w: (-w.priority, w.submitted)):
        asks, path = workload.demand[GPU], list(_path(workload.queue))
        if any(queue in limits and used[queue] + asks > limits[queue] for queue in path):
            continue
        place, own = _placed(workload, free, levels, open_, closed=owned)
        if not own.isdisjoint(guests):
            place, own = _placed(workload, free, levels, open_, closed=owned | guests)
        if place is None:
            continue
        for pod_set in workload.pod_sets:
            for node, pods in place[pod_set.name].items():
                free[node] -= pods * pod_set.requests[GPU]
                guests.add(node)
        owned |= own
        for queue in path:
            used[queue] += asks
        started[workload.priority] += asks
    return dict(started)


def _placed(
    workload: Workload, free: Gpus, levels: dict[str, Domains], open_: Gpus, *, closed: set[str]
) -> tuple[Place | None, set[str]]:
    """A place off the closed hosts, and those of its hosts where a pod set could land in more than one way. `open_`:
    what was free before the first start.
    """
    place = _place(workload, {n: 0 if n in closed else gpus for n, gpus in free.items()}, levels)
    found: set[str] = set()
    for pod_set in workload.pod_sets:
        hosts = (place or {}).get(pod_set.name, {})
        slots = sum(open_[node] // pod_set.requests[GPU] for node in hosts)
        found.update(hosts if len(hosts) > 1 and slots > pod_set.count else ())
    return place, found


def _path(queue: str) -> Iterator[str]:
    while queue:
        yield queue
        queue = queue.rpartition(".")[0]


def _levels(snapshot: Snapshot) -> dict[str, Domains]:
    """Nodes by domain, by name of the level, narrowest first."""
    found: dict[str, Domains] = {}
    for depth in range(len(KEYS), -1, -1):
        keys = (*KEYS, HOSTNAME)[: depth + 1]
        domains: Domains = defaultdict(list)
        for state in snapshot.nodes:
            domains[tuple(state.node.labels[k] for k in keys)].append(state.node.name)
        found["host" if depth == len(KEYS) else KEYS[depth].rpartition("/")[2]] = dict(domains)
    return found


def _place(workload: Workload, free: dict[str, int], levels: dict[str, Domains]) -> Place | None:
    if workload.required is None:
        return _fill(workload, free, list(free))
    for level, domains in levels.items():
        fitting = []
        for nodes in domains.values():
            place = _fill(workload, free, nodes)
            if place is not None:
                fitting.append((sum(free[n] for n in nodes), nodes[0], place))
        if fitting:
            return min(fitting, key=lambda f: f[:2])[2]
        if level == workload.required:
            return None
    return None


def _fill(workload: Workload, free: dict[str, int], nodes: list[str]) -> Place | None:
    """All pods on these nodes, the largest pods first, each on the fullest node that has room."""
    if sum(free[n] for n in nodes) < workload.demand[GPU]:
        return None
    taken: dict[str, int] = defaultdict(int)
    place: Place = {}
    for pod_set in sorted(workload.pod_sets, key=lambda p: -p.requests[GPU]):
        left, size = pod_set.count, pod_set.requests[GPU]
        there = place[pod_set.name] = {}
        for node in sorted(nodes, key=lambda n: (free[n] - taken[n], n)):
            pods = min(left, (free[node] - taken[node]) // size)
            if pods > 0:
                there[node] = pods
                taken[node] += pods * size
                left -= pods
            if not left:
                break
        if left:
            return None
    return place
