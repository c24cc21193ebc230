"""Whom of those that wait a decision is asked about, where queues limit each user, when nobody asks a controller."""

from __future__ import annotations

from dataclasses import replace

from queuer.domain.per_user import Shares, Waiting, beyond
from queuer.domain.reasons import Explanation
from queuer.solver.records import Plan, Snapshot


def offered(snapshot: Snapshot, plan: Plan) -> tuple[Snapshot, dict[str, Explanation]]:
    """The snapshot with those waiting whom its rules let a decision be asked about, and why the others are not: their
    users have what they may. `plan`: what was told of them last.
    """
    tree, rows = snapshot.tree, (*snapshot.pending, *snapshot.barred)
    if not tree.per_user and not snapshot.barred:
        return snapshot, {}
    bound = {bond.uid for bond in snapshot.bonds}
    waiting = (
        Waiting(
            workload=row.workload,
            first=row.first,
            bound=row.workload.uid in bound,
            why=plan.explanations.get(row.workload.uid),
        )
        for row in rows
    )
    told = beyond(waiting, shares_of(snapshot), tree)
    pending = tuple(row for row in rows if row.workload.uid not in told)
    barred = tuple(row for row in rows if row.workload.uid in told)
    return replace(snapshot, pending=pending, barred=barred), told


def shares_of(snapshot: Snapshot) -> Shares:
    """What each user has."""
    shares = Shares(snapshot.tree)
    for held in snapshot.admitted:
        shares.use(held.workload, held.counts)
    return shares
