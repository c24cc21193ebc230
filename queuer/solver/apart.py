"""Other places for gangs that could not land beside others where they lie, once all have had their turn (DESIGN 3.5).

Who starts and who is bound stays as it is, and so do sizes and flavors; only victims may be others. So few tournaments
are played again for the sake of how gangs land.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from queuer.solver.greedy import Greedy
from queuer.solver.holding import FEW_SETTLED, difference, holds, intact, lift, restore, unneeded
from queuer.solver.outcome import Chosen
from queuer.solver.revise import cost
from queuer.solver.victims import Cost

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
    `push`: others are moved out of the way.
    """

    gangs: Sequence[Chosen]
    off: Hosts
    push: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """How things are before a move: who is settled where, how many cannot land, which reservations are whole, what the
    victims cost and which of them nobody needs, None = it is not looked at, as many are settled.
    """

    chosen: Mapping[str, Chosen]
    waiting: int
    whole: frozenset[str]
    cost: Cost
    needless: frozenset[str] | None

    @classmethod
    def of(cls, greedy: Greedy, waits: Sequence[Chosen]) -> Before:
        """As `greedy` stands. `waits`: who cannot land."""
        chosen = dict(greedy.chosen)
        return cls(
            chosen=chosen,
            waiting=len(waits),
            whole=intact(greedy.board),
            cost=cost(greedy, chosen.values()),
            needless=unneeded(greedy) if len(chosen) <= FEW_SETTLED else None,
        )

    def keeps_needed(self, greedy: Greedy) -> bool:
        """Whether all victims are needed now, but for those that were not."""
        return self.needless is None or unneeded(greedy) <= self.needless


@dataclass(frozen=True, slots=True)
class Gain:
    """What a move has come to: who cannot land then, and what the victims of all gangs cost. `stands`: it was not taken
    back.
    """

    move: Move
    waits: Sequence[Chosen]
    cost: Cost
    stands: bool


def place_apart(greedy: Greedy, waits: Sequence[Chosen], late: Late) -> None:
    """Move gangs until all that start can land, or no move that is tried lets more of them land. `waits`: who could not
    as things are.

    A move that makes the victims dearer is made only where no other helps.
    """
    left = TRIES
    while waits and left > 0:
        before, dear, gain = Before.of(greedy, waits), list[Gain](), None
        for move in islice(_moves(greedy, waits), left):
            left -= 1
            gain = _gain(greedy, move, late, before, dearest=before.cost)
            if gain is not None and gain.stands:
                break
            if gain is not None:
                dear.append(gain)
        else:
            if not dear:
                return
            least = min(dear, key=lambda g: (len(g.waits), g.cost))
            gain = _gain(greedy, least.move, late, before, dearest=least.cost)
        if gain is None or not gain.stands:  # its victims are dearer this time: it was taken back again
            return
        waits = gain.waits


def _moves(greedy: Greedy, late: Sequence[Chosen]) -> Iterator[Move]:
    """Who cannot land away from those beside it, or one of those away from it, or all of them anew."""
    pushing = list[Move]()
    for one in late:
        everyone = list(greedy.chosen.values())
        near = [c for c in everyone if c is not one and hosts_of(greedy, c) & hosts_of(greedy, one)]
        rivals = near[: -RIVALS - 1 : -1]
        alone = [Move([one], hosts_of(greedy, *near)), *(Move([r], hosts_of(greedy, one)) for r in rivals)]
        yield from alone
        if off := shared(greedy, one):
            yield Move([one], off)
        yield Move([one, *rivals], frozenset())
        yield Move([*rivals, one], frozenset())
        pushing += [Move(m.gangs, m.off, push=True) for m in alone]
    yield from pushing


def _gain(greedy: Greedy, move: Move, late: Late, before: Before, *, dearest: Cost) -> Gain | None:
    """What the move comes to if fewer gangs cannot land after it, else None. It stands if the victims of all cost no
    more than `dearest`; else nothing has moved.
    """
    kept = {one.gang.uid: greedy.keeps_off(one.gang.uid) for one in move.gangs}
    gain: Gain | None = None
    if _made(greedy, move):
        lifted, laid = difference(before.chosen, greedy.chosen), difference(greedy.chosen, before.chosen)
        if holds(greedy, lifted, laid) and intact(greedy.board) >= before.whole:
            waits, costs = late(), cost(greedy, greedy.chosen.values())
            if len(waits) < before.waiting and before.keeps_needed(greedy):
                gain = Gain(move, waits, costs, stands=costs <= dearest)
    if gain is None or not gain.stands:
        restore(greedy, dict(before.chosen))
        for uid, hosts in kept.items():
            greedy.keep_off(uid, hosts)
    return gain


def _made(greedy: Greedy, move: Move) -> bool:
    off = move.off
    lift(greedy, move.gangs)  # who is taken again comes last: victims are permitted in the order of the list
    for one in move.gangs:
        uid = one.gang.uid
        greedy.keep_off(uid, greedy.keeps_off(uid) | off)
        if not greedy.place_anew(one, push=move.push):
            return False
        off |= hosts_of(greedy, greedy.chosen[uid])
    return True


def shared(greedy: Greedy, one: Chosen) -> Hosts:
    """Those of its hosts where several of its pod sets lie, pods of earlier cycles land, or a bond of an earlier cycle
    holds a place: they may be in its way even if nobody else starts.
    """
    board = greedy.board
    times = Counter(node for spread in one.spreads.values() for node in spread)
    standing = (rows for uid, rows in board.held.items() if uid not in greedy.chosen)
    awaited = {*board.now.awaiting, *(node for rows in standing for node, _ in rows)}
    return frozenset(board.frame.names[node] for node, sets in times.items() if sets > 1 or node in awaited)


def hosts_of(greedy: Greedy, *gangs: Chosen) -> Hosts:
    """Where these lie."""
    names = greedy.board.frame.names
    return frozenset(names[node] for c in gangs for node in c.nodes)
