"""The repair as a step of the decision: which gangs are contested, and whether the answer can be carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from queuer.solver.placement import Spreads
from queuer.solver.refusal import Block, Refusal
from queuer.solver.repair import repair
from queuer.solver.repair.decode import bears
from queuer.solver.repair.window import Contested, Lifted
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State, View

CONTESTED = 8
"""Gangs that the repair is asked to fit in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """How many gangs were contested, and how many of them start. `spent`: deterministic time of
    CP-SAT; `proven`: no more of them can start in its window.
    """

    contested: int = 0
    started: int = 0
    spent: float = 0.0
    proven: bool = True


def after_turns(
    state: State,
    lines: Iterable[Iterable[Gang]],
    refusals: dict[str, Refusal],
    *,
    seed: int,
    budget: float,
) -> Repair:
    """Ask once for an arrangement of this cycle's starts in which more gangs start, and carry it out. Refusals of those
    that start are removed.
    """
    if budget <= 0:
        return Repair()
    mark, kept = state.mark, list(state.kept.values())
    for settled in kept:
        state.give_up(settled)
    contested = _contested(state, lines, refusals)
    answer = repair(state, contested, seed=seed, budget=budget)
    started = len(answer.started)
    if started and _carried_out(state, contested, answer.placements) and _keeps(state, kept):
        for uid in answer.placements:
            refusals.pop(uid, None)
            state.release(uid)
    else:
        state.undo(mark)
        started = 0
    return Repair(contested=len(contested), started=started, spent=answer.spent, proven=answer.proven)


def _contested(
    state: State, lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]
) -> list[Contested]:
    """The first gangs, by priority and submit time, that were refused for place, though no sum of free slots excludes
    them.
    """
    found: list[Contested] = []
    refused = sorted(_refused_for_place(lines, refusals), key=Gang.place_in_line)
    if not refused:
        return []
    lifted, hopeless = Lifted(state), set[object]()
    for gang in refused:
        refusal = refusals[gang.uid]
        assert refusal.variant is not None
        assert refusal.charge is not None
        form = (gang.shape.form, *refusal.variant.flavors.values())
        if form in hopeless:
            continue
        contested = Contested(gang=gang, variant=refusal.variant, charge=refusal.charge)
        if lifted.excludes(contested):
            hopeless.add(form)
            continue
        found.append(contested)
        if len(found) == CONTESTED:
            break
    return found


def _refused_for_place(lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]) -> Iterator[Gang]:
    """By leaf and refusal the first in line; those whom only others' landing keeps from starting, too."""
    for line in lines:
        seen = set[int]()
        for gang in line:
            refusal = refusals.get(gang.uid)
            if refusal is None or refusal.block not in (Block.PLACE, Block.LANDING) or id(refusal) in seen:
                continue
            seen.add(id(refusal))
            yield gang


def _carried_out(state: State, contested: Sequence[Contested], placements: Mapping[str, Spreads]) -> bool:
    """Carry the repair out; answers whether every gang still lands and fits."""
    before = {uid: state.settled[uid] for uid in placements if uid in state.settled}
    for settled in before.values():
        state.lift(settled)
    asked = {
        c.gang.uid: Settled(gang=c.gang, variant=c.variant, charge=c.charge, spreads={}) for c in contested
    }
    for uid, spreads in placements.items():
        settled = replace(before.get(uid) or asked[uid], spreads=spreads)
        if not bears(state, settled):
            return False
        state.start(settled)
    return True


def _keeps(state: State, kept: Sequence[Settled]) -> bool:
    """Whether those that fit but for what is still landing keep their placements or start."""
    for settled in kept:
        if settled.gang.uid not in state.settled:
            free = state.room(state.bars(settled.gang, settled.charge), View.LANDED).free
            if not all(bool((free[n] >= row)[row > 0].all()) for n, row in state.rows(settled).items()):
                return False
            state.keep(settled)
    return True
