"""Short ways to write nodes, queues, gangs and snapshots in tests of the decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from queuer.domain.assignments import Admission, Bond, Reservation, SolveStatus
from queuer.domain.nodes import Flavor, Node, Topology
from queuer.domain.quantity import add
from queuer.domain.queue import Policy, Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, CycleStats, NodeState, Pending, Plan, Snapshot, Unbound
from queuer.solver.state import State
from queuer.solver.verify import verify

GPU = "example.com/gpu"
TOPOLOGY = Topology(keys=("block", "rack"))


def node(
    name: str, *, gpu: int = 8, pods: int = 20, labels: Mapping[str, str] | None = None, **more: Any
) -> Node:
    """A node with GPUs."""
    return Node(name=name, labels=labels or {}, allocatable={GPU: gpu, "pods": pods}, **more)


def pod_set(count: int, gpu: int, *, name: str = "main", **more: Any) -> PodSet:
    """`count` pods of `gpu` GPUs each."""
    return PodSet(name=name, count=count, requests={GPU: gpu, "pods": 1}, **more)


def gang(uid: str, *sets: PodSet, queue: str = "root.a", submitted: float = 0.0, **more: Any) -> Workload:
    """A workload named after its uid."""
    return Workload(
        uid=uid,
        kind="Job",
        namespace="test",
        name=uid,
        queue=queue,
        pod_sets=sets,
        submitted=submitted,
        **more,
    )


def running(
    workload: Workload,
    nodes: Mapping[str, int],
    *,
    since: float = -1000.0,
    flavor: str = "default",
    **more: Any,
) -> Admitted:
    """An admitted workload of one pod set with all its pods bound: pods by node."""
    only = workload.pod_sets[0]
    return Admitted(
        workload=workload,
        counts={only.name: sum(nodes.values())},
        flavors={only.name: flavor},
        since=since,
        bound={name: add({}, only.requests, times=count) for name, count in nodes.items()},
        **more,
    )


def landing(uid: str, pods: int, gpus: int, *hosts: str) -> Admitted:
    """A gang whose pods have still to land on these hosts."""
    return Admitted(
        workload=gang(uid, pod_set(pods, gpus)),
        counts={"main": pods},
        flavors={"main": "default"},
        since=0.0,
        unbound=(Unbound(pod_set="main", count=pods, hosts=hosts),),
    )


def row(
    resource: str = GPU,
    *,
    flavor: str | None = None,
    guaranteed: int | None = None,
    limit: int | None = None,
    lend: int | None = None,
) -> QuotaRow:
    """A quota row, of GPUs unless said."""
    return QuotaRow(resource=resource, flavor=flavor, guaranteed=guaranteed, limit=limit, lend=lend)


def queue(path: str, *rows: QuotaRow, policy: Policy | None = None, **more: Any) -> Queue:
    """A queue with rows."""
    return Queue(path=path, quota=rows, policy=policy or Policy(), **more)


def snapshot(
    nodes: Iterable[Node],
    queues: Iterable[Queue],
    *,
    admitted: Iterable[Admitted] = (),
    pending: Iterable[Workload | Pending] = (),
    flavors: tuple[Flavor, ...] = (),
    topology: Topology = TOPOLOGY,
    foreign: Mapping[str, Mapping[str, int]] | None = None,
    **more: Any,
) -> Snapshot:
    """A snapshot whose node use is what the admitted (and foreign) pods take."""
    there = tuple(admitted)
    used: dict[str, dict[str, int]] = {name: dict(amounts) for name, amounts in (foreign or {}).items()}
    for one in there:
        for name, amounts in one.bound.items():
            used[name] = add(used.get(name, {}), amounts)
    return Snapshot(
        nodes=tuple(NodeState(node=n, used=used.get(n.name, {})) for n in nodes),
        tree=QueueTree.of(queues),
        topology=topology,
        flavors=flavors,
        admitted=there,
        pending=tuple(p if isinstance(p, Pending) else Pending(workload=p) for p in pending),
        **more,
    )


def state_of(snap: Snapshot, *, now: float = 0.0) -> State:
    """The state at the start of a decision."""
    return State(Arrays.of(snap), time=now)


def decided(snap: Snapshot, *, now: float = 0.0, solver: float = 0.0) -> Plan:
    """The plan, which is sound. `solver`: deterministic time of CP-SAT."""
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=solver))
    assert verify(snap, plan, now=now) == ()
    assert not plan.stats.refused
    return plan


def plan_of(**fields: Any) -> Plan:
    """A plan that does nothing but what is said."""
    made = Plan(
        admissions=(), evictions=(), bonds=(), reservations=(), explanations={}, order=(),
        stats=CycleStats(status=SolveStatus.GREEDY),
    )  # fmt: skip
    return replace(made, **fields)


def started(plan: Plan) -> set[str]:
    """Who starts."""
    return {admission.uid for admission in plan.admissions}


def hosts(plan: Plan, uid: str) -> dict[str, int]:
    """Pods by node of a gang that starts, is bound, or has a reservation, all pod sets together."""
    found: dict[str, int] = {}
    all_placed: tuple[Admission | Bond | Reservation, ...] = (
        *plan.admissions,
        *plan.bonds,
        *plan.reservations,
    )
    for placed in all_placed:
        if placed.uid == uid:
            for row in placed.assignments:
                for name, count in row.nodes.items():
                    found[name] = found.get(name, 0) + count
            return found
    return found


def token(plan: Plan, uid: str) -> Token:
    """The reason of a waiting gang."""
    return plan.explanations[uid].primary.token
