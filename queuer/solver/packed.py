"""`order: packed`: which gangs of one priority of a packed subtree start together, and where, for the
largest sum of worth. The turns by submit time are compared with the answer of CP-SAT.

A gang's worth is what it asks of its dominant resource, times 1 + age / 2 h. The unit is the largest in which
everybody's amount is whole, so that sums are exact: one GPU, where only GPUs dominate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import gcd, lcm

import numpy as np

from queuer.domain.queue import Order, QueueTree
from queuer.domain.workload import Workload, demand_of
from queuer.solver.cpsat import CpSat
from queuer.solver.repair.decode import start
from queuer.solver.repair.model import Model
from queuer.solver.repair.packs import Question, prefers
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State
from queuer.solver.turn import Turns

WINDOW = 4.0
"""Gangs are considered until they ask for this many times what is free."""
VARIANTS = 4
"""Choices of flavors of one gang that are considered."""
PASS = 0.2
"""Deterministic time of one selection at most."""
AGEING, STEP = 7200, 300
"""Seconds of waiting that count as much as the gang itself; seconds by which age is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Gangs to be offered first. `starts`: with their placements, by uid, which all start in any order; none: what the
    turns do by time is as good. `proven`: no choice in the window has a larger sum.
    """

    starts: Mapping[str, Settled] = field(default_factory=dict)
    proven: bool = True


def select(state: State, gangs: Sequence[Gang], *, solver: CpSat) -> Selection:
    """`gangs`: of one priority of one packed subtree, in order. The state is left as it is."""
    mark = state.mark
    by_time = _played(state, gangs)
    state.undo(mark)
    if len(by_time) == len(gangs):
        return Selection()
    try:
        return _better(state, gangs, by_time, solver)
    except OverflowError:
        return Selection(proven=False)
    finally:
        state.undo(mark)


def _played(state: State, gangs: Iterable[Gang]) -> dict[str, Settled]:
    """The starts by uid if the gangs have their turns in this order, after those that have started."""
    turns = Turns(state)
    for gang in gangs:
        if gang.uid not in state.settled:
            turns.refused(gang) or turns.turn(gang, undone=True)
    return {gang.uid: state.settled[gang.uid] for gang in gangs if gang.uid in state.settled}


def _better(state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled], solver: CpSat) -> Selection:
    """Raises OverflowError, see `Model`."""
    worth = Worth((g.workload for g in gangs), capacity=state.capacity, now=state.time)
    question = Question(state.nodes)
    for gang in _window(state, gangs, by_time):
        lies = by_time.get(gang.uid)
        if not _entered(state, question, gang, lies, worth) and lies is not None:
            state.start(lies)
    if not question.options:
        return Selection(proven=False)
    free = state.room().free
    model = Model(question, state, free, np.arange(len(free)))
    counts = {
        c.gangs: worth.of(c.option.gangs[0].workload, c.option.variant.counts) for c in model.columns.values()
    }
    solved = solver.maximise(model.rows, counts, most=PASS)
    if not solved.values:
        return Selection(proven=False)
    start(state, model, solved.values)
    found = _played(state, gangs)

    def total(starts: Mapping[str, Settled]) -> int:
        return sum(worth.of(s.gang.workload, s.variant.counts) for s in starts.values())

    better = found if total(found) > total(by_time) else {}
    return Selection(starts=better, proven=solved.proven)


def _window(state: State, gangs: Sequence[Gang], by_time: Mapping[str, Settled]) -> list[Gang]:
    """Gangs that could start alone, until they ask for enough, and all that start by time."""
    turns, alone, found = Turns(state), dict[int, bool](), list[Gang]()
    free = state.room().free.clip(min=0).sum(axis=0) * WINDOW
    for gang in gangs:
        if gang.uid not in by_time:
            if gang.turn_key not in alone:
                mark = state.mark
                alone[gang.turn_key] = not turns.refused(gang) and turns.turn(gang, undone=True)
                state.undo(mark)
            if (free < 0).any() or not alone[gang.turn_key]:
                continue
        found.append(gang)
        for pod_set in gang.workload.pod_sets:
            free = free - state.nodes.row(pod_set.requests) * pod_set.count
    return found


def _entered(state: State, question: Question, gang: Gang, lies: Settled | None, worth: Worth) -> bool:
    """Whether the gang takes part. Counts do not describe who may not borrow, or prefers a level."""
    workload, shape = gang.workload, gang.shape
    if not workload.preemptible or prefers(workload):
        return False
    return question.enter(
        gang,
        list(zip(shape.variants, shape.charges, strict=True))[:VARIANTS],
        closed=state.closed(gang),
        key=(shape.number, worth.of(workload, shape.variants[0].counts)),
        lies=lies,
    )


def packed_subtrees(tree: QueueTree) -> dict[str, str]:
    """By leaf whose order is packed, the topmost queue of the packed subtree to which it belongs."""
    if not any(queue.policy.order is Order.PACKED for queue in tree):
        return {}
    found = {}
    for leaf in tree.leaves:
        inside = list(takewhile(lambda path: tree.policy(path).order is Order.PACKED, tree.lineage(leaf)))
        if inside:
            found[leaf] = inside[-1]
    return found


class Worth:
    """The worth of gangs of one packed subtree, as whole numbers of one unit."""

    def __init__(self, workloads: Iterable[Workload], *, capacity: Mapping[str, int], now: float) -> None:
        """`workloads`: all that may be compared. `capacity`: the live capacity by resource."""
        known = list(workloads)
        self._now = now
        self._dominant = {w.uid: _dominant(w, capacity) for w in known}
        common = lcm(*{capacity[r] for r in self._dominant.values() if r is not None})
        self._scale = {r: common // capacity[r] for r in self._dominant.values() if r is not None}
        amounts = (
            p.requests.get(r, 0) * self._scale[r]
            for w in known
            if (r := self._dominant[w.uid]) is not None
            for p in w.pod_sets
        )
        self._unit = gcd(*amounts) or 1

    def of(self, workload: Workload, counts: Mapping[str, int]) -> int:
        """Units at these sizes, times 24ths of 1 + age / 2 h."""
        resource = self._dominant.get(workload.uid)
        if resource is None:
            return 0
        amount = demand_of(workload.pod_sets, counts).get(resource, 0)
        age = max(0, int(self._now - workload.submitted))
        return amount * self._scale[resource] // self._unit * (AGEING // STEP + age // STEP)


def _dominant(workload: Workload, capacity: Mapping[str, int]) -> str | None:
    """The resource of which it asks for the largest part of the live capacity; `pods` only where there is no other."""
    shares = [(r != "pods", n / capacity[r], r) for r, n in workload.demand.items() if n and capacity.get(r)]
    return max(shares)[2] if shares else None
