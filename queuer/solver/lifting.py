"""Lifting: the gang whose turn it is takes back starts of this very cycle, at no cost.

Its rights to them are its rights to running work. So no gang starts to be evicted in the same second.
"""

from __future__ import annotations

from queuer.domain.queue import Order
from queuer.domain.quota import Charge
from queuer.solver.arrays import Running
from queuer.solver.records import Admitted
from queuer.solver.rights import Rights
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State


class Lifting:
    """Of one cycle."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: tuple[int, Rights | None] = (-1, None)

    def anything(self, gang: Gang) -> bool:
        """Whether something starts that the gang may evict as things are."""
        rights = self._rights()
        return rights is not None and any(
            rights.anybody(rights.of(gang, charge)) for _, charge in gang.shape.least
        )

    def lift(self, gang: Gang, charge: Charge) -> list[Settled]:
        """Undo each start that the gang may evict when it asks for this, the last start first. Returns them in
        the order of their starts.
        """
        rights = self._rights()
        if rights is None:
            return []
        state, owned = self._state, rights.of(gang, charge)
        groups = {
            run.admitted.workload.uid: group for group, _ in rights.permitted(owned) for run in group.runs
        }
        lifted = list[Settled]()
        for uid in sorted(groups.keys() - owned.spared, key=rights.numbers.__getitem__, reverse=True):
            if groups[uid].rule(state.remaining) is not None:
                lifted.append(state.settled[uid])
                state.lift(state.settled[uid])
        return lifted[::-1]

    def _rights(self) -> Rights | None:
        """Rights to what starts as things are; None = nothing starts."""
        state = self._state
        if self._known[0] != state.changes:
            starts = (s for s in state.settled.values() if not (s.bound or self._is_strict(s.gang.queue)))
            runs = {s.gang.uid: _run(s, now=state.time) for s in starts}
            self._known = (state.changes, Rights(state, runs) if runs else None)
        return self._known[1]

    def _is_strict(self, queue: str) -> bool:
        """Whether starts behind it would have passed a gang of this queue that is lifted."""
        return self._state.book.tree.policy(queue).order is Order.STRICT


def _run(settled: Settled, *, now: float) -> Running:
    """The start as the run that it becomes."""
    variant = settled.variant
    admitted = Admitted(
        workload=settled.gang.workload, counts=variant.counts, flavors=variant.flavors, since=now
    )
    return Running(admitted, settled.charge, {})
