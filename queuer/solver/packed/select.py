"""Which gangs of one priority of a packed subtree start together, and where, for the largest sum of worth.

What the turns would do by time is compared with what CP-SAT finds in a window of gangs and domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.domain.workload import PodSet, Workload
from queuer.solver.packed.worth import Worth
from queuer.solver.placement import Spreads
from queuer.solver.repair.decode import Member, bears, laid
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
LARGE = 50_000
"""Variables of a model that is built."""
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
    try:
        return _better(state, gangs, by_time, seed=seed, budget=min(PASS, budget))
    except OverflowError:  # amounts of which sums exceed int64
        return Selection(proven=False)


def _better(
    state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled], *, seed: int, budget: float
) -> Selection:
    from queuer.solver.repair.solve import maximise  # OR-Tools is loaded when it is asked

    worth = Worth((g.workload for g in gangs), capacity=state.capacity, now=state.time)
    window = _Window(state, gangs, by_time, worth)
    model = window.model
    if model is None:
        return Selection(proven=False)
    solved = maximise(model.rows, window.worth, seed=seed, budget=budget)
    found = _played(state, gangs, first=window.laid(solved.values)) if solved.values else {}

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


class _Window:
    """The model of one selection; None where there is nothing to choose, or too much."""

    def __init__(
        self, state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled], worth: Worth
    ) -> None:
        self._state, self._worth = state, worth
        self._question = Question(state.nodes)
        self._placed: list[tuple[Option, Spreads]] = []
        self._fixed: list[Settled] = []
        self._enter(gangs, by_time)
        mark = state.mark
        for settled in self._fixed:
            state.start(settled)
        self.model = self._modelled() if self._question.options else None
        state.undo(mark)

    def _modelled(self) -> Model | None:
        state, question = self._state, self._question
        free = state.room().free
        tree = Tree(question, free, np.arange(len(free)))
        if len(tree.spots) * len(question.kinds) > LARGE:
            return None
        for option in question.options:
            tree.open(option, tree.slots, COLUMNS)
        model = Model(tree, placed=self._placed)
        model.limit(state.book, state.usages())
        return model

    def _enter(self, gangs: Sequence[Gang], by_time: Mapping[str, Settled]) -> None:
        """Gangs that could start alone, until they ask for enough, and all that start by time."""
        state, turns, alone = self._state, Turns(self._state), dict[int, bool]()
        free = state.room().free.clip(min=0).sum(axis=0) * WINDOW
        asked = free * 0
        for gang in gangs:
            if gang.uid not in by_time:
                if (asked > free).any():
                    continue
                if gang.likeness not in alone:
                    mark = state.mark
                    alone[gang.likeness] = turns.tried(gang) is not None
                    state.undo(mark)
                if not alone[gang.likeness]:
                    continue
            self._offer(gang, by_time.get(gang.uid))
            for pod_set in gang.workload.pod_sets:
                asked = asked + state.nodes.row(pod_set.requests) * pod_set.count

    def _offer(self, gang: Gang, settled: Settled | None) -> None:
        """Counts do not describe gangs that may not borrow or that prefer a level, nor any placement: such starts are
        fixed.
        """
        question, shape, closed = self._question, gang.shape, self._state.closed(gang)
        levels: tuple[Workload | PodSet, ...] = (gang.workload, *gang.workload.pod_sets)
        choices = [
            (form, variant, charge)
            for variant, charge in list(zip(shape.variants, shape.charges, strict=True))[:VARIANTS]
            if (form := question.form(gang, variant, closed)) is not None
        ]
        if not gang.workload.preemptible or any(asks.preferred for asks in levels):
            choices = []
        lies = [
            settled is not None
            and variant == settled.variant
            and question.lying(form, settled.spreads) is not None
            for form, variant, _ in choices
        ]
        if settled is not None and not any(lies):
            self._fixed.append(settled)
        elif choices:
            key = (shape.number, gang.pending.avoid, self._worth.of(gang.workload, shape.variants[0].counts))
            options = question.enter(gang, choices, key=key, settled=False)
            if settled is not None:
                self._placed.append((options[lies.index(True)], settled.spreads))

    @property
    def worth(self) -> Terms:
        """What the gangs that start count, by variable."""
        assert self.model is not None
        return {
            c.gangs: self._worth.of(c.option.family.gangs[0].workload, c.option.variant.counts)
            for c in self.model.columns
        }

    def laid(self, values: Sequence[int]) -> list[Settled]:
        """The gangs of a solution where it has them, of each family the first; the state is left as it is."""
        assert self.model is not None
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
