"""Bonds that keep each other from landing, though waiting longer is of no use (DESIGN 3.3, 3.5).

Bound gangs that share hosts may have free places and yet no waves in which all of them land; one that has a free place
may have to wait for another of lower rank, as it could take what is held for that one. So of such gangs the first in
the tournament's order starts, and the others give way: each lies elsewhere, where it evicts nobody more, or if its own
place is free, too, it waits till those before it have landed. Its bond stands meanwhile, and ends if it is crowded off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from queuer.solver.apart import Hosts, hosts_of, place_apart
from queuer.solver.board import Board
from queuer.solver.bonds import hold, leaving, restored, room
from queuer.solver.capacity import place
from queuer.solver.frame import ALL, Matrix
from queuer.solver.greedy import Greedy
from queuer.solver.groups import Groups
from queuer.solver.holding import lift
from queuer.solver.order import Gang, Tournament
from queuer.solver.outcome import Block, Chosen, assignments
from queuer.solver.pins import Pinner
from queuer.solver.problem import Bond

MOST = 24
"""Gangs near each other up to which they are settled by the order of the tournament: among more, some are put off."""


def settled(
    greedy: Greedy, bonds: Mapping[str, Bond], gangs: Mapping[str, Gang], groups: Groups
) -> dict[str, Bond]:
    """The bonds, of gangs that start, too, as they lie then. Only gangs that were bound have been started yet."""
    if not greedy.chosen:
        return dict(bonds)
    standoff = _Standoff(greedy, bonds, groups)
    if waits := standoff.waits():
        place_apart(greedy, waits, standoff.late)
        members = standoff.near(standoff.late(), gangs)
        if 0 < len(members) <= MOST:
            standoff.settle(members)
    return standoff.bonds


class _Standoff:
    """`bonds`: of all gangs that were bound, as they lie."""

    def __init__(self, greedy: Greedy, bonds: Mapping[str, Bond], groups: Groups) -> None:
        self.bonds = dict(bonds)
        self._greedy = greedy
        self._board = greedy.board
        self._groups = groups
        self._waits: frozenset[str] = frozenset()  # whom nothing here helps
        self._unsettled: dict[str, Chosen] = {}

    def waits(self) -> list[Chosen]:
        """Those that start, but could not land beside others that were bound."""
        late = self.late()
        pinner = self._pinned() if late else None
        found = [one for one in late if pinner is not None and pinner.lands_alone(one)]
        self._waits = frozenset(one.gang.uid for one in late if one not in found)
        return found

    def near(self, waits: Sequence[Chosen], gangs: Mapping[str, Gang]) -> list[Chosen]:
        """These and all on their hosts, in the places that they have or that are held for them."""
        found = dict[str, Chosen]()
        for one in waits:
            found.update((c.gang.uid, c) for c in self._beside(one))
            for uid in self._groups.held_near(self._groups.of(one)[1]):
                held = restored(self._board, gangs[uid], self.bonds[uid].assignments)
                if held is not None:
                    found[uid] = held
        return [*found.values()]

    def settle(self, members: Sequence[Chosen]) -> None:
        """Each anew, one after the other in the order of the tournament."""
        board, by_uid = self._board, {c.gang.uid: c for c in members}
        lift(self._greedy, [c for c in members if not c.bound])
        for one in members:
            if one.bound:
                board.unbind(one.gang.pending.workload, one.charge, one.spreads)
        lines: dict[str, list[Gang]] = {}
        for one in sorted(members, key=lambda c: c.gang.place_in_line()):
            lines.setdefault(one.gang.queue, []).append(one.gang)
        tournament, self._unsettled = Tournament(board.snapshot.tree, lines, board), by_uid
        while (gang := tournament.next()) is not None:
            one = by_uid.pop(gang.uid)
            if one.bound:
                self._wait(one)
            else:
                self._start(one)
            tournament.done(gang, settled=True)  # it passes nobody, and holds nobody up

    def _start(self, one: Chosen) -> None:
        """Where it lies, if all land; else its bond stands, if that is in nobody's way."""
        self._greedy.take(one)
        if not self.late():
            return
        lift(self._greedy, [one])
        bond = self.bonds.get(one.gang.uid)
        held = None if bond is None else restored(self._board, one.gang, bond.assignments)
        if held is not None and room(self._greedy, held, self._left()):
            self._wait(held)
        else:
            self._greedy.take(one)
            self._waits |= {c.gang.uid for c in self.late()}

    def _wait(self, one: Chosen) -> None:
        """In the place that is held for it, or in another in which it is in nobody's way. Where there is none, those in
        whose way it is go ahead if it waits for nobody else, and wait for it if it does.
        """
        bond, board = self.bonds[one.gang.uid], self._board
        if self._held(one, bond):
            return
        for near in (self._beside(one), self._greedy.chosen.values()) if leaving(board, bond) else ():
            other = self._elsewhere(one, hosts_of(self._greedy, *near))
            if other is not None and self._held(other, _moved(board, other, bond)):
                return
        if self._could_start(one):
            board.ahead[one.gang.uid] = frozenset(c.gang.uid for c in self._beside(one))
        hold(board, one, leaving(board, bond))
        self._waits |= {c.gang.uid for c in self.late()}

    # Places

    def _held(self, one: Chosen, bond: Bond) -> bool:
        """Whether all that start land with the bond there, and its gang, too; else it is off the board again."""
        uid, board = one.gang.uid, self._board
        before = self.bonds[uid]
        self.bonds[uid] = bond
        hold(board, one, leaving(board, bond))
        if not self.late() and self._pinned().lands_alone(replace(one, bound=True)):
            return True
        board.unbind(one.gang.pending.workload, one.charge, one.spreads)
        self.bonds[uid] = before
        return False

    def _elsewhere(self, one: Chosen, off: Hosts) -> Chosen | None:
        """Where there is room once all have gone who leave, off these hosts."""
        board, workload = self._board, one.gang.pending.workload
        closed, limits = board.closed(one.gang.pending.avoid | off), board.limits()
        spreads = place(board.frame, self._left(), workload, one.variant, closed=closed, limits=limits)
        return None if spreads is None else replace(one, spreads=spreads)

    def _left(self) -> Matrix:
        """What is left once all have gone who leave, with those in their places that are not settled yet (N x R)."""
        free = self._board.later.free.copy()
        for other in self._unsettled.values():
            self._greedy.spend(free, other)
        return free

    def _could_start(self, one: Chosen) -> bool:
        """Whether the place that is held for it is free, and it would land there if nobody else started."""
        blocked = self._greedy.quota_block(
            one.gang.pending.workload, one.variant, one.charge, (self._board.now,)
        )
        return (
            (blocked is None or blocked.block is Block.ENTITLEMENT)
            and room(self._greedy, one, self._board.unheld(ALL))
            and self._pinned().lands_alone(replace(one, bound=False))
        )

    def _beside(self, one: Chosen) -> list[Chosen]:
        return [c for c in self._greedy.chosen.values() if not c.nodes.isdisjoint(one.nodes)]

    def late(self) -> list[Chosen]:
        """Who could not land as things are."""
        late = self._pinned().late(self._greedy.chosen.values())
        return [one for one in late if one.gang.uid not in self._waits]

    def _pinned(self) -> Pinner:
        """The waves of those that start, beside the bonds on the board."""
        held = ((uid, workload) for uid, (workload, _) in self._board.bound.items())
        places = {uid: (workload, self.bonds[uid].assignments) for uid, workload in held}
        return Pinner(self._board, places, groups=self._groups)


def _moved(board: Board, one: Chosen, bond: Bond) -> Bond:
    """The bond elsewhere: it waits also for those that leave anyway there."""
    there = [uid for uid in sorted(board.vacating) if not one.nodes.isdisjoint(board.holds[uid].rows)]
    victims = tuple(dict.fromkeys((*bond.victims, *there)))
    return replace(bond, assignments=assignments(board, one), victims=victims)
