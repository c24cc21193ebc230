"""Whom of those that wait a decision is not asked about, as their users have what they may (`domain/per_user.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from queuer.controller.ledger.commit import about
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain import per_user
from queuer.domain.per_user import Shares, Waiting
from queuer.domain.reasons import Explanation


def over_user_limit(waiting: Iterable[Live], state: ClusterState) -> dict[str, Explanation]:
    """Those of the waiting workloads that are not to be offered, and why. Never who is bound: work was lost for its
    place. Raises Mishandled.
    """
    tree = state.rules.tree
    if not tree.per_user:
        return {}
    shares = Shares(tree)
    for live in (state.live[uid] for uid in state.holds):
        assert live.placement is not None
        # Who is set aside already is not named again: the decision would never be asked.
        with suppress(Exception) if live.uid in state.quarantine else about(live.uid):
            whole = {p.name: p.count for p in live.workload.pod_sets}
            shares.use(live.workload, {**whole, **live.placement.held})
    bound = {bond.uid for bond in state.bonds}
    rows = (
        Waiting(
            workload=live.workload,
            first=live.first,
            bound=live.uid in bound,
            hopeless=live.hopeless,
            why=live.explanation,
        )
        for live in waiting
    )
    return per_user.over_user_limit(rows, shares, tree, guard=about)
