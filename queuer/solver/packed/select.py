"""Which gangs of one priority of a packed subtree start together, for the largest sum of worth.

What the turns would do by time is compared with what CP-SAT chooses, both as the turns would place them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account
from queuer.solver.packed.worth import Worth
from queuer.solver.repair.decode import Member, bears, fit, laid
from queuer.solver.repair.model import Model
from queuer.solver.repair.tree import Option, Question, Tree
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State

WINDOW = 4.0
"""Gangs are considered until they ask for this many times what is free."""
COLUMNS = 4
"""Domains that are open to a gang, beside where it lies in the order of time."""
VARIANTS = 4
"""Choices of flavors of one gang that are considered."""
PASS = 0.2
"""Deterministic time of one selection at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Gangs to be offered first, by uid. `spent`: deterministic time; `proven`: no choice has a larger sum in the
    window.
    """

    uids: tuple[str, ...]
    placements: Mapping[str, Settled] = field(default_factory=dict)
    spent: float = 0.0
    proven: bool = True


def select(state: State, gangs: Sequence[Gang], *, seed: int, budget: float) -> Selection:
    """`gangs`: of one priority of one packed subtree, in order. The state is left as it is."""
    worth = Worth((g.workload for g in gangs), capacity=state.capacity, now=state.time)
    by_time = _played(state, gangs)
    if budget <= 0 or len(by_time) == len(gangs):
        return Selection(uids=tuple(by_time), placements=by_time, proven=len(by_time) == len(gangs))
    window = _Window(state, gangs, by_time, worth)
    if window.model is None:
        return Selection(uids=tuple(by_time), placements=by_time)
    from queuer.solver.repair.solve import maximise

    solved = maximise(window.model.rows, window.sum, seed=seed, budget=min(PASS, budget))
    chosen = window.chosen(solved.values) if solved.values else frozenset(by_time)
    tried = [by_time]
    if solved.values:
        for order in ():
            offered = sorted(gangs, key=lambda g: (g.uid not in chosen, order(state, g)))
            tried.append(_played(state, offered))
        tried.append(_played(state, gangs, first=window.laid(solved.values)))
    best = max(tried, key=lambda found: _sum(found, worth))
    STATS[tried.index(best)] = STATS.get(tried.index(best), 0) + 1
    return Selection(uids=tuple(best), placements=best, spent=solved.spent, proven=solved.proven)


STATS = {}


def _by_time(state, gang):
    return gang.seniority


def _by_size(state: State, gang: Gang) -> tuple[float, ...]:
    """Largest pods first, of these the narrowest domains first."""
    sets = gang.workload.pod_sets
    size = max(float((state.nodes.row(p.requests) / np.maximum(state.nodes.total, 1)).max()) for p in sets)
    level = state.snapshot.topology.find(gang.workload.required or "")
    return (-size, -1 if level is None else -level, -sum(p.count for p in sets))


def _by_level(state: State, gang: Gang) -> tuple[float, ...]:
    size, level, count = _by_size(state, gang)
    return (level, size, count)


def _sum(found: Mapping[str, Settled], worth: Worth) -> int:
    return sum(worth.of(s.gang.workload, s.variant.counts) for s in found.values())


def _played(state: State, gangs: Iterable[Gang], first: Sequence[Settled] = ()) -> dict[str, Settled]:
    """Who starts if these have their turns in this order, by uid. The state is left as it is."""
    mark, found, nowhere = state.mark, dict[str, Settled](), set[object]()
    for settled in first:
        if bears(state, settled):
            state.start(settled)
            found[settled.gang.uid] = settled
    for gang in gangs:
        if gang.likeness in nowhere or gang.uid in found:
            continue
        settled = next(_fits(state, gang), None)
        if settled is None:
            nowhere.add(gang.likeness)
        else:
            state.start(settled)
            found[gang.uid] = settled
    state.undo(mark)
    return found


def _fits(state: State, gang: Gang) -> Iterator[Settled]:
    for variant, charge in zip(gang.shape.variants, gang.shape.charges, strict=True):
        settled = fit(state, gang, variant, charge)
        if settled is not None:
            yield settled


class _Window:
    """The model of one selection; None where there is nothing to choose. `sum`: worth by variable."""

    def __init__(
        self, state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled], worth: Worth
    ) -> None:
        self._state, self._worth = state, worth
        self._question = Question(state.nodes)
        self._options: dict[str, list[Option]] = {}
        self.model: Model | None = None
        self._enter(gangs, by_time)
        self._fixed = [s for uid, s in by_time.items() if uid not in self._options]
        mark = state.mark
        for settled in self._fixed:
            state.start(settled)
        if self._question.options:
            self.model = self._modelled(by_time)
            self.model.limit(state.book, state.usages())
        state.undo(mark)

    def _enter(self, gangs: Sequence[Gang], by_time: Mapping[str, Settled]) -> None:
        """Gangs that could start, until they ask for enough, and all that start by time."""
        state = self._state
        free = state.room().free.clip(min=0).sum(axis=0) * WINDOW
        asked, by_limit = free * 0, dict[tuple[str, Account], int]()
        alone: set[object] = set()
        for gang in gangs:
            workload, shape = gang.workload, gang.shape
            if gang.uid not in by_time and (
                (asked > free).any()
                or self._enough(gang, by_limit)
                or (gang.likeness not in alone and next(_fits(state, gang), None) is None)
            ):
                continue
            alone.add(gang.likeness)
            if not self._offer(gang):
                continue
            for limit in self._limits(gang):
                by_limit[limit] = by_limit.get(limit, 0) + shape.charges[0][limit[1]]
            asked = asked + sum(state.nodes.row(p.requests) * p.count for p in workload.pod_sets)

    def _offer(self, gang: Gang) -> bool:
        """Whether counts describe the gang; one that may not borrow they do not."""
        shape, options = gang.shape, []
        for variant, charge in list(zip(shape.variants, shape.charges, strict=True))[:VARIANTS]:
            form = self._question.form(gang, variant, self._state.closed(gang))
            if form is None or not gang.workload.preemptible:
                continue
            key = (shape.number, gang.pending.avoid, self._worth.of(gang.workload, shape.variants[0].counts))
            options.append(self._question.enter(gang, form, variant, charge, key=key, settled=False))
        if options:
            self._options[gang.uid] = options
        return bool(options)

    def _limits(self, gang: Gang) -> Iterator[tuple[str, Account]]:
        """Limits that the gang counts against, root's aside: it is the nodes."""
        for account in gang.shape.charges[0]:
            for queue in self._state.book.lineage(gang.queue):
                if queue != ROOT and self._state.book.limit(queue, account) is not None:
                    yield queue, account

    def _enough(self, gang: Gang, asked: Mapping[tuple[str, Account], int]) -> bool:
        """Whether those before it ask for all that a limit leaves."""
        book, usage = self._state.book, self._state.now
        return any(
            asked.get(key, 0) >= (book.limit(*key) or 0) - usage.held(*key, surely=True)
            for key in self._limits(gang)
        )

    def _modelled(self, by_time: Mapping[str, Settled]) -> Model:
        question, free = self._question, self._state.room().free
        tree = Tree(question, free, np.arange(len(free)))
        for option in question.options:
            tree.open(option, tree.slots, COLUMNS)
        placed = []
        for uid, settled in by_time.items():
            for option in self._options.get(uid, ()):
                if option.variant == settled.variant and question.lying(option.form, settled.spreads):
                    placed.append((option, settled.spreads))
        return Model(tree, placed=placed)

    @property
    def sum(self) -> dict[int, int]:
        """What the gangs that start count together."""
        assert self.model is not None
        return {
            c.gangs: self._worth.of(c.option.family.gangs[0].workload, c.option.variant.counts)
            for c in self.model.columns
        }

    def laid(self, values: Sequence[int]) -> list[Settled]:
        """The gangs of a solution where it has them: of each family the first."""
        assert self.model is not None
        state, model, mark = self._state, self.model, self._state.mark
        for settled in self._fixed:
            state.start(settled)
        lines = {id(f): list(reversed(f.gangs)) for f in self._question.families}
        members = [
            Member(lines[id(c.option.family)].pop(), c, tuple(model.packs(c, values)))
            for c in model.columns
            for _ in range(values[c.gangs])
        ]
        found = laid(state, model, {at: values[v] for at, v in model.flows.items()}, members)
        state.undo(mark)
        return [*self._fixed, *found]

    def chosen(self, values: Sequence[int]) -> frozenset[str]:
        """The gangs of a solution: of each family the first."""
        assert self.model is not None
        counts: dict[int, int] = {}
        for c in self.model.columns:
            counts[id(c.option.family)] = counts.get(id(c.option.family), 0) + values[c.gangs]
        uids = {g.uid for f in self._question.families for g in f.gangs[: counts.get(id(f), 0)]}
        return frozenset(uids | {s.gang.uid for s in self._fixed})
