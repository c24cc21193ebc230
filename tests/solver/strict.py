"""Whether a plan keeps `order: strict`: nothing passes a gang that waits before it, disjoint flavors aside."""

from __future__ import annotations

from queuer.domain.queue import Order
from queuer.domain.rules import allowed_flavors
from queuer.domain.workload import Workload
from queuer.solver.faults import faults_of_workload
from queuer.solver.records import Pending, Plan, Snapshot


def passers(snapshot: Snapshot, plan: Plan) -> list[tuple[str, str]]:
    """Gangs that start or are bound anew, and the gangs that they pass. A bond from before passes nobody."""
    tree, found = snapshot.tree, list[tuple[str, str]]()
    given = {a.uid for a in plan.admissions} | {b.uid for b in plan.bonds}
    new = given - {bond.uid for bond in snapshot.bonds}
    ahead = [
        p
        for p in snapshot.pending
        if p.workload.uid not in given and not p.workload.hold and not any(faults_of_workload(p.workload))
    ]
    for passing in (p for p in snapshot.pending if p.workload.uid in new):
        gang = passing.workload
        if tree.policy(gang.queue).order is Order.STRICT:
            found += [
                (gang.uid, head.workload.uid)
                for head in ahead
                if head.workload.queue == gang.queue
                and _turn(head) < _turn(passing)
                and not _flavors(snapshot, gang).isdisjoint(_flavors(snapshot, head.workload))
            ]
    return found


def _turn(pending: Pending) -> tuple[bool, int, float]:
    return (not pending.first, -pending.workload.priority, pending.workload.submitted)


def _flavors(snapshot: Snapshot, gang: Workload) -> set[str]:
    return {
        flavor
        for pod_set in gang.pod_sets
        for flavor in allowed_flavors(pod_set, queue=gang.queue, tree=snapshot.tree, flavors=snapshot.flavors)
    }
