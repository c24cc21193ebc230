"""From one cycle to the next: what a plan makes of a snapshot when it is carried out (who leaves takes one cycle for
it, and gangs stay bound that long), and what a snapshot may have been a cycle before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from queuer.domain.assignments import Assignment
from queuer.domain.quantity import Resources, add
from queuer.solver.records import Admitted, NodeState, Pending, Plan, Snapshot

CAME, ENDED, STARTED = 100, 30, 30
"""What typically differs between two snapshots: gangs that came, ended and started."""
GONE = 60.0
"""Seconds in which pods that leave are said to be gone: the grace of Kubernetes, with what is added to it."""


def before(snapshot: Snapshot) -> Snapshot:
    """A snapshot of the cycle before: the last that came are not there, the first that run wait to start, others ran
    beside the next ones that have ended since.
    """
    started, stayed = snapshot.admitted[:STARTED], snapshot.admitted[STARTED:]
    ended = [replace(a, workload=replace(a.workload, uid=f"e{a.workload.uid}")) for a in stayed[:ENDED]]
    waiting = (*snapshot.pending[:-CAME], *(Pending(workload=a.workload) for a in started))
    return replace(
        snapshot,
        nodes=_nodes(snapshot, came=ended, gone=started),
        admitted=(*stayed, *ended),
        pending=waiting,
    )


def carried_out(
    snapshot: Snapshot, plan: Plan, *, now: float, ended: int, come: Sequence[Pending], seed: int
) -> Snapshot:
    """The snapshot of the next cycle: what the plan starts runs since `now`; what it evicts is on its way out, as are
    so many drawn gangs that have `ended`; what was so before is gone; others have `come`.
    """
    return _following(snapshot, plan, now=now, ended=ended, come=come, seed=seed, gone=True)


def at_once(snapshot: Snapshot, plan: Plan, *, now: float) -> Snapshot:
    """The snapshot of a cycle that follows at the same time: what was on its way out still is."""
    return _following(snapshot, plan, now=now, ended=0, come=(), seed=0, gone=False)


def _following(
    snapshot: Snapshot,
    plan: Plan,
    *,
    now: float,
    ended: int,
    come: Sequence[Pending],
    seed: int,
    gone: bool,
) -> Snapshot:
    left = [a for a in snapshot.admitted if a.releasing and gone]
    running = {a.workload.uid: a for a in snapshot.admitted if a not in left}
    waiting = {p.workload.uid: p for p in snapshot.pending}
    started = [_admitted(waiting.pop(a.uid), a.assignments, now=now) for a in plan.admissions]
    running.update({a.workload.uid: a for a in started})
    evicted = [eviction.uid for eviction in plan.evictions]
    others = sorted(uid for uid, a in running.items() if not a.releasing and uid not in evicted)
    for uid in (*evicted, *Random(seed).sample(others, min(ended, len(others)))):
        running[uid] = replace(running[uid], releasing=True, gone_by=now + GONE)
    return replace(
        snapshot,
        nodes=_nodes(snapshot, came=started, gone=left),
        admitted=tuple(running.values()),
        pending=(*waiting.values(), *come),
        bonds=plan.bonds,
        reservations=plan.reservations,
    )


def queued_again(snapshot: Snapshot, plan: Plan) -> list[Pending]:
    """Whom the plan evicts, as they wait again once they are gone: they come in the cycle after the next."""
    workloads = snapshot.workloads()
    return [
        Pending(workload=workloads[e.uid], displaced_by=frozenset({e.beneficiary})) for e in plan.evictions
    ]


def _nodes(
    snapshot: Snapshot, *, came: Sequence[Admitted], gone: Sequence[Admitted]
) -> tuple[NodeState, ...]:
    """The nodes with the pods of these gangs, and without those of the others."""
    used = {state.node.name: state.used for state in snapshot.nodes}
    for gangs, times in ((came, 1), (gone, -1)):
        for name, amounts in ((n, a) for gang in gangs for n, a in gang.bound.items()):
            used[name] = add(used[name], amounts, times=times)
    return tuple(
        s if used[s.node.name] is s.used else replace(s, used=used[s.node.name]) for s in snapshot.nodes
    )


def _admitted(pending: Pending, rows: Sequence[Assignment], *, now: float) -> Admitted:
    """The gang with its pods bound where the plan puts them."""
    requests = {p.name: p.requests for p in pending.workload.pod_sets}
    bound: dict[str, Resources] = {}
    for row in rows:
        for node, count in row.nodes.items():
            bound[node] = add(bound.get(node, {}), requests[row.pod_set], times=count)
    return Admitted(
        workload=pending.workload,
        counts={row.pod_set: sum(row.nodes.values()) for row in rows},
        flavors={row.pod_set: row.flavor for row in rows},
        since=now,
        bound=bound,
        displaced_by=pending.displaced_by,
    )
