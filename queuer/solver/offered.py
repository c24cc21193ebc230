"""Whom of those that wait a decision is asked about, where queues limit each user, when nobody asks a controller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from queuer.domain.per_user import Shares, Waiting, hopeless, over_user_limit
from queuer.domain.reasons import Explanation
from queuer.solver.records import Plan, Snapshot


def offered(snapshot: Snapshot, plan: Plan) -> tuple[Snapshot, dict[str, Explanation]]:
    """The snapshot with those waiting whom its rules let a decision be asked about, and why the others are not: their
    users have what they may. `plan`: what was told of them last.
    """
    tree = snapshot.tree
    if not tree.per_user and not snapshot.barred:
        return snapshot, {}
    rows = {row.workload.uid: row for row in (*snapshot.pending, *snapshot.barred)}
    waiting = {each.workload.uid: each for each in waiting_in(snapshot, plan)}
    told = over_user_limit(waiting.values(), shares_of(snapshot), tree)
    pending = tuple(replace(row, hopeless=False) for uid, row in rows.items() if uid not in told)
    barred = tuple(replace(rows[uid], hopeless=waiting[uid].hopeless) for uid in told)
    return replace(snapshot, pending=pending, barred=barred), told


def waiting_in(snapshot: Snapshot, plan: Plan) -> Iterator[Waiting]:
    """All who wait. `plan`: what was told last of those who were offered."""
    bound = {bond.uid for bond in snapshot.bonds}
    for row in (*snapshot.pending, *snapshot.barred):
        own = row.workload
        why = plan.explanations.get(own.uid)
        yield Waiting(
            workload=own,
            first=row.first,
            bound=own.uid in bound,
            hopeless=row.hopeless or hopeless(why),
            why=why,
        )


def shares_of(snapshot: Snapshot) -> Shares:
    """What each user has."""
    shares = Shares(snapshot.tree)
    for held in snapshot.admitted:
        shares.use(held.workload, held.counts)
    return shares
