"""First in, first out with best-fit domains: the plain rule that `order: packed` is measured against.

By priority, then age; who is blocked is skipped; a walk up the quota limits; the narrowest domain that fits, of those
the one with least left over, its fullest nodes first. GPUs alone, nobody is evicted. No code of the decision is shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bench.instances import GPU, KEYS
from queuer.domain.nodes import HOSTNAME
from queuer.domain.workload import Workload
from queuer.solver.records import Snapshot

Domains = dict[tuple[str, ...], list[str]]


def fifo(snapshot: Snapshot) -> dict[int, int]:
    """GPUs that start, by priority."""
    free = {s.node.name: s.node.allocatable[GPU] - s.used.get(GPU, 0) for s in snapshot.nodes}
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
        place = _place(workload, free, levels)
        if place is None:
            continue
        for node, gpus in place.items():
            free[node] -= gpus
        for queue in path:
            used[queue] += asks
        started[workload.priority] += asks
    return dict(started)


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


def _place(workload: Workload, free: dict[str, int], levels: dict[str, Domains]) -> dict[str, int] | None:
    """GPUs by node."""
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


def _fill(workload: Workload, free: dict[str, int], nodes: list[str]) -> dict[str, int] | None:
    """All pods on these nodes, the largest pods first, each on the fullest node that has room."""
    if sum(free[n] for n in nodes) < workload.demand[GPU]:
        return None
    taken: dict[str, int] = defaultdict(int)
    for pod_set in sorted(workload.pod_sets, key=lambda p: -p.requests[GPU]):
        left, size = pod_set.count, pod_set.requests[GPU]
        for node in sorted(nodes, key=lambda n: (free[n] - taken[n], n)):
            pods = min(left, (free[node] - taken[node]) // size)
            taken[node] += pods * size
            left -= pods
            if not left:
                break
        if left:
            return None
    return taken
