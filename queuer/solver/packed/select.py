"""Which gangs of one priority of a packed subtree start together, and where, for the largest sum of worth.

What the turns would do by time is compared with what CP-SAT finds in a window of gangs and domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.solver.packed.worth import Worth
from queuer.solver.repair.decode import Member, bears, fit, laid
from queuer.solver.repair.model import Model, Terms
from queuer.solver.repair.tree import Option, Question, Tree
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State
from queuer.solver.turn import Turns

WINDOW = 4.0
"""Gangs are considered until they ask for this many times what is free."""
COLUMNS = 4
"""Domains that are open to a gang, beside where it lies by time."""
VARIANTS = 4
"""Choices of flavors of one gang that are considered."""
PASS = 0.2
"""Deterministic time of one selection at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Gangs to be offered first. `starts`: with their placements, by uid, which all start in any order; none: what the
    turns do by time is as good. `spent`: deterministic time; `proven`: no choice in the window has a larger sum.
    """

    starts: Mapping[str, Settled] = field(default_factory=dict)
    spent: float = 0.0
    proven: bool = True

    @property
    def uids(self) -> tuple[str, ...]:
        """Of these gangs, in the order in which they were placed."""
        return tuple(self.starts)


def select(state: State, gangs: Sequence[Gang], *, seed: int, budget: float) -> Selection:
    """`gangs`: of one priority of one packed subtree, in order. The state is left as it is."""
    by_time = _played(state, gangs) if budget > 0 else {}
    if budget <= 0 or len(by_time) == len(gangs):
        return Selection(proven=budget > 0)
    worth = Worth((g.workload for g in gangs), capacity=state.capacity, now=state.time)
    window = _Window(state, gangs, by_time, worth)
    if not window.options:
        return Selection(proven=False)
    from queuer.solver.repair.solve import maximise  # OR-Tools is loaded when it is asked

    solved = maximise(window.model.rows, window.worth, seed=seed, budget=min(PASS, budget))
    found = _played(state, gangs, first=window.laid(solved.values)) if solved.values else by_time

    def total(starts: Mapping[str, Settled]) -> int:
        return sum(worth.of(s.gang.workload, s.variant.counts) for s in starts.values())

    better = found if total(found) > total(by_time) else {}
    return Selection(starts=better, spent=solved.spent, proven=solved.proven)


def _played(state: State, gangs: Iterable[Gang], *, first: Iterable[Settled] = ()) -> dict[str, Settled]:
    """Who starts if the gangs have their turns in this order, after those that are placed `first`; by uid. The state is
    left as it is.
    """
    mark, found, turns = state.mark, dict[str, Settled](), Turns(state)
    for settled in first:
        if bears(state, settled):
            state.start(settled)
            found[settled.gang.uid] = settled
    for gang in gangs:
        placed = None if gang.uid in found else turns.tried(gang)
        if placed is not None:
            found[gang.uid] = placed
    state.undo(mark)
    return found


def _fits_alone(state: State, gang: Gang) -> bool:
    """Whether the gang has a placement at full size as things are."""
    choices = zip(gang.shape.variants, gang.shape.charges, strict=True)
    return any(fit(state, gang, variant, charge) is not None for variant, charge in choices)


class _Window:
    """The model of one selection. `options`: of the gangs that are considered, by uid."""

    def __init__(
        self, state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled], worth: Worth
    ) -> None:
        self._state, self._worth = state, worth
        self._question = Question(state.nodes)
        self.options: dict[str, list[Option]] = {}
        self._enter(gangs, by_time)
        self._fixed = [s for uid, s in by_time.items() if uid not in self.options]
        mark = state.mark
        for settled in self._fixed:
            state.start(settled)
        free = state.room().free
        tree = Tree(self._question, free, np.arange(len(free)))
        for option in self._question.options:
            tree.open(option, tree.slots, COLUMNS)
        placed = [
            (option, by_time[uid].spreads)
            for uid, options in self.options.items()
            for option in options
            if uid in by_time
            and option.variant == by_time[uid].variant
            and self._question.lying(option.form, by_time[uid].spreads) is not None
        ]
        self.model = Model(tree, placed=placed)
        self.model.limit(state.book, state.usages())
        state.undo(mark)

    def _enter(self, gangs: Sequence[Gang], by_time: Mapping[str, Settled]) -> None:
        """Gangs that could start alone, until they ask for enough, and all that start by time."""
        state, alone = self._state, dict[int, bool]()
        free = state.room().free.clip(min=0).sum(axis=0) * WINDOW
        asked = free * 0
        for gang in gangs:
            if gang.uid not in by_time:
                if (asked > free).any():
                    continue
                if gang.likeness not in alone:
                    alone[gang.likeness] = _fits_alone(state, gang)
                if not alone[gang.likeness]:
                    continue
            self._offer(gang)
            for pod_set in gang.workload.pod_sets:
                asked = asked + state.nodes.row(pod_set.requests) * pod_set.count

    def _offer(self, gang: Gang) -> None:
        """Counts do not describe a gang that may not borrow."""
        shape, closed = gang.shape, self._state.closed(gang)
        choices = [
            (form, variant, charge)
            for variant, charge in list(zip(shape.variants, shape.charges, strict=True))[:VARIANTS]
            if (form := self._question.form(gang, variant, closed)) is not None
        ]
        if choices and gang.workload.preemptible:
            worth = self._worth.of(gang.workload, shape.variants[0].counts)
            key = (shape.number, gang.pending.avoid, worth)
            self.options[gang.uid] = self._question.enter(gang, choices, key=key, settled=False)

    @property
    def worth(self) -> Terms:
        """What the gangs that start count, by variable."""
        return {
            c.gangs: self._worth.of(c.option.family.gangs[0].workload, c.option.variant.counts)
            for c in self.model.columns
        }

    def laid(self, values: Sequence[int]) -> list[Settled]:
        """The gangs of a solution where it has them, of each family the first; the state is left as it is."""
        state, model, mark = self._state, self.model, self._state.mark
        for settled in self._fixed:
            state.start(settled)
        lines = {id(f): iter(f.gangs) for f in self._question.families}
        members = [
            Member(next(lines[id(c.option.family)]), c, tuple(model.packs(c, values)))
            for c in model.columns
            for _ in range(values[c.gangs])
        ]
        found = laid(state, model, {at: values[v] for at, v in model.flows.items()}, members)
        state.undo(mark)
        return [*self._fixed, *found]
