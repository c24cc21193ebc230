"""Another arrangement of what this cycle has started, so that one more gang fits: by greedy, else by the exact solver.

Quota, sums over all nodes and the gang's own place exclude most gangs before anything is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from queuer.solver.capacity import place
from queuer.solver.contested import Proof
from queuer.solver.cycle import Cycle
from queuer.solver.floor import Floor
from queuer.solver.frame import Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen, Refusal

REARRANGE = 4_000
"""How many placements all rearrangements of one cycle may try together."""


class Rearrange:
    """Looks for other places for the gangs of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._board = cycle.board

    def another(self, gang: Gang) -> Chosen | None:
        """The same gangs and sizes in other places, so that this one fits too; None = none was found."""
        started = self._cycle.started()
        if not started or self._cycle.counts.tried > REARRANGE or self._board.horizons:
            return None
        base = self._cycle.without(started)
        for new in self._possible(gang, started, base):
            key = self._cycle.key(gang, new.variant)
            if key in base.in_vain:
                continue
            for order in _arrangements(started, new):
                placed = self._lay_out(base.free, order)
                if placed is not None:
                    return self._adopt(started, placed, gang.uid)
            base.in_vain.add(key)
        return None

    def settle(self, gang: Gang, refusal: Refusal) -> Chosen | Refusal:
        """Ask for an arrangement or a proof, unless a bound already excludes one."""
        started = self._cycle.started()
        movable = len(started) < len(self._cycle.chosen)  # what is bound may be laid elsewhere too
        base = self._cycle.without(started, held=not movable)
        possible = self._possible(gang, started, base)
        if not possible or (not self._cycle.chosen and refusal.proven):
            return replace(refusal, proven=True)
        answer = None
        if self._cycle.contest is not None:
            answer = self._cycle.contest.settle(gang, [p.variant for p in possible], evict=False)
        if isinstance(answer, Chosen):
            return answer
        return replace(refusal, proven=isinstance(answer, Proof), contested=True)

    def _possible(self, gang: Gang, started: Sequence[Chosen], base: Floor) -> list[Chosen]:
        """The gang's choices, at its smallest size, that neither quota, nor sums, nor its own place exclude.

        `base`: what is free without all that this cycle has started.
        """
        asked = self._asked(started)
        found = []
        workload = gang.pending.workload
        for full in gang.shape.variants:
            variant, charge = self._cycle.resized(gang, full, gang.shape.least)
            if self._cycle.quota_block(workload, variant, charge, self._board.sheets()) is not None:
                continue
            new = Chosen(gang=gang, variant=variant, charge=charge, spreads={})
            if self._pooled_out(base, asked, new):
                continue
            alone = self._cycle.on(base, gang, variant)
            if alone.spreads is not None or not alone.exact:
                found.append(new)
        return found

    def _asked(self, started: Sequence[Chosen]) -> dict[str, Matrix]:
        """What these ask for together, by flavor (R)."""
        asked: dict[str, Matrix] = {}
        for one in started:
            for pod_set in one.gang.pending.workload.pod_sets:
                flavor = one.variant.flavors[pod_set.name]
                row = self._board.frame.row(pod_set.requests) * one.variant.counts[pod_set.name]
                asked[flavor] = asked[flavor] + row if flavor in asked else row
        return asked

    def _pooled_out(self, base: Floor, asked: Mapping[str, Matrix], new: Chosen) -> bool:
        """Whether the sums over all nodes of a flavor already exclude it."""
        total = dict(asked)
        for flavor, row in self._asked([new]).items():
            total[flavor] = total[flavor] + row if flavor in total else row
        return any(bool((base.total(flavor) < row).any()) for flavor, row in total.items())

    def _lay_out(self, base: Matrix, order: Sequence[Chosen]) -> list[Chosen] | None:
        free = base.copy()
        placed = []
        for chosen in order:
            self._cycle.counts.tried += 1
            workload = chosen.gang.pending.workload
            closed = self._cycle.closed(chosen.gang)
            spreads = place(self._board.frame, free, workload, chosen.variant, closed=closed)
            if spreads is None:
                return None
            placed.append(replace(chosen, spreads=spreads))
            self._cycle.spend(free, placed[-1])
        return placed

    def _adopt(self, started: Sequence[Chosen], placed: Sequence[Chosen], uid: str) -> Chosen:
        for chosen in started:
            self._board.start(chosen.gang.pending.workload, chosen.charge, chosen.spreads, times=-1)
        self._board.changed()
        moved = {c.gang.uid: c for c in placed}
        for chosen in started:
            self._cycle.take(moved[chosen.gang.uid])
        self._cycle.take(moved[uid])
        self._cycle.counts.rearranged += 1
        return moved[uid]


def _arrangements(started: Sequence[Chosen], new: Chosen) -> list[list[Chosen]]:
    """Sequences of placement: the new one first, the large first, those with a required level first."""
    everyone = [*started, new]

    def size(chosen: Chosen) -> int:
        return sum(chosen.variant.counts.values())

    return [
        [new, *started],
        sorted(everyone, key=lambda c: (-size(c), c.gang.uid)),
        [new, *sorted(started, key=lambda c: (-size(c), c.gang.uid))],
        sorted(everyone, key=lambda c: (c.gang.pending.workload.required is None, -size(c), c.gang.uid)),
    ]
