"""Whose `minRuntime` alone keeps a gang from evicting them: rights, places and quota are looked at as for anybody who
may go.

They are told where they hold what the gang lacks, and where nothing else excludes it once they and all who may go now
have gone. They may go one after the other, in some order, as soon as they have run for long enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from queuer.domain.quota import Account, Charge
from queuer.domain.reasons import Protected
from queuer.domain.usage import Usage
from queuer.solver.contested import Variant
from queuer.solver.explain.place import PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.explain.spared import of_use
from queuer.solver.frame import Matrix
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal
from queuer.solver.sheet import Hold
from queuer.solver.victims import Candidate, Prey, Reach, min_runtime, too_young

STEPS = 100_000
"""Nodes looked at in one cycle; from then on nobody is told."""
RIGHT, LOOK, HOLD = 10, 500, 10
"""How many nodes as much as is done to look up rights, to look once, and to think somebody gone."""


class Young:
    """Asked once all have had their turns."""

    def __init__(self, greedy: Greedy, quota: QuotaWords, place: PlaceWords) -> None:
        self._greedy = greedy
        self._board = greedy.board
        self._quota = quota
        self._place = place
        self._left = STEPS
        self._known: dict[int, Protected | None] = {}
        self._gone: dict[tuple[Reach, Reach], tuple[Usage, Matrix]] = {}

    def find(self, gang: Gang, refusal: Refusal) -> Protected | None:
        """What is out of reach of a gang that quota or nodes keep from starting; the same for all that are alike."""
        if self._prey is None or refusal.block not in _REACHING:
            return None
        if gang.likeness not in self._known:
            found = (self._on(gang, variant, charge) for variant, charge in gang.shape.smallest)
            self._known[gang.likeness] = next((one for one in found if one is not None), None)
        return self._known[gang.likeness]

    @cached_property
    def _prey(self) -> Prey | None:
        """As if all were past it who are not. None = all are."""
        board = self._board
        if not any(queue.policy.min_runtime for queue in board.book.tree):
            return None
        if not any(too_young(board, hold.admitted) for hold in board.holds.values()):
            return None
        return Prey(board, too_young)

    def _on(self, gang: Gang, variant: Variant, charge: Charge) -> Protected | None:
        """The same on these flavors."""
        board, prey, queue = self._board, self._prey, gang.queue
        if prey is None or self._left <= 0:
            return None
        if not gang.pending.workload.preemptible and not board.claimed.entitled(queue, charge, at=queue):
            return None  # that somebody leaves entitles nobody
        self._left -= RIGHT
        reach = prey.reach(gang.pending, charge)
        young = prey.permitted(reach)
        if not young or not self._would_start(gang, variant, charge, reach, young):
            return None
        holds, rows = of_use(self._greedy, self._quota, gang, variant, charge, self._in_turn(young))
        if not holds:
            return None
        account = rows[0].account if rows else (None, self._main(charge))
        return self._summed(account, [hold for hold in holds if hold.charge.get(account)])

    def _would_start(
        self, gang: Gang, variant: Variant, charge: Charge, reach: Reach, young: Sequence[Candidate]
    ) -> bool:
        """Whether sums and single pod sets leave that open once the young in reach have gone, and all who may go now;
        reservations aside.
        """
        own = self._greedy.prey.reach(gang.pending, charge)
        if (key := (own, reach)) not in self._gone:
            self._gone[key] = self._without([*self._greedy.prey.permitted(own), *young])
        usage, free = self._gone[key]
        self._left -= LOOK + len(free)
        if not usage.fits(gang.queue, charge):
            return False
        closest = self._place.closest(gang.pending.workload, variant, gang.pending.avoid, free=free)
        return closest is None or closest.most >= closest.part.count

    def _without(self, gone: Sequence[Candidate]) -> tuple[Usage, Matrix]:
        """What is used and free (N x R) without these."""
        self._left -= HOLD * len(gone)
        usage, free = self._board.later.usage.copy(), self._board.later.free.copy()
        for one in gone:
            usage.add(one.hold.admitted.workload.queue, one.hold.charge, times=-1)
            for node, row in one.hold.rows.items():
                free[node] += row
        return usage, free

    def _in_turn(self, young: Sequence[Candidate]) -> Sequence[Hold]:
        """Those who may go one after the other, cheapest first."""
        line, found = self._board.line().copy(), list[Hold]()
        for one in young:
            if one.going(line) is not None:
                line.add(one.hold.admitted.workload.queue, one.hold.charge, times=-1)
                found.append(one.hold)
        return found

    def _main(self, charge: Charge) -> str:
        """Of what it asks for the resource of which it asks the largest part of the live capacity."""
        capacity = self._board.capacity
        parts = {r: n / capacity[r] for (f, r), n in charge.items() if f is None and capacity.get(r)}
        return max(sorted(parts), key=lambda r: (r != "pods", parts[r]), default="pods")

    def _summed(self, account: Account, holds: Sequence[Hold]) -> Protected | None:
        amounts: dict[str, int] = {}
        for hold in holds:
            queue = hold.admitted.workload.queue
            amounts[queue] = amounts.get(queue, 0) + hold.charge[account]
        if not amounts:
            return None
        until = min(hold.admitted.since + min_runtime(self._board, hold.admitted) for hold in holds)
        most_first = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
        return Protected(account, len(holds), tuple(most_first), until)


_REACHING = (Block.QUOTA, Block.PLACE)
