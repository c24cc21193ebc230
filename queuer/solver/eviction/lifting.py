"""Lifting: the gang whose turn it is takes back starts of this very cycle, at no cost.

Its rights to them are its rights to running work. So no gang starts to be evicted in the same second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from queuer.domain.queue import Order
from queuer.solver.eviction.rights import Excesses, GangRights, Right, Rights
from queuer.solver.state import Settled, State


class Lifting:
    """Of one cycle."""

    def __init__(self, state: State, rights: Rights) -> None:
        self._state, self._rights, self._policy = state, rights, state.book.tree.policy
        self._answers: dict[GangRights, tuple[int, bool]] = {}
        self._conditions = cache(self._find_conditions)

    def anything(self, owned: GangRights) -> bool:
        """Whether something starts that a gang with these rights may evict as things are."""
        changes, answer = self._answers.get(owned, (-1, False))
        if changes != self._state.changes:
            answer = next(self._permitted(owned), None) is not None
            self._answers[owned] = (self._state.changes, answer)
        return answer

    def lift(self, owned: GangRights) -> list[Settled]:
        """Undo each start that a gang with these rights may evict, the last start first. Returns them in the order of
        their starts.
        """
        state, lifted = self._state, list[Settled]()
        permitted = {settled.gang.uid: conditions for settled, conditions in self._permitted(owned)}
        for uid in [uid for uid in reversed(state.settled) if uid in permitted]:
            if any(map(state.remaining.exceeds, permitted[uid])):
                lifted.append(state.settled[uid])
                state.lift(state.settled[uid])
        return lifted[::-1]

    def _permitted(self, owned: GangRights) -> Iterator[tuple[Settled, tuple[Excesses, Excesses]]]:
        """Starts that may be undone now, with what must still be exceeded at the moment they are."""
        exceeds, starts_in = self._state.remaining.exceeds, self._state.starts_in
        children = self._state.book.tree.children
        for right, toward in owned.rights:
            there = (child for child in children.get(right.common, ()) if starts_in.get(child))
            for branch in self._rights.branches(right, toward, there):
                for uid, settled in starts_in.get(branch, {}).items():
                    conditions = self._conditions(right, settled)
                    if uid not in owned.spared and any(map(exceeds, conditions)):
                        yield settled, conditions

    def _find_conditions(self, right: Right, settled: Settled) -> tuple[Excesses, Excesses]:
        """Nobody may undo work that is not evicted, nor a start behind which others of its strict queue started."""
        queue, workload = settled.gang.queue, settled.gang.workload
        policy = self._policy(queue)
        if not workload.preemptible or policy.min_runtime or policy.order is Order.STRICT:
            return (), ()
        path = self._state.book.lineage(queue)
        return self._rights.conditions(right, path, workload.priority, 0, settled.charge)
