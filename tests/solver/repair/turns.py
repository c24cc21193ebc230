"""A state after the turns of a cycle, as the repair finds it."""

from __future__ import annotations

from queuer.solver.order import Tournament
from queuer.solver.records import Snapshot
from queuer.solver.repair.contested import Contested
from queuer.solver.state import State
from queuer.solver.turn import Turns
from tests.solver.make import state_of


def played(snap: Snapshot, *, but: str = "") -> State:
    """Every gang has had its turn, `but` one."""
    state = state_of(snap)
    turns = Turns(state)
    tournament = Tournament(snap.tree, state.arrays.waiting.by_leaf, state, refused=turns.refused)
    while (gang := tournament.next()) is not None:
        tournament.done(gang, settled=gang.uid != but and turns.turn(gang))
    return state


def contested(state: State, uid: str) -> Contested:
    """A waiting gang at its first flavors and full size."""
    gang = state.arrays.waiting.gangs[uid]
    return Contested(gang, ((gang.shape.variants[0], gang.shape.charges[0]),))
