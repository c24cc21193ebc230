"""Other places for gangs that could not land beside others where they lie, once all have had their turn (DESIGN 3.5).

Who starts and who is bound stays as it is, and so do sizes and flavors; only victims may be others. So few tournaments
are played again for the sake of how gangs land.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from queuer.solver.displace import Displace
from queuer.solver.greedy import Greedy
from queuer.solver.holding import difference, holds, intact, lift, restore
from queuer.solver.outcome import Chosen

TRIES = 24
"""Moves tried in one cycle."""
RIVALS = 4
"""Gangs beside one that cannot land, the last first, that are moved instead of it."""
Hosts = frozenset[str]
Late = Callable[[], Sequence[Chosen]]
"""Looks who could not land as things are."""


@dataclass(frozen=True, slots=True)
class Move:
    """Gangs that are placed anew, one after the other, each off these hosts and off those of the ones before it.
    `push`: moves others out of the way.
    """

    gangs: Sequence[Chosen]
    off: Hosts
    push: Displace | None = None


def place_apart(greedy: Greedy, waits: Sequence[Chosen], late: Late) -> None:
    """Move gangs until all that start can land, or no move that is tried lets more of them land. `waits`: who could not
    as things are.
    """
    left = TRIES
    moves = _moves(greedy, waits)
    while waits and left > 0 and (move := next(moves, None)) is not None:
        left -= 1
        fewer = _after(greedy, move, late, most=len(waits))
        if fewer is not None:
            waits, moves = fewer, _moves(greedy, fewer)


def _moves(greedy: Greedy, late: Sequence[Chosen]) -> Iterator[Move]:
    """Who cannot land away from those beside it, or one of those away from it, or all of them anew."""
    pushing, push = list[Move](), Displace(greedy)
    for one in late:
        everyone = list(greedy.chosen.values())
        near = [c for c in everyone if c is not one and _hosts(greedy, c) & _hosts(greedy, one)]
        rivals = near[: -RIVALS - 1 : -1]
        alone = [Move([one], _hosts(greedy, *near)), *(Move([r], _hosts(greedy, one)) for r in rivals)]
        yield from alone
        yield Move([one, *rivals], frozenset())
        yield Move([*rivals, one], frozenset())
        pushing += [Move(m.gangs, m.off, push) for m in alone]
    yield from pushing


def _after(greedy: Greedy, move: Move, late: Late, *, most: int) -> Sequence[Chosen] | None:
    """Who cannot land after the move if they are fewer than `most`; None = nothing has moved."""
    before, whole = dict(greedy.chosen), intact(greedy.board)
    kept = {one.gang.uid: greedy.keeps_off(one.gang.uid) for one in move.gangs}
    if _made(greedy, move):
        lifted, laid = difference(before, greedy.chosen), difference(greedy.chosen, before)
        if holds(greedy, lifted, laid) and intact(greedy.board) >= whole:
            waits = late()
            if len(waits) < most:
                return waits
    restore(greedy, before)
    for uid, hosts in kept.items():
        greedy.keep_off(uid, hosts)
    return None


def _made(greedy: Greedy, move: Move) -> bool:
    off = move.off
    lift(greedy, move.gangs)  # who is taken again comes last: victims are permitted in the order of the list
    for one in move.gangs:
        uid = one.gang.uid
        greedy.keep_off(uid, greedy.keeps_off(uid) | off)
        if not greedy.place_anew(one, push=move.push):
            return False
        off |= _hosts(greedy, greedy.chosen[uid])
    return True


def _hosts(greedy: Greedy, *gangs: Chosen) -> Hosts:
    names = greedy.board.frame.names
    return frozenset(names[node] for c in gangs for spread in c.spreads.values() for node in spread)
