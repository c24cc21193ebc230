"""Clusters in steady state for the benchmarks, drawn from a seed: see `instances.md`, which fixes every number.

Steady state means: the cluster was filled by fair sharing, some gangs have just ended, and only work that came since
the last cycle may still have somebody to displace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from queuer.domain.assignments import EvictionRule
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Admitted, NodeState, Pending, Snapshot

GPU = "nvidia.com/gpu"
NOW = 1_000_000.0
PER_NODE, PER_RACK, PER_BLOCK, PER_ZONE = 8, 8, 8, 10
"""GPUs on a node, nodes in a rack, racks in a block, blocks in a zone."""
KEYS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/block", "topology.kubernetes.io/rack")
PRIORITIES, CHANCES = (0, 10, 100), (0.7, 0.2, 0.1)
BLOCKED = 16
"""Fewest GPUs of a blocked gang."""
FRESH = 0.01
"""Part of the waiting work that came since the last cycle."""


class Mix(StrEnum):
    """`mixed`: 1 to 513 GPUs, 70 % single pods. `large`: gangs of 8 to 257 GPUs, mostly of several nodes."""

    MIXED = "mixed"
    LARGE = "large"


@dataclass(frozen=True, slots=True)
class Form:
    """Size of a gang: pods of `gpus` each, a leader with one GPU or none, the level that holds all."""

    pods: int
    gpus: int
    leader: bool = False
    required: str | None = None

    @property
    def total(self) -> int:
        """GPUs."""
        return self.pods * self.gpus + self.leader


@dataclass(slots=True)
class _Cluster:
    """GPUs free by node while the cluster is being filled, and what runs."""

    free: list[int]
    running: list[tuple[str, Form, dict[int, int], int | None]] = field(default_factory=list)


def instance(*, nodes: int, pending: int, queues: int, mix: Mix, fill: float, seed: int) -> Snapshot:
    """A snapshot at time NOW."""
    rng = Random(seed)
    guarantees = _guarantees(rng, queues, capacity=nodes * PER_NODE)
    cluster = _filled(rng, nodes, mix, guarantees)
    rng.shuffle(cluster.running)
    used = nodes * PER_NODE - sum(cluster.free)
    while cluster.running and used > fill * nodes * PER_NODE:
        _, form, spread, leader = cluster.running.pop()
        used -= form.total
        for node, count in spread.items():
            cluster.free[node] += count * form.gpus
        if leader is not None:
            cluster.free[leader] += 1
    names = sorted(guarantees)
    owners = [rng.choices(names, weights=[guarantees[n] for n in names])[0] for _ in range(pending)]
    priorities, waiting = _priorities(rng, [q for q, *_ in cluster.running], owners)
    running = [
        _admitted(rng, i, run, priority)
        for i, (run, priority) in enumerate(zip(cluster.running, priorities, strict=True))
    ]
    return Snapshot(
        nodes=tuple(node_at(i, used=PER_NODE - free) for i, free in enumerate(cluster.free)),
        tree=_tree(guarantees),
        topology=Topology(keys=KEYS),
        admitted=tuple(running),
        pending=tuple(
            _pending(rng, i, queue, priority, draw_form(rng, mix))
            for i, (queue, priority) in enumerate(zip(owners, waiting, strict=True))
        ),
    )


def crowded(
    *, nodes: int, gangs: int, mix: Mix, rule: EvictionRule, equal: bool = False, seed: int
) -> Snapshot:
    """A full cluster at time NOW; `gangs` of 16 to 257 GPUs are blocked, and may evict all that runs by this rule.

    `equal`: all that runs has the same priority. Raises ValueError where there are more gangs than fit three
    quarters of the cluster.
    """
    if gangs > (most := most_blocked(nodes)):
        raise ValueError(f"gangs: {gangs} are too many for {nodes} nodes, which bear at most {most}")
    rng, ranks = Random(seed), Random(seed)
    capacity = nodes * PER_NODE
    busy = "root.busy" if rule is EvictionRule.RECLAIM else "root.first"
    cluster = _filled(rng, nodes, mix, {busy: capacity})
    forms: list[Form] = []
    left = capacity * 3 // 4
    while len(forms) < gangs:
        form = draw_form(rng, Mix.LARGE)
        if BLOCKED <= form.total <= left - BLOCKED * (gangs - len(forms) - 1):
            forms.append(form)
            left -= form.total
    return Snapshot(
        nodes=tuple(node_at(i, used=PER_NODE - free) for i, free in enumerate(cluster.free)),
        tree=QueueTree.of(
            [
                Queue(path="root"),
                Queue(path="root.busy"),
                Queue(path="root.first", quota=(QuotaRow(resource=GPU, guaranteed=capacity),)),
            ]
        ),
        topology=Topology(keys=KEYS),
        admitted=tuple(
            _admitted(rng, i, run, 0 if equal else ranks.choices(PRIORITIES, CHANCES)[0])
            for i, run in enumerate(cluster.running)
        ),
        pending=tuple(_pending(rng, i, "root.first", 1_000, form) for i, form in enumerate(forms)),
    )


def most_blocked(nodes: int) -> int:
    """How many gangs can be blocked on so many nodes."""
    return nodes * PER_NODE * 3 // 4 // BLOCKED


def draw_form(rng: Random, mix: Mix) -> Form:
    """The size of a gang."""
    if mix is Mix.MIXED and rng.random() < 0.7:
        return Form(1, rng.choices((1, 2, 4, 8), weights=(4, 2, 2, 2))[0])
    most = 64 if mix is Mix.MIXED else 32
    sizes = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n <= most]
    pods = rng.choices(sizes, weights=[1 / n for n in sizes])[0]
    gpus = 8 if rng.random() < 0.8 else 4
    required = None
    if rng.random() < 0.7:
        required = "rack" if pods * gpus <= PER_RACK * PER_NODE and rng.random() < 0.7 else "block"
    return Form(pods, gpus, leader=pods > 1 and rng.random() < 0.1, required=required)


def _guarantees(rng: Random, queues: int, *, capacity: int) -> dict[str, int]:
    """By leaf, √queues groups of leaves under root: 90 % of the GPUs, lognormal."""
    weights = [rng.lognormvariate(0, 1) for _ in range(queues)]
    groups = max(1, round(queues**0.5))
    unit = 0.9 * capacity / sum(weights)
    return {f"root.g{i % groups:02}.q{i:04}": max(1, int(w * unit)) for i, w in enumerate(weights)}


def _tree(guarantees: dict[str, int]) -> QueueTree:
    groups = sorted({path.rpartition(".")[0] for path in guarantees})
    leaves = [
        Queue(path=path, quota=(QuotaRow(resource=GPU, guaranteed=n, limit=None if i % 2 else 3 * n + 64),))
        for i, (path, n) in enumerate(guarantees.items())
    ]
    return QueueTree.of([Queue(path="root"), *(Queue(path=path) for path in groups), *leaves])


def _filled(rng: Random, nodes: int, mix: Mix, guarantees: dict[str, int]) -> _Cluster:
    """Gangs until 40 in a row find no place, each for the queue with the least use for its guarantee of 8 drawn."""
    cluster = _Cluster(free=[PER_NODE] * nodes)
    used = dict.fromkeys(guarantees, 0)
    names, missed = sorted(guarantees), 0
    while missed < 40:
        form = draw_form(rng, mix)
        spread, leader = _place(rng, cluster.free, form)
        if spread is None:
            missed += 1
            continue
        missed = 0
        queue = min(
            rng.sample(names, min(8, len(names))), key=lambda q: (used[q] + form.total) / guarantees[q]
        )
        used[queue] += form.total
        cluster.running.append((queue, form, spread, leader))
    return cluster


def _place(rng: Random, free: list[int], form: Form) -> tuple[dict[int, int] | None, int | None]:
    """In a domain drawn at random, each pod on the first node that has room; takes it off `free`."""
    width = {"rack": PER_RACK, "block": PER_RACK * PER_BLOCK, None: PER_RACK * PER_BLOCK}[form.required]
    if form.pods == 1:
        width = PER_RACK
    domains = -(-len(free) // width)
    for _ in range(4):
        start = rng.randrange(domains) * width
        left, spread = form.pods, dict[int, int]()
        for node in sorted(range(start, min(start + width, len(free))), key=lambda n: free[n]):
            count = min(left, free[node] // form.gpus)
            if count:
                spread[node] = count
                left -= count
        if left:
            continue
        rest = {
            n: free[n] - spread.get(n, 0) * form.gpus for n in range(start, min(start + width, len(free)))
        }
        leader = next((n for n, room in rest.items() if room), None) if form.leader else None
        if form.leader and leader is None:
            continue
        for node, count in spread.items():
            free[node] -= count * form.gpus
        if leader is not None:
            free[leader] -= 1
        return spread, leader
    return None, None


def _priorities(rng: Random, running: Sequence[str], waiting: Sequence[str]) -> tuple[list[int], list[int]]:
    """By queue the highest run, as lower ones have been displaced; fresh arrivals have any."""
    own = [rng.choices(PRIORITIES, CHANCES)[0] for _ in range(len(running) + len(waiting))]
    by_queue: dict[str, list[int]] = {}
    for queue, priority in zip([*running, *waiting], own, strict=True):
        by_queue.setdefault(queue, []).append(priority)
    for drawn in by_queue.values():
        drawn.sort()
    first = [by_queue[q].pop() for q in running]
    rest = []
    for queue in waiting:
        line = by_queue[queue]
        settled = line.pop(rng.randrange(len(line)))
        rest.append(rng.choices(PRIORITIES, CHANCES)[0] if rng.random() < FRESH else settled)
    return first, rest


def _pod_sets(form: Form) -> tuple[PodSet, ...]:
    def requests(gpus: int) -> dict[str, int]:
        return {GPU: gpus, "cpu": 8_000 * gpus, "memory": gpus * 64 * 2**30, "pods": 1}

    workers = PodSet(name="main", count=form.pods, requests=requests(form.gpus))
    return (PodSet(name="leader", count=1, requests=requests(1)), workers) if form.leader else (workers,)


def workload_of(
    uid: str,
    queue: str,
    form: Form,
    *,
    submitted: float,
    lasts: float | None,
    priority: int = 0,
    user: str = "",
) -> Workload:
    """A gang of this size. `lasts`: its estimate, seconds."""
    return Workload(
        uid=uid,
        kind="Job",
        namespace="bench",
        name=uid,
        queue=queue,
        pod_sets=_pod_sets(form),
        submitted=submitted,
        priority=priority,
        user=user,
        required=form.required,
        estimate=lasts,
    )


def _lasts(rng: Random) -> float | None:
    """Lognormal run time with median 1 h in whole minutes; unknown for every fifth."""
    minutes = max(1, round(60 * rng.lognormvariate(0, 1.5)))
    return None if rng.random() < 0.2 else 60.0 * minutes


def _admitted(
    rng: Random, number: int, run: tuple[str, Form, dict[int, int], int | None], priority: int
) -> Admitted:
    queue, form, spread, leader = run
    lasts, age = _lasts(rng), 60.0 * round(60 * rng.lognormvariate(0, 1))
    sets = _pod_sets(form)
    bound: dict[str, dict[str, int]] = {}
    for at, each in (
        *(((n, sets[-1].requests)) for n, c in spread.items() for _ in range(c)),
        *_led(leader, sets),
    ):
        there = bound.setdefault(_name(at), {})
        for resource, amount in each.items():
            there[resource] = there.get(resource, 0) + amount
    since = NOW - age
    return Admitted(
        workload=workload_of(
            f"r{number:05}", queue, form, priority=priority, submitted=since - 600, lasts=lasts
        ),
        counts={p.name: p.count for p in sets},
        flavors={p.name: "default" for p in sets},
        since=since,
        bound=bound,
        expected_end=None if lasts is None else since + lasts,
    )


def _led(leader: int | None, sets: tuple[PodSet, ...]) -> list[tuple[int, dict[str, int]]]:
    return [] if leader is None else [(leader, dict(sets[0].requests))]


def _pending(rng: Random, number: int, queue: str, priority: int, form: Form) -> Pending:
    submitted = NOW - round(rng.uniform(0, 86_400))
    workload = workload_of(
        f"w{number:06}", queue, form, priority=priority, submitted=submitted, lasts=_lasts(rng)
    )
    return Pending(workload=workload)


def _name(index: int) -> str:
    return f"n{index:05}"


def node_at(index: int, *, used: int) -> NodeState:
    """A node of the cluster by number. `used`: GPUs, with CPU and memory in proportion."""
    rack = index // PER_RACK
    block = rack // PER_BLOCK
    labels = {
        HOSTNAME: _name(index),
        KEYS[0]: f"z{block // PER_ZONE:02}",
        KEYS[1]: f"b{block:03}",
        KEYS[2]: f"r{rack:04}",
    }
    there = {GPU: PER_NODE, "cpu": 96_000, "memory": 2**40, "pods": 110}
    taken = {GPU: used, "cpu": 8_000 * used, "memory": used * 64 * 2**30, "pods": used}
    return NodeState(node=Node(name=_name(index), labels=labels, allocatable=there), used=taken)
