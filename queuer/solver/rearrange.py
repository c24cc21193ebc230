"""Another arrangement of what this cycle has started, so that one more gang fits: by greedy, else by the exact solver.

Quota, sums over all nodes and the gang's own place exclude most gangs before anything is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuer.solver.capacity import place
from queuer.solver.contested import Proof
from queuer.solver.cycle import Cycle
from queuer.solver.displace import Displace
from queuer.solver.frame import ALL, Matrix
from queuer.solver.holding import keeps_needed
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen, Refusal
from queuer.solver.slots import Slots

REARRANGE = 4_000
"""How many placements all rearrangements of one cycle may try together."""


class Rearrange:
    """Looks for other places for the gangs of a cycle."""

    def __init__(self, cycle: Cycle, displace: Displace) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._displace = displace
        self._vain: Kept[set[object]] = Kept(lambda: cycle.board.version)

    def place(self, gang: Gang, refusal: Refusal, *, promised: bool = True) -> Chosen | Refusal:
        """The same gangs and sizes in other places, so that this one starts too; else the refusal, proven or not.

        `promised`: else what greedy cannot place needs no proof.
        """
        possible = self._possible(gang)
        if not possible or (not self._cycle.chosen and refusal.final):
            return replace(refusal, final=True)
        found = self._try(gang, possible) or self._made_room(gang, possible)
        if found is not None:
            return found
        if not promised:
            return replace(refusal, final=True)
        answer = self._cycle.ask(gang, [new.variant for new in possible], evict=False)
        if isinstance(answer, Chosen):
            return answer
        if isinstance(answer, Proof):
            return replace(refusal, final=True, contested=True)
        return replace(refusal, final=False, contested=True, cause=answer)

    def earlier(self, gang: Gang, first: int) -> Chosen | None:
        """The gang on one of its first choices of flavors, which it would have but for the places of others; see
        `Cycle.ask_earlier`.
        """
        possible = self._possible(gang, first) if self._cycle.asks_readily else []
        return self._cycle.ask_earlier(gang, [new.variant for new in possible], evict=False)

    def _possible(self, gang: Gang, first: int | None = None) -> list[Chosen]:
        """The gang's choices, or the first of them, at its smallest size, that are not excluded by quota, by sums or by
        its own place.
        """
        cycle, found = self._cycle, []
        for variant, charge in gang.shape.smallest[:first]:
            blocked = cycle.quota_block(gang.pending.workload, variant, charge, self._board.sheets())
            if blocked is None and not cycle.excluded(cycle.pool(gang, charge, later=False), gang, variant):
                found.append(Chosen(gang=gang, variant=variant, charge=charge, spreads={}))
        return found

    def _try(self, gang: Gang, possible: Sequence[Chosen]) -> Chosen | None:
        """Some sequences of greedy placement; None = none of them worked."""
        if self._cycle.counts.arrangements > REARRANGE or self._board.horizons:
            return None
        vain = self._vain.of(None, set)
        for new in possible:
            key = self._cycle.key(gang, new.variant)
            if key in vain:
                continue
            started = self._cycle.started()
            if not started:
                return None
            base = self._board.unheld(ALL) + self._cycle.started_places
            for order in _arrangements(started, new):
                placed = self._lay_out(base, order)
                if placed is not None and keeps_needed(self._cycle, placed):
                    self._adopt(started, placed)
                    return self._cycle.chosen[gang.uid]
            vain.add(key)
        return None

    def _made_room(self, gang: Gang, possible: Sequence[Chosen]) -> Chosen | None:
        for new in possible:
            found = self._displace.place(gang, new.variant, new.charge, bound=False)
            if found is not None:
                return found
        return None

    def _lay_out(self, base: Matrix, order: Sequence[Chosen]) -> list[Chosen] | None:
        slots, placed = Slots(self._board.frame, base.copy()), []
        for chosen in order:
            self._cycle.counts.arrangements += 1
            workload = chosen.gang.pending.workload
            closed = self._cycle.closed(chosen.gang)
            spreads = place(
                self._board.frame,
                slots.free,
                workload,
                chosen.variant,
                closed=closed,
                slots=slots,
                limits=self._board.limits(),
            )
            if spreads is None:
                return None
            placed.append(replace(chosen, spreads=spreads))
            for node, row in self._board.rows(workload, spreads):
                slots.free[node] -= row
                slots.renew(node)
        return placed

    def _adopt(self, started: Sequence[Chosen], placed: Sequence[Chosen]) -> None:
        self._cycle.lift(started)
        self._board.changed()
        moved = {c.gang.uid: c for c in placed}
        for chosen in started:
            self._cycle.take(moved.pop(chosen.gang.uid))
        for new in moved.values():
            self._cycle.take(new)


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
