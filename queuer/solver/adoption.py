"""Taking over what the exact solver answers: all is laid out on the board as it says, or lies as it did before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from queuer.domain.reasons import Deferral
from queuer.solver.board import Board
from queuer.solver.contested import Arrangement, Places, Variant
from queuer.solver.frame import summed
from queuer.solver.greedy import Greedy
from queuer.solver.holding import holds, intact, keeps_needed, lift, restore, short, unharmed
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.parts import Spread


class Adoption:
    """Takes over the answers of one decision, each by the name of its question (see `ExactSolver`)."""

    def __init__(
        self,
        greedy: Greedy,
        *,
        late: Callable[[], Sequence[Chosen]],
        crosses: Callable[[Chosen], bool],
    ) -> None:
        """`late`: the gangs that could not land as things are; `crosses`: see `Pinner`."""
        self._greedy = greedy
        self._board: Board = greedy.board
        self._late = late
        self._crosses = crosses

    def settle(self, answer: Arrangement, new: Gang, *, evict: bool) -> Chosen | Deferral:
        """The new gang as the answer settles it, if that is sound and it would land if nobody else did."""
        before = dict(self._greedy.chosen)
        if (wrong := self._laid_out(answer, new=new, evict=evict)) is not None:
            return wrong
        if (wrong := self._out_of_place(new)) is not None:
            restore(self._greedy, before)
            return wrong
        self._greedy.counts.rearranged += 1
        return self._greedy.chosen[new.uid]

    def lay(self, answer: Places, gang: Gang, variant: Variant, *, evict: bool) -> Chosen | Deferral:
        """The new gang at these places, all others at theirs, if that is sound and no more gangs than before could not
        land.
        """
        greedy = self._greedy
        charge = self._board.charge(gang.pending.workload, variant.flavors, variant.counts)
        moved = [replace(c, spreads=_spreads(answer, c.gang)) for c in greedy.chosen.values()]
        new = Chosen(gang=gang, variant=variant, charge=charge, spreads=_spreads(answer, gang), bound=evict)
        if not keeps_needed(greedy, [*moved, new]):
            return Deferral.UNSOUND
        before, waiting = dict(greedy.chosen), len(self._late())
        if (wrong := self._put([*moved, new], must=frozenset(before) | {gang.uid})) is not None:
            return wrong
        if len(self._late()) > waiting:
            wrong = self._out_of_place(gang)
            restore(greedy, before)
            return wrong or Deferral.LANDING
        greedy.counts.rearranged += 1
        return greedy.chosen[gang.uid]

    def improve(self, answer: Arrangement) -> bool:
        """All that is settled as the answer has it; whether it was sound."""
        return self._laid_out(answer, new=None, evict=False) is None

    def clashes(self, answer: Arrangement) -> frozenset[str]:
        """See `Clashes`; what is not sound is found out when it is adopted."""
        before = dict(self._greedy.chosen)
        if self._laid_out(answer, new=None, evict=False) is not None:
            return frozenset()
        late = self._late()
        hosts = {node for one in late for node in one.nodes}
        found = {uid for uid, one in self._greedy.chosen.items() if late and not one.nodes.isdisjoint(hosts)}
        restore(self._greedy, before)
        return frozenset(found)

    def _out_of_place(self, gang: Gang) -> Deferral | None:
        """Whether the gang lies so that its own pod sets could keep each other from landing."""
        new = self._greedy.chosen[gang.uid]
        return Deferral.CROSSING if len(new.spreads) > 1 and self._crosses(new) else None

    def _laid_out(self, answer: Arrangement, *, new: Gang | None, evict: bool) -> Deferral | None:
        """Lay everything out anew. An answer that is not sound is dropped and the old layout restored; why."""
        before = dict(self._greedy.chosen)
        gangs = {uid: c.gang for uid, c in before.items()}
        if new is not None:
            gangs[new.uid] = new
        if not set(gangs) <= set(answer.assignments):
            return Deferral.UNSOUND
        must = {uid for uid, c in before.items() if not c.bound}
        if new is not None and not evict:
            must.add(new.uid)
        moved = [self._moved(gang, answer) for gang in gangs.values()]
        if any(c.bound and c.gang.uid in must for c in moved):
            return Deferral.UNSOUND
        return self._put(moved, must=frozenset(must))

    def _put(self, moved: Sequence[Chosen], *, must: frozenset[str]) -> Deferral | None:
        """Lay out anew who lies elsewhere; what is not sound is taken back, and the answer is why. `must`: who is to be
        as it says, the others start if they can. Who is not settled yet comes last.
        """
        greedy, before = self._greedy, dict(self._greedy.chosen)
        added = moved[-1].gang.uid not in before
        whole = unharmed(greedy, moved[-1]) if added else intact(self._board)
        new = [c for c in moved if c.gang.uid not in must or not _same(before.get(c.gang.uid), c)]
        lifted = [before[c.gang.uid] for c in new if c.gang.uid in before]
        lift(greedy, lifted)
        sure = [c for c in new if c.gang.uid in must or c.evictions]
        for chosen in sorted(sure, key=lambda c: not c.bound):
            greedy.take(chosen)
        for chosen in new:
            if chosen not in sure:
                greedy.take(chosen if self._startable(chosen) else replace(chosen, bound=True))
        self._hold_late([c for c in new if c not in sure])
        laid = [greedy.chosen[c.gang.uid] for c in new]
        wrong = None if intact(self._board) >= whole else Deferral.RESERVED
        if not holds(greedy, lifted, laid):
            wrong = Deferral.UNSOUND
        order = dict.fromkeys((*before, *(c.gang.uid for c in new)))
        greedy.chosen = {uid: greedy.chosen[uid] for uid in order}
        self._board.changed()
        if wrong is not None:
            restore(greedy, before)
        return wrong

    def _hold_late(self, gangs: Sequence[Chosen]) -> None:
        """Those of these that start, but could not land beside others, are bound to their places instead."""
        late = self._late() if gangs else ()
        waiting = [c for c in late if not c.bound and any(c.gang is one.gang for one in gangs)]
        lift(self._greedy, waiting)
        for one in waiting:
            self._greedy.take(replace(one, bound=True))

    def _moved(self, gang: Gang, answer: Arrangement) -> Chosen:
        index, rows = self._board.frame.index, answer.assignments[gang.uid]
        spreads: dict[str, Spread] = {
            r.pod_set: {index[n]: count for n, count in r.nodes.items()} for r in rows
        }
        counts = {p.name: sum(spreads.get(p.name, {}).values()) for p in gang.pending.workload.pod_sets}
        variant = Variant(flavors={r.pod_set: r.flavor for r in rows}, counts=counts)
        mine = tuple(e for e in answer.evictions if e.beneficiary == gang.uid)
        return Chosen(
            gang=gang,
            variant=variant,
            charge=self._board.charge(gang.pending.workload, variant.flavors, counts),
            spreads=spreads,
            evictions=mine,
            bound=bool(mine),
        )

    def _startable(self, chosen: Chosen) -> bool:
        """Whether a gang without victims of its own can start at once, beside all that is laid out."""
        workload = chosen.gang.pending.workload
        if (
            self._greedy.quota_block(workload, chosen.variant, chosen.charge, self._board.sheets())
            is not None
        ):
            return False
        wanted = summed(self._board.rows(workload, chosen.spreads))
        sheets = self._board.sheets()
        return not any(short(sheet.free[node] - row, row) for sheet in sheets for node, row in wanted.items())


def _spreads(answer: Places, gang: Gang) -> dict[str, Spread]:
    return {name: dict(spread) for name, spread in answer.spreads[gang.uid].items()}


def _same(old: Chosen | None, new: Chosen) -> bool:
    """Whether nothing moves."""
    return old is not None and (old.variant, old.spreads, old.evictions, old.bound) == (
        new.variant,
        new.spreads,
        new.evictions,
        new.bound,
    )
