"""Whether a limit that was cut still needs somebody to go: evictions by a changeset end when the limits hold."""

from __future__ import annotations

from queuer.controller.ledger.round import charges
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.quota import Account, charge_of
from queuer.domain.workload import State


class Use:
    """What stays in each queue, by account. Base units; who is on its way out is not counted."""

    def __init__(self, state: ClusterState) -> None:
        self._tree = state.rules.tree
        self._used: dict[str, dict[Account, int]] = {}
        for uid in state.holds:
            live = state.live[uid]
            if live.state is not State.EVICTING and not live.state.ended:
                self._count(live, sign=1)

    def over(self, live: Live) -> bool:
        """Whether something that it holds is above a limit of its queue or of one above it."""
        held = _charge(live)
        return any(
            row.limit is not None
            and held.get((row.flavor, row.resource), 0) > 0
            and self._used[path].get((row.flavor, row.resource), 0) > row.limit
            for path in self._lineage(live)
            for row in self._tree[path].quota
        )

    def goes(self, live: Live) -> None:
        """It is evicted."""
        self._count(live, sign=-1)

    def _count(self, live: Live, *, sign: int) -> None:
        for path in self._lineage(live):
            used = self._used.setdefault(path, {})
            for account, amount in _charge(live).items():
                used[account] = used.get(account, 0) + sign * amount

    def _lineage(self, live: Live) -> tuple[str, ...]:
        queue = live.workload.queue
        return tuple(self._tree.lineage(queue)) if queue in self._tree else ()


def _charge(live: Live) -> dict[Account, int]:
    parts: dict[str, dict[str, int]] = {}
    for charge in charges(live, at=0.0):
        amounts = parts.setdefault(charge.flavor, {})
        for resource, amount in charge.amounts.items():
            amounts[resource] = amounts.get(resource, 0) + amount
    return charge_of(parts)
