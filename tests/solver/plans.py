"""Plans written by hand, to be broken: what the tests of the verifier share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from queuer.domain.queue import Queue
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    Budget,
    CycleStats,
    Eviction,
    Plan,
    Reservation,
    Snapshot,
    SolveStatus,
)
from queuer.solver.verify import Rule, verify
from tests.solver.make import node

Mutation = Callable[[Plan], Plan]
NOW = 0.0
GREEDY = Budget(deterministic=0.0)
RACKS = [
    node("n1", labels={"rack": "r1", "block": "b1"}),
    node("n2", labels={"rack": "r1", "block": "b1"}),
    node("n3", labels={"rack": "r2", "block": "b1"}),
]
STATS = CycleStats(status=SolveStatus.GREEDY)


def waits(token: Token = Token.WAITING_FOR_QUOTA) -> Explanation:
    return Explanation(primary=Reason(token=token, text="It waits."))


def at(nodes: dict[str, int], *, pod_set: str = "main", flavor: str = "default", **more: Any) -> Assignment:
    return Assignment(pod_set=pod_set, flavor=flavor, nodes=nodes, hosts=tuple(sorted(nodes)), **more)


def plan(
    snap: Snapshot,
    starts: Mapping[str, tuple[Assignment, ...]],
    *,
    bonds: tuple[Bond, ...] = (),
    evictions: tuple[Eviction, ...] = (),
    waves: dict[str, int] | None = None,
    reservations: tuple[Reservation, ...] = (),
) -> Plan:
    """A plan with a reason for everyone who waits."""
    uids = [p.workload.uid for p in snap.pending]
    bound = {b.uid for b in bonds}
    return Plan(
        admissions=tuple(
            Admission(uid=u, assignments=rows, wave=(waves or {}).get(u, 0)) for u, rows in starts.items()
        ),
        evictions=evictions,
        bonds=bonds,
        reservations=reservations,
        explanations={
            u: waits(Token.WAITING_FOR_PREEMPTED_WORKLOADS if u in bound else Token.WAITING_FOR_QUOTA)
            for u in uids
            if u not in starts
        },
        order=tuple(uids),
        stats=STATS,
    )


def rules(snap: Snapshot, made: Plan, *, now: float = NOW) -> set[Rule]:
    return {violation.rule for violation in verify(snap, made, now=now)}


def altered(snap: Snapshot, **change: object) -> Snapshot:
    """The snapshot with its only waiting gang changed."""
    only = snap.pending[0]
    return replace(snap, pending=(replace(only, workload=replace(only.workload, **change)),))  # type: ignore[arg-type]


def queues(snap: Snapshot, *new: Queue) -> Snapshot:
    return replace(snap, tree=type(snap.tree).of(new))
