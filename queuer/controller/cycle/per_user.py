"""What one user may have at a time (`access.perUser`): of a user's waiting jobs only so many are offered to a decision,
in order, as fit beside what the user has. So whichever of them it starts, no limit is exceeded.

A job that is offered keeps its part while it waits: later jobs of the same user do not pass it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

from queuer.controller.ledger.commit import about
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.per_user import Rows, Short, asked, explanation, limits_of
from queuer.domain.queue import QueueState
from queuer.domain.reasons import Explanation
from queuer.domain.workload import Workload


class _Shares:
    """What each user has, and asks for in jobs that are offered, by user, queue and resource."""

    def __init__(self, rows: Mapping[str, Rows]) -> None:
        self._rows = rows
        self._used = Counter[tuple[str, str, str]]()
        self._ahead = Counter[tuple[str, str, str]]()

    def use(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """It has so many pods of each set."""
        for queue, resource, _, amount in self._asked(workload, counts):
            self._used[workload.user, queue, resource] += amount

    def offer(self, workload: Workload) -> None:
        """It may start in this cycle, at its full size."""
        for queue, resource, _, amount in self._asked(workload, _whole(workload)):
            self._ahead[workload.user, queue, resource] += amount

    def short(self, workload: Workload) -> Short | None:
        """The limit that it would exceed; first one that it exceeds by itself."""
        found = None
        for queue, resource, limit, asks in self._asked(workload, _whole(workload)):
            key = workload.user, queue, resource
            used, ahead = self._used[key], self._ahead[key]
            if asks > limit or (found is None and used + ahead + asks > limit):
                found = Short(
                    queue=queue, user=workload.user, resource=resource, limit=limit, used=used, ahead=ahead, asks=asks
                )  # fmt: skip
                if asks > limit:
                    break
        return found

    def _asked(self, workload: Workload, counts: Mapping[str, int]) -> Iterator[tuple[str, str, int, int]]:
        return asked(self._rows.get(workload.queue, ()), workload, counts)


def beyond(waiting: Iterable[Live], state: ClusterState) -> dict[str, Explanation]:
    """Those of the waiting workloads that are not to be offered, and why. Never who is bound: work was lost for its
    place. Raises Mishandled.
    """
    tree = state.rules.tree
    per_user = tree.per_user
    if not per_user:
        return {}
    shares = _Shares({path: limits_of(rows) for path, rows in per_user.items()})
    for live in (state.live[uid] for uid in state.holds):
        assert live.placement is not None
        # Who is set aside already is not named again: the decision would never be asked.
        with suppress(Exception) if live.uid in state.quarantine else about(live.uid):
            shares.use(live.workload, {**_whole(live.workload), **live.placement.held})
    bound = {bond.uid for bond in state.bonds}
    # Where nothing starts nobody takes part from jobs elsewhere, and is told by the decision that the queue is closed.
    open_ = {path for path in per_user if tree.effective_state(path) is QueueState.OPEN}
    limited = (live for live in waiting if live.workload.queue in open_ or live.uid in bound)
    found, told = dict[str, Explanation](), cache(explanation)
    for live in sorted(limited, key=lambda live: (live.uid not in bound, *_order(live))):
        with about(live.uid):
            short = shares.short(live.workload)
            if short is None or live.uid in bound:
                shares.offer(live.workload)
            else:
                # What can never start is not told to wait for others.
                found[live.uid] = live.explanation if live.hopeless and live.explanation else told(short)
    return found


def _order(live: Live) -> tuple[bool, bool, int, float, str]:
    """As a leaf offers them; but what can never start takes nothing from what can."""
    own = live.workload
    return live.hopeless, not live.first, -own.priority, own.submitted, own.uid


def _whole(workload: Workload) -> dict[str, int]:
    return {p.name: p.count for p in workload.pod_sets}
