"""The record of a cycle: what readers of the overview and of the history see of it.

A round of a decision carries one. So does a round that asks no decision, but changes what is charged or tells that the
cluster's capacity changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from queuer.controller.ledger.round import Round
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Admission, Assignment, Bond, Reservation, SolveStatus
from queuer.domain.nodes import flavor_of
from queuer.domain.outside import Outside, bounded
from queuer.domain.quantity import NOTHING, Resources, add
from queuer.domain.workload import State, Workload
from queuer.store.cycles import CycleRecord


def record(
    state: ClusterState,
    *,
    cycle: int,
    began: float,
    now: float,
    trigger: str,
    status: SolveStatus = SolveStatus.GREEDY,
    waiting: int = 0,
    stats: Mapping[str, Any] = MappingProxyType({}),
    starts: Iterable[Admission] = (),
    holds: Iterable[Bond | Reservation] | None = None,
) -> CycleRecord:
    """The record of a cycle that ends now, with the cluster's capacity as it is. `starts`, `holds`: see `reserved`."""
    return CycleRecord(
        id=cycle, started_at=began, finished_at=now, trigger=trigger, status=status.value, waiting=waiting,
        stats={**stats, **seen(state, starts=starts, holds=holds)}, capacity=state.capacity_by_flavor,
    )  # fmt: skip


def undecided(state: ClusterState, *, cycle: int, now: float, trigger: str) -> Round:
    """A round with the record of a cycle that asked no decision: what is held stays held."""
    return Round(state.live, now=now, cycle=record(state, cycle=cycle, began=now, now=now, trigger=trigger))


def seen(
    state: ClusterState,
    *,
    starts: Iterable[Admission] = (),
    holds: Iterable[Bond | Reservation] | None = None,
) -> dict[str, Any]:
    """Counts of the cluster beside its capacity: nodes out of use, pods without a paying queue, room that is reserved,
    and jobs that wait in namespaces without a part.
    """
    unmanaged = sum(job.suspended and job.outcome is None for job in state.elsewhere.values())
    beside = [each.without_nodes() for each in outside(state)]
    held = reserved(state, (*state.bonds, *state.reservations) if holds is None else holds, starts)
    return {"out": out_of_use(state), "outside": beside, "unmanaged": unmanaged, "reserved": held}


def reserved(
    state: ClusterState, holds: Iterable[Bond | Reservation], starts: Iterable[Admission] = ()
) -> Mapping[str, int]:
    """Room on usable nodes that is held for waiting jobs, by resource, base units. Work that lands or that `starts`
    now neither uses it nor is about to.
    """
    asked = dict[str, Resources]()
    for hold in holds:
        if (live := state.live.get(hold.uid)) is not None:
            _place(asked, live.workload, hold.assignments)
    if not asked:
        return {}
    coming = dict[str, Resources]()
    for live in (state.live[uid] for uid in state.moving):
        if live.placement is not None and live.state in (State.ADMITTED, State.PLACING):
            _place(coming, live.workload, live.placement.assignments)
            for pod in state.pods.of(live.workload):
                if pod.charged_to is not None:
                    coming[pod.charged_to] = add(coming.get(pod.charged_to, NOTHING), pod.requests, times=-1)
    for start in starts:
        _place(coming, state.live[start.uid].workload, start.assignments)
    found: dict[str, int] = {}
    for node in (state.nodes[name] for name in asked if name in state.nodes):
        if node.schedulable:
            used, lands = state.pods.used(node.name), coming.get(node.name, NOTHING)
            for resource, amount in asked[node.name].items():
                taken = used.get(resource, 0) + max(0, lands.get(resource, 0))
                idle = max(0, node.allocatable.get(resource, 0) - taken)
                found[resource] = found.get(resource, 0) + min(amount, idle)
    return {resource: amount for resource, amount in found.items() if amount}


def _place(sums: dict[str, Resources], workload: Workload, assignments: Iterable[Assignment]) -> None:
    """Count in what the pods of these assignments ask for, by node."""
    requests = {pod_set.name: pod_set.requests for pod_set in workload.pod_sets}
    for assignment in assignments:
        for node, count in assignment.nodes.items():
            sums[node] = add(sums.get(node, NOTHING), requests.get(assignment.pod_set, NOTHING), times=count)


def out_of_use(state: ClusterState) -> Mapping[str, Any]:
    """`{cordoned, notReady, free}` of the nodes of flavors; one that is both is not ready.

    `free`: by resource, base units.
    """
    out = [
        node
        for node in state.nodes.values()
        if not node.schedulable and flavor_of(node, state.rules.flavors) is not None
    ]
    free: dict[str, int] = {}
    for node in out:
        used = state.pods.used(node.name)
        free = add(free, {r: max(0, n - used.get(r, 0)) for r, n in node.allocatable.items()})
    ready = sum(node.ready for node in out)
    return {"cordoned": ready, "notReady": len(out) - ready, "free": free}


def outside(state: ClusterState) -> tuple[Outside, ...]:
    """Owners of the pods that no queue pays for. Work in a queue that is not there is one of them."""
    tree = state.rules.tree
    paid = {uid for uid in state.holds if state.live[uid].workload.queue in tree}
    return bounded(state.pods.unpaid(paid))
