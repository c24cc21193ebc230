"""The record of a cycle: what readers of the overview and of the history see of it.

A round of a decision carries one. So does a round that asks no decision, but changes what is charged or tells that the
cluster's capacity changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from queuer.controller.ledger.round import Round
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import SolveStatus
from queuer.domain.nodes import flavor_of
from queuer.domain.outside import Outside, bounded
from queuer.domain.quantity import add
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
) -> CycleRecord:
    """The record of a cycle that ends now, with the cluster's capacity as it is."""
    return CycleRecord(
        id=cycle, started_at=began, finished_at=now, trigger=trigger, status=status.value, waiting=waiting,
        stats={**stats, **seen(state)}, capacity=state.capacity_by_flavor,
    )  # fmt: skip


def undecided(state: ClusterState, *, cycle: int, now: float, trigger: str) -> Round:
    """A round with the record of a cycle that asked no decision: what is held stays held."""
    return Round(state.live, now=now, cycle=record(state, cycle=cycle, began=now, now=now, trigger=trigger))


def seen(state: ClusterState) -> dict[str, Any]:
    """What is told of the cluster beside its capacity: nodes out of use, pods that no queue pays for, and how many jobs
    wait in namespaces that take no part.
    """
    unmanaged = sum(job.suspended and job.outcome is None for job in state.elsewhere.values())
    beside = [each.without_nodes() for each in outside(state)]
    return {"out": out_of_use(state), "outside": beside, "unmanaged": unmanaged}


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
