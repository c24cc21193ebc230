"""Room for one gang on a few hosts, made by moving gangs of this cycle that lie there to other places.

Sizes and flavors stay, and so do victims: only gangs that evict nobody move. Those domains are tried in which least
moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from queuer.domain.quota import Charge
from queuer.solver import floors
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.floor import Floor
from queuer.solver.frame import Mask, Matrix, Numbers
from queuer.solver.holding import intact, keeps_needed, restore, unharmed
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.parts import Part, parts_of
from queuer.solver.slots import Slots

DOMAINS = 6
"""Domains tried for one gang."""
PLACEMENTS = 1_500
"""Placements tried in one cycle."""


class Displace:
    """Moves gangs of a cycle out of the way."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._vain: Kept[set[object]] = Kept(lambda: cycle.board.ground)

    def place(self, gang: Gang, variant: Variant, charge: Charge, *, bound: bool) -> Chosen | None:
        """The gang settled in a place that others have left for it; `bound`: once victims of others have gone. None =
        no such place was found, and nothing has moved.
        """
        if self._cycle.counts.moves > PLACEMENTS:
            return None
        vain = self._vain.of(None, set)
        bars: tuple[str, ...] = ()
        if self._board.horizons:
            rank = self._cycle.rank(gang, charge)
            bars = self._board.bars(gang.pending.workload, rank=rank, bound=bound)
        key = (self._cycle.key(gang, variant), bars, bound)
        if key in vain:
            return None
        parts = parts_of(self._board.frame, gang.pending.workload, variant, self._cycle.closed(gang))
        if len(parts) != 1:
            return None
        new = Chosen(gang=gang, variant=variant, charge=charge, spreads={}, bound=bound)
        movable = [c for c in self._cycle.chosen.values() if c.bound == bound and not c.evictions]
        lying = _by_host(movable)
        for hosts in self._targets(new, parts[0]):
            there = {n for host in np.flatnonzero(hosts).tolist() for n in lying.get(host, ())}
            layout = self._moved(new, hosts, [movable[n] for n in sorted(there)])
            if layout is not None and self._adopted(layout):
                return layout[0]
        vain.add(key)
        return None

    def _targets(self, new: Chosen, part: Part) -> Iterator[Mask]:
        """Hosts that have slots enough for the gang if the movable leave, the fewest resources to be moved first."""
        frame = self._board.frame
        tables, leave = _Nodes(self._cycle).floor(new).slots, self._cycle.movable_places(bound=new.bound)
        required = new.gang.pending.workload.required
        level = None if required is None else frame.snapshot.topology.find(required)
        domain = np.zeros(len(leave), dtype=np.intp) if level is None else frame.domains[level]
        usable = part.open & (domain >= 0)
        now = np.where(usable, tables.by_node(part.need, part.accepting, None), 0)
        there = np.flatnonzero(leave.any(axis=1))
        then, moves = now.copy(), np.zeros(len(now))
        then[there] = np.where(usable[there], part.need.slots(tables.free[there] + leave[there]), 0)
        scale = np.maximum(frame.alloc.max(axis=0, initial=1), 1)
        moves[there] = (leave[there] / scale).max(axis=1)
        each = np.where(then > now, moves / np.maximum(then - now, 1), np.where(now > 0, 0.0, np.inf))
        inside = np.flatnonzero(usable & (then > 0))
        place = inside if part.count == 1 else domain[inside]  # every host is a place of its own for one pod
        inside = inside[np.lexsort((inside, each[inside], place))]
        place = np.sort(place)
        starts = np.flatnonzero(np.diff(place, prepend=-1, append=-1))
        room = np.cumsum(then[inside])
        ends = np.searchsorted(room, np.append(0, room)[starts] + part.count) + 1
        found: list[tuple[float, int, NDArray[np.intp]]] = []
        for start, end, following in zip(starts, ends, starts[1:], strict=False):
            if end <= following:
                hosts = inside[start:end]
                found.append((float(moves[np.sort(hosts)].sum()), int(place[start]), hosts))
        for _, _, hosts in sorted(found, key=lambda item: item[:2])[:DOMAINS]:
            mask = np.zeros(len(now), dtype=bool)
            mask[hosts] = True
            yield mask

    def _moved(self, new: Chosen, hosts: Mask, displaced: Sequence[Chosen]) -> list[Chosen] | None:
        """The gang on these hosts and the displaced elsewhere, large ones first; the board is left as it is."""
        nodes = _Nodes(self._cycle)
        for one in displaced:
            nodes.spend(one, times=-1)
        layout: list[Chosen] = []
        for one in (new, *sorted(displaced, key=_size, reverse=True)):
            self._cycle.counts.moves += 1
            closed = self._cycle.closed(one.gang)
            if one is new:
                closed = ~hosts if closed is None else closed | ~hosts
            workload, slots = one.gang.pending.workload, nodes.slots(one)
            board, limits = self._board, self._board.limits()
            spreads = place(
                board.frame, slots.free, workload, one.variant, closed=closed, slots=slots, limits=limits
            )
            if spreads is None:
                return None
            layout.append(replace(one, spreads=spreads))
            nodes.spend(layout[-1])
        return layout

    def _adopted(self, layout: Sequence[Chosen]) -> bool:
        """Lay it out, unless one that may displace a reservation which the gang must leave whole would do so for it, or
        a victim would go for nobody who needs it.
        """
        new, *moved = layout
        if not keeps_needed(self._cycle, layout):
            return False
        before, whole = dict(self._cycle.chosen), unharmed(self._cycle, new)
        self._cycle.lift(self._cycle.chosen[c.gang.uid] for c in moved)
        self._board.changed()
        for chosen in (*moved, new):
            self._cycle.take(chosen)
        if intact(self._board) >= whole:
            return True
        restore(self._cycle, before)
        return False


class _Nodes:
    """What both sheets and all reservations leave free, to try things on: how it differs from the board, by node."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._now: dict[int, Matrix] = {}
        self._later: dict[int, Matrix] = {}
        self._horizons: dict[str, dict[int, Matrix]] = {uid: {} for uid in cycle.board.horizons}

    def spend(self, one: Chosen, *, times: int = 1) -> None:
        """The gang takes its place; `times=-1` gives it back."""
        workload, board = one.gang.pending.workload, self._board
        kept = [
            more
            for uid, more in self._horizons.items()
            if board.outlives(board.horizons[uid], workload, bound=one.bound)
        ]
        for more in (self._later, *kept) if one.bound else (self._now, self._later, *kept):
            for node, row in board.rows(workload, one.spreads):
                more[node] = more.get(node, 0) - row * times

    def floor(self, one: Chosen) -> Floor:
        """What this gang may take on the board."""
        workload, rank = one.gang.pending.workload, self._rank(one)
        floor = floors.later if one.bound else floors.now
        return floor(self._board, workload, rank=rank)

    def _rank(self, one: Chosen) -> tuple[bool, int]:
        """Its rank beside the reservations. Who is on the board is among what is claimed there already."""
        claimed, settled = self._board.claimed, one.gang.uid in self._cycle.chosen
        if settled:
            claimed.add(one.gang.queue, one.charge, times=-1)
        rank = self._cycle.rank_beside(one.gang, one.charge)
        if settled:
            claimed.add(one.gang.queue, one.charge)
        return rank

    def slots(self, one: Chosen) -> Slots:
        """What this gang may take."""
        board, workload = self._board, one.gang.pending.workload
        tables, nodes = self.floor(one).slots, np.array(sorted(self._later), dtype=np.intp)
        if not len(nodes):
            return tables
        free = self._differing(board.later.free, self._later, nodes)
        if not one.bound:
            free = np.minimum(free, self._differing(board.now.free, self._now, nodes))
        bars = board.bars(workload, rank=self._rank(one), bound=one.bound)
        return tables.but(nodes, board.behind(bars, free, nodes, more=self._horizons))

    def _differing(self, free: Matrix, more: Mapping[int, Matrix], nodes: Numbers) -> Matrix:
        """`free` (N x R) on these nodes (K x R) with what there is more."""
        zero = free[0] * 0
        there: Matrix = free[nodes] + np.array([more.get(node, zero) for node in nodes.tolist()])
        return there


def _by_host(movable: Sequence[Chosen]) -> dict[int, list[int]]:
    """Who lies on which node, by position."""
    found: dict[int, list[int]] = {}
    for n, one in enumerate(movable):
        for node in one.nodes:
            found.setdefault(node, []).append(n)
    return found


def _size(one: Chosen) -> tuple[int, str]:
    return (sum(n for (flavor, _), n in one.charge.items() if flavor is None), one.gang.uid)
