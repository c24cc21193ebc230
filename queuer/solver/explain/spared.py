"""Whom a gang spares: it could evict them, had it not itself been evicted for them, directly or by way of others.

Those are named who hold what it lacks: quota in a row in its way, or nodes of its own where it has no place, which the
live capacity comes down to. Nobody is where it could not have started even with all gone whom it might evict then; what
has started since its turn was not in its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuer.domain.quota import Charge, Shortfall
from queuer.solver import floors
from queuer.solver.contested import Variant
from queuer.solver.explain.place import PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.sheet import Hold


class Spared:
    """Asked once all have had their turns."""

    def __init__(self, greedy: Greedy, quota: QuotaWords, place: PlaceWords) -> None:
        self._greedy = greedy
        self._board = greedy.board
        self._quota = quota
        self._place = place

    def names(self, gang: Gang, refusal: Refusal) -> tuple[str, ...]:
        """Their names, in order."""
        if refusal.block is Block.LANDING or not self._greedy.prey.spared(gang.pending):
            return ()
        starts = self._greedy.starts
        since = [one for one in self._greedy.started() if starts[one.gang.uid] >= refusal.started]
        tried = gang.shape.smallest
        holds = (hold for variant, charge in tried for hold in self._by(gang, variant, charge, since))
        return tuple(sorted({f"{w.namespace}/{w.name}" for w in (hold.admitted.workload for hold in holds)}))

    def _by(self, gang: Gang, variant: Variant, charge: Charge, since: Sequence[Chosen]) -> Sequence[Hold]:
        """Whom it spares on these flavors. `since`: what has started since its turn."""
        workload, queue, prey = gang.pending.workload, gang.queue, self._greedy.prey
        if not workload.preemptible and not self._board.claimed.entitled(queue, charge, at=queue):
            return ()  # that somebody leaves entitles nobody
        wholly = replace(gang.pending, displaced_by=frozenset())
        spared, evictable = prey.spared(gang.pending), prey.permitted(prey.reach(wholly, charge))
        holds = [one.hold for one in evictable if one.uid in spared]
        if not holds or not self._would_start(gang, variant, charge, [one.hold for one in evictable], since):
            return ()
        return of_use(self._greedy, self._quota, gang, variant, charge, holds)[0]

    def _would_start(
        self, gang: Gang, variant: Variant, charge: Charge, gone: Sequence[Hold], since: Sequence[Chosen]
    ) -> bool:
        """Whether sums and single pod sets leave that open with these gone, reservations aside."""
        usage, free = self._board.later.usage.copy(), self._board.later.free.copy()
        for hold in gone:
            usage.add(hold.admitted.workload.queue, hold.charge, times=-1)
            for node, row in hold.rows.items():
                free[node] += row
        for one in since:
            usage.add(one.gang.queue, one.charge, times=-1)
            self._greedy.spend(free, one, times=-1)
        closest = self._place.closest(gang.pending.workload, variant, gang.pending.avoid, free=free)
        has_room = closest is None or closest.most >= closest.part.count
        return has_room and usage.fits(gang.queue, charge)


def of_use(
    greedy: Greedy, quota: QuotaWords, gang: Gang, variant: Variant, charge: Charge, holds: Sequence[Hold]
) -> tuple[Sequence[Hold], Sequence[Shortfall]]:
    """Those of the holds that are what the gang lacks, and the rows in its way that they count in; none of these where
    it lacks nodes alone.
    """
    board, workload = greedy.board, gang.pending.workload
    floor = floors.now(board, workload, rank=greedy.rank(gang, charge))
    has_place = greedy.on(floor, gang, variant).spreads is not None
    rows = [row for row in quota.shortfalls(gang.queue, charge) if has_place or not row.live]
    its = [board.frame.open_to(p, variant.flavors[p.name]) for p in workload.pod_sets]

    def counts(hold: Hold, row: Shortfall) -> bool:
        path = board.book.lineage(hold.admitted.workload.queue)
        return row.queue in path and bool(hold.charge.get(row.account))

    found = [
        hold
        for hold in holds
        if any(counts(hold, row) for row in rows)
        or (not has_place and any(open_[node] for open_ in its for node in hold.rows))
    ]
    return found, [row for row in rows if any(counts(hold, row) for hold in found)]
