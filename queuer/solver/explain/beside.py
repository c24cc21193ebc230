"""Whether one gang more would land beside all that land in a cycle: what would be pinned is pinned, and looked at."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from queuer.solver.cycle import Cycle
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.pins import Pinner
from queuer.solver.problem import Assignment

MOST_PINNED = 20_000
"""Gangs that may be pinned anew in one cycle."""


class Beside:
    """The gangs that land in one cycle; asked once all have had their turns."""

    def __init__(self, cycle: Cycle) -> None:
        self._board = cycle.board
        self._cycle = cycle
        self._left = MOST_PINNED

    def lands(self, one: Chosen) -> bool:
        """Whether it finds a wave with those whose hosts meet its own, theirs included."""
        hosts = one.nodes
        if self._awaited.isdisjoint(hosts):
            near = {uid for host in hosts for uid in self._on_host.get(host, ())}
            if not near or all(_on_one_host(c) for c in (one, *(self._cycle.chosen[uid] for uid in near))):
                return True
        around = self._around(hosts)
        self._left -= 1 + len(around)
        self._pinner.work = 0
        return self._left >= 0 and not self._pinner.late([*around, one])

    def _around(self, hosts: frozenset[int]) -> list[Chosen]:
        """Those that share hosts with these, with each other, and so on, as they were settled."""
        found, left = set[str](), [*hosts]
        seen = set(left)
        while left:
            for uid in self._on_host.get(left.pop(), ()):
                if uid not in found:
                    found.add(uid)
                    more = self._cycle.chosen[uid].nodes - seen
                    seen |= more
                    left += more
        return [one for uid, one in self._cycle.chosen.items() if uid in found]

    @cached_property
    def _on_host(self) -> Mapping[int, list[str]]:
        """Who starts on a node."""
        found: dict[int, list[str]] = {}
        for uid, one in self._cycle.chosen.items():
            for host in () if one.bound else one.nodes:
                found.setdefault(host, []).append(uid)
        return found

    @cached_property
    def _awaited(self) -> set[int]:
        """Nodes on which pods of earlier cycles, or of bound gangs, have still to land."""
        held = {node for rows in self._board.held.values() for node, _ in rows}
        return held | {node for hold in self._board.holds.values() for node in hold.loose}

    @cached_property
    def _pinner(self) -> Pinner:
        board = self._board
        places: dict[str, tuple[Assignment, ...]] = {b.uid: b.assignments for b in board.snapshot.bonds}
        places |= {uid: assignments(board, one) for uid, one in self._cycle.chosen.items() if one.bound}
        return Pinner(board, {uid: (workload, places[uid]) for uid, (workload, _) in board.bound.items()})


def _on_one_host(one: Chosen) -> bool:
    return all(len(spread) == 1 for spread in one.spreads.values())
