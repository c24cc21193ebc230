"""The repair: after the turns CP-SAT is asked once for an arrangement of this cycle's starts in which more gangs start.

None is taken away; the earlier a contested gang, the more it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.domain.quota import charge_for
from queuer.domain.usage import Usage
from queuer.solver.cpsat import CpSat
from queuer.solver.refusal import Refusal
from queuer.solver.repair.contested import Choice, Contested, first_contested, shut, starts_of, without
from queuer.solver.repair.decode import start
from queuer.solver.repair.model import Model
from queuer.solver.repair.packs import Question, prefers
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State

NODES = 256
"""Nodes that are looked at: those on which most would be free without this cycle's starts."""
PASS, MOVES = 0.03, 0.01
"""Deterministic time at most: to fit gangs in, and to do so with fewer moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """How many gangs were contested, and which of them start, in the order in which they were added.

    `proven`: no more of them can start on the nodes that were looked at.
    """

    contested: int = 0
    started: tuple[str, ...] = ()
    proven: bool = True


def after_turns(
    state: State, lines: Iterable[Iterable[Gang]], refusals: dict[str, Refusal], *, solver: CpSat
) -> Repair:
    """Fit contested gangs in; all that start in this cycle stay started, but may move. Refusals of those that start
    are removed.
    """
    contested = first_contested(state, lines, refusals) if solver.left > 0 else []
    if not contested:
        return Repair()
    try:
        answer = repair(state, contested, solver=solver)
    except OverflowError:
        answer = Repair(proven=False)
    for uid in answer.started:
        del refusals[uid]
        state.release(uid)
    return replace(answer, contested=len(contested))


def repair(state: State, contested: Sequence[Contested], *, solver: CpSat) -> Repair:
    """Ask CP-SAT, and carry the answer out where it is better. Raises OverflowError, see `Model`."""
    question = Question(state.nodes)
    for gang, choices in contested:
        question.enter(gang, choices, closed=shut(state, gang, choices[0][1]), key=gang.uid)
    if not question.options:
        return Repair()
    model, starts = _model(state, question)
    worth = {c.gang.uid: 2**i for i, c in enumerate(reversed(contested))}
    weights = {c.gangs: worth[c.option.gangs[0].uid] for c in model.columns.values() if not c.option.must}
    first = solver.maximise(model.rows, weights, most=PASS)
    reached = sum(count * first.values[v] for v, count in weights.items()) if first.values else 0
    if not reached:
        return Repair(proven=first.proven)
    model.rows.row(weights, low=reached)
    moves = model.moves(first.values)
    second = solver.maximise(model.rows, moves, most=MOVES)
    mark = state.mark
    for settled in starts:
        state.lift(settled)
    start(state, model, second.values or first.values)
    asked = {c.gang.uid for c in contested}
    started = tuple(uid for uid in state.settled if uid in asked)
    if not started or any(settled.gang.uid not in state.settled for settled in starts):
        state.undo(mark)
        return Repair(proven=False)
    return Repair(started=started, proven=first.proven and len(started) == reached.bit_count())


def _model(state: State, question: Question) -> tuple[Model, list[Settled]]:
    """The model, and the starts that may move in it. A gang that found its preferred level stays there; so does a gang
    on hosts where others wait to land. Flavors stay where a gang is entitled on them, and where rights of this cycle
    depend on what is used: beside evictions, and in a leaf beside work that must be inside its guarantee.
    """
    starts, moving = starts_of(state), list[Settled]()
    evicts = any(settled.evictions for settled in state.settled.values())
    fixed = {s.gang.queue for s in state.settled.values() if not s.gang.workload.preemptible}
    claimed = state.claimed.copy()
    free = without(state, starts) / np.maximum(state.nodes.total, 1)
    region = np.argsort(-free.sum(axis=1), kind="stable")[:NODES]
    for settled in starts:
        gang = settled.gang
        if prefers(gang.workload) or settled.hosts.isdisjoint(region.tolist()):
            continue
        if state.landing.closed_by_others(gang.uid, settled.hosts):
            continue
        closed = shut(state, gang, settled.charge)
        moves = not evicts and gang.queue not in fixed and not _entitled(claimed, settled)
        choices = _choices(settled, moves=moves)
        key = None if len(choices) == 1 else gang.shape.number
        if question.enter(gang, choices, closed=closed, key=key, lies=settled, must=True):
            moving.append(settled)
    hosts = np.array([host for settled in moving for host in settled.hosts], dtype=np.intp)
    return Model(question, state, without(state, moving), np.union1d(region, hosts)), moving


def _entitled(claimed: Usage, settled: Settled) -> bool:
    """Whether the start, which is part of what is claimed, is entitled where it lies."""
    queue, charge = settled.gang.queue, settled.charge
    claimed.add(queue, charge, times=-1)
    entitled = any(claimed.entitlements(queue, charge))
    claimed.add(queue, charge)
    return entitled


def _choices(settled: Settled, *, moves: bool) -> list[Choice]:
    """Where a start may lie at its size: on its own flavors, and where it `moves` on the others that it may use."""
    own, gang = settled.variant, settled.gang
    others = (
        replace(v, counts=own.counts) for v in gang.shape.variants if moves and v.flavors != own.flavors
    )
    return [
        (own, settled.charge),
        *((v, charge_for(gang.workload, v.flavors, v.counts)) for v in others),
    ]
