"""Four nodes in two racks, what runs on them until when, and who waits: what tests of reservations share."""

from __future__ import annotations

from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Assignment, Budget, Plan, Reservation, Snapshot
from queuer.solver.verify import verify
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

NOW = 1000.0
WAIT = 600.0
FOUR = [node(f"n{i}", labels={"rack": f"r{i // 2}"}) for i in range(4)]


def busy(uid: str, *nodes: str, end: float | None = None, gpus: int = 8, since: float = 0.0) -> Admitted:
    """A gang with one pod on each of these nodes."""
    workload = gang(uid, pod_set(len(nodes), gpus))
    return running(workload, dict.fromkeys(nodes, 1), since=since, expected_end=end)


def asks(uid: str, pods: int, gpus: int = 8, *, submitted: float = NOW, **more: object) -> Workload:
    """A waiting gang of whole nodes, unless said."""
    return gang(uid, pod_set(pods, gpus), submitted=submitted, **more)  # type: ignore[arg-type]


def world(
    admitted: list[Admitted],
    pending: list[Workload],
    *,
    max_wait: float | None = None,
    most: int = 1,
    held: tuple[Reservation, ...] = (),
) -> Snapshot:
    """Four nodes of 8 GPUs in two racks, one queue in which nobody can be evicted."""
    policy = Policy(preempt=Preempt.NEVER, max_wait=max_wait, reservations=most)
    queues = [queue("root", policy=policy), queue("root.a")]
    return snapshot(FOUR, queues, admitted=admitted, pending=pending, reservations=held)


def plan_of(snap: Snapshot, *, now: float = NOW) -> Plan:
    """The greedy plan, verified."""
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=now) == ()
    return plan


def place(*nodes: str) -> tuple[Assignment, ...]:
    """One pod on each."""
    return (Assignment(pod_set="main", flavor="default", nodes=dict.fromkeys(nodes, 1)),)


def two(owner: str, *nodes: str, start: float) -> Reservation:
    """A reservation of whole nodes, unless they are shared."""
    return Reservation(uid=owner, assignments=place(*nodes), start=start, expires=start + WAIT)


def hosts(reservation: Reservation) -> set[str]:
    """Where it is."""
    return {name for row in reservation.assignments for name in row.nodes}
