"""The state of one decision: what is used and free now and once the victims have gone, what is held and reserved.

Every change is logged and can be undone. A gang that starts fits both moments, so that nobody takes what is held for a
bound gang; a bound gang fits the later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.ends import end_of, expected_end, leaves_soon
from queuer.solver.landing import Landing
from queuer.solver.nodes import ALL, Mask, Matrix, NodeRows, Rows
from queuer.solver.placement import Spreads, Variant, rows_of
from queuer.solver.records import Eviction, Reservation
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room

ANY = np.iinfo(np.int64).max
"""As much as there is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """A gang with its placement: it starts now, or it is `bound` until its victims have gone."""

    gang: Gang
    variant: Variant
    charge: Charge
    spreads: Spreads
    evictions: tuple[Eviction, ...] = ()
    bound: bool = False

    @property
    def hosts(self) -> frozenset[int]:
        """Where its pods lie."""
        return frozenset(node for spread in self.spreads.values() for node in spread)


@dataclass(slots=True, eq=False, kw_only=True)
class Reserved:
    """A reservation in the state. By node number (vectors of R): `takes`, what it needs, and `spare`, what is free
    beside that at its start; `lacks`: how little `spare` may be without harm, as it was so from the beginning.
    """

    reservation: Reservation
    settled: Settled
    rank: tuple[bool, int]
    takes: Rows
    spare: dict[int, Matrix]
    lacks: Rows = field(default_factory=dict)

    @property
    def start(self) -> float:
        """Seconds since the epoch; a hold's has come."""
        return self.reservation.start

    @property
    def intact(self) -> bool:
        """Whether nobody has come onto its place that it has no room for."""
        return all(
            bool(((self.spare[node] >= self.lacks[node]) | (row == 0)).all())
            for node, row in self.takes.items()
        )


class State:
    """`now`, `later`: use with all that runs, and with the victims gone and bonds in place; `free`, `then`: the same of
    the nodes (N x R). `claimed`: what is used plus what is held, by which entitlement and shares are judged.
    """

    def __init__(self, arrays: Arrays, *, time: float) -> None:
        self.arrays, self.snapshot, self.time = arrays, arrays.snapshot, time
        self.nodes, self.book, self.holds = arrays.nodes, arrays.book, arrays.holds
        self.capacity = {r: n for (flavor, r), n in self.book.live.items() if flavor is None}
        self.past: Mapping[str, float] = {
            queue: self.book.past_share(queue, used) for queue, used in self.snapshot.past.items()
        }
        self.now = self.later = self.claimed = arrays.usage.copy()
        self.free: Matrix = self.nodes.bound_free.copy()
        self.landing = Landing(self.nodes)
        self.landing_rows: dict[str, Rows] = {}
        for uid, hold in self.holds.items():
            if hold.admitted.unbound:
                self.landing_rows[uid] = self.landing.expected(hold.admitted, self.free)
                for node, row in self.landing_rows[uid].items():
                    self.free[node] -= row
        self.then: Matrix = self.free
        self.leaving: dict[str, None] = {}
        self._starts_own: dict[str, frozenset[int]] = {}
        self.settled: dict[str, Settled] = {}
        self.kept: dict[str, Settled] = {}
        self.reserved: dict[str, Reserved] = {}
        self.forked = False
        self._line: Usage | None = None
        self._rooms: dict[tuple[tuple[str, ...], bool], Room] = {}
        self._log: list[Callable[[], None]] = []
        for uid, hold in self.holds.items():
            if leaves_soon(hold.admitted, now=time):
                self.leave(uid)

    # Changes, each with its inverse in the log

    def start(self, settled: Settled) -> None:
        """The gang starts in its placement."""
        self._start(settled, 1)
        self._log.append(lambda: self._start(settled, -1))

    def lift(self, settled: Settled) -> None:
        """A gang that starts in this cycle is taken out of its placement."""
        self._start(settled, -1)
        self._log.append(lambda: self._start(settled, 1))

    def bind(self, settled: Settled) -> None:
        """Placement and quota are held for the gang, whose victims leave."""
        for eviction in settled.evictions:
            if eviction.uid not in self.leaving:
                self.leave(eviction.uid)
        self._hold(settled, 1, bonds=True)
        self._log.append(lambda: self._hold(settled, -1, bonds=True))

    def unbind(self, settled: Settled) -> None:
        """The holding ends; the victims stay on their way out."""
        self._hold(settled, -1, bonds=True)
        self._log.append(lambda: self._hold(settled, 1, bonds=True))

    def keep(self, settled: Settled) -> None:
        """The gang fits but for what is still landing: nobody later takes its placement in this cycle."""
        self._hold(settled, 1, bonds=False)
        self._log.append(lambda: self._hold(settled, -1, bonds=False))

    def leave(self, uid: str) -> None:
        """A victim, or somebody who leaves anyway, will have gone `then`."""
        self._leave(uid, 1)
        self._log.append(lambda: self._leave(uid, -1))

    @property
    def mark(self) -> int:
        """This moment, for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take back all changes since."""
        while len(self._log) > mark:
            self._log.pop()()

    def _fork(self) -> None:
        """From now on the two moments differ."""
        if not self.forked:
            self.forked = True
            self.later, self.claimed = self.now.copy(), self.now.copy()
            self.then = self.free.copy()

    def _start(self, settled: Settled, times: int) -> None:
        workload, rows = settled.gang.workload, self.rows(settled)
        for usage in (self.now, *((self.later, self.claimed) if self.forked else ())):
            usage.add(workload.queue, settled.charge, times=times)
        if self._line is not None:
            self._line.add(workload.queue, settled.charge, times=times)
        for node, row in rows.items():
            for free in (self.free, self.then) if self.forked else (self.free,):
                free[node] -= row * times
        hosts = settled.hosts
        if times > 0:
            owned = self.landing.choices(workload, settled.spreads)
            self.landing.add(workload.uid, hosts, owned)
            self.settled[workload.uid] = settled
            self._starts_own[workload.uid] = owned
        else:
            self.landing.add(workload.uid, hosts, self._starts_own.pop(workload.uid), times=-1)
            del self.settled[workload.uid]
        self._spend(workload, rows, times)
        self._touch(rows)

    def _hold(self, settled: Settled, times: int, *, bonds: bool) -> None:
        workload, rows = settled.gang.workload, self.rows(settled)
        self._fork()
        for usage in (self.later, self.claimed):
            usage.add(workload.queue, settled.charge, times=times)
        for node, row in rows.items():
            self.then[node] -= row * times
        self.landing.hold(rows, times=times)
        there = self.settled if bonds else self.kept
        if times > 0:
            there[workload.uid] = settled
        else:
            del there[workload.uid]
        self._spend(workload, rows, times)
        self._touch(rows)

    def _leave(self, uid: str, times: int) -> None:
        hold, rows = self.holds[uid], self.rows_of(uid)
        self._fork()
        if times > 0:
            self.leaving[uid] = None
        else:
            del self.leaving[uid]
        self.later.add(hold.admitted.workload.queue, hold.charge, times=-times)
        if self._line is not None and not hold.admitted.releasing:
            self._line.add(hold.admitted.workload.queue, hold.charge, times=-times)
        for node, row in rows.items():
            self.then[node] += row * times
        for reserved in self.reserved.values():
            if expected_end(hold.admitted, now=self.time) > reserved.start:
                _move(reserved, rows, times)
        self._touch(rows)

    def _spend(self, workload: Workload, rows: Rows, times: int) -> None:
        for reserved in self.reserved.values():
            if self.outlives(workload, reserved.start):
                _move(reserved, rows, -times)

    def _touch(self, rows: Iterable[int]) -> None:
        nodes = list(rows)
        at = np.array(nodes, dtype=np.intp)
        for (bars, landed), room in self._rooms.items():
            room.free[at] = self._open(bars, at, landed=landed)
            room.touch(nodes)

    # What there is

    def rows(self, settled: Settled) -> dict[int, Matrix]:
        """What a placement takes, by node number (vectors of R)."""
        return rows_of(self.nodes, settled.gang.workload, settled.spreads)

    def rows_of(self, uid: str) -> Rows:
        """What an admitted workload takes of its nodes, pods that are still to land included."""
        rows, landing = self.holds[uid].rows, self.landing_rows.get(uid)
        if not landing:
            return rows
        return summed((rows, landing))

    def room(self, bars: tuple[str, ...] = (), *, landed: bool = False) -> Room:
        """What a gang may take that must leave these reservations whole. `landed`: once all pods have landed."""
        key = (bars, landed)
        if key not in self._rooms:
            self._rooms[key] = Room(self.nodes, self._open(bars, ALL, landed=landed))
        return self._rooms[key]

    def _open(self, bars: tuple[str, ...], at: NodeRows, *, landed: bool) -> Matrix:
        free = np.minimum(self.free[at], self.then[at]) if self.forked else self.free[at].copy()
        if not landed and self.landing.any_owned:
            free[self.landing.owned[at]] = 0
        return self.behind(bars, free, at) if bars else free

    def behind(self, bars: Sequence[str], free: Matrix, at: NodeRows = ALL) -> Matrix:
        """`free` on some nodes (K x R), changed so that these reservations stay whole."""
        row_of = None if isinstance(at, slice) else {node: i for i, node in enumerate(at.tolist())}
        for uid in bars:
            reserved = self.reserved[uid]
            for node, row in reserved.takes.items():
                i = node if row_of is None else row_of.get(node)
                if i is not None:
                    least = np.maximum(reserved.spare[node], 0)
                    np.minimum(free[i], np.where(row > 0, least, ANY), out=free[i])
        return free

    def bars(self, gang: Gang, charge: Charge) -> tuple[str, ...]:
        """Owners of the reservations that the gang must leave whole: it would still be there, and does not come first
        by right or priority.
        """
        if not self.reserved:
            return ()
        rank = self.rank(gang, charge)
        return tuple(
            uid
            for uid, reserved in self.reserved.items()
            if uid != gang.uid and rank <= reserved.rank and self.outlives(gang.workload, reserved.start)
        )

    def rank(self, gang: Gang, charge: Charge) -> tuple[bool, int]:
        """What displaces a reservation: entitled somewhere on the path, then priority."""
        return any(self.claimed.entitlements(gang.queue, charge)), gang.workload.priority

    def outlives(self, workload: Workload, start: float) -> bool:
        """Whether a gang that starts now would still be there at that time."""
        end = end_of(workload, start=self.time)
        return end is None or end > start

    def closed(self, gang: Gang, *, bound: bool = False) -> Mask | None:
        """Nodes that the gang avoids, and if it is to be `bound` those that landing pods have to themselves; None =
        none.
        """
        closed = self.nodes.closed(gang.pending.avoid)
        if not (bound and self.landing.any_owned):
            return closed
        return self.landing.owned.copy() if closed is None else closed | self.landing.owned

    @property
    def line(self) -> Usage:
        """What is used once all that is on its way out has gone: by it a victim's queue is above its guarantee."""
        if self._line is None:
            self._line = self.now.copy()
            for uid, hold in self.holds.items():
                if hold.admitted.releasing or uid in self.leaving:
                    self._line.add(hold.admitted.workload.queue, hold.charge, times=-1)
        return self._line

    def reserve(self, reserved: Reserved) -> None:
        """The reservation holds from now on. Not logged."""
        self.reserved[reserved.reservation.uid] = reserved
        self._rooms.clear()

    def release(self, uid: str) -> Reserved | None:
        """The reservation of this gang, if there is one, ends. Not logged."""
        ended = self.reserved.pop(uid, None)
        if ended is not None:
            self._rooms = {key: room for key, room in self._rooms.items() if uid not in key[0]}
        return ended

    def usages(self) -> tuple[Usage, ...]:
        """The distinct uses that a gang which starts now must fit."""
        return (self.now, self.later) if self.forked else (self.now,)


def summed(parts: Iterable[Rows]) -> dict[int, Matrix]:
    """Amounts by node number, each node once."""
    found: dict[int, Matrix] = {}
    for rows in parts:
        for node, row in rows.items():
            found[node] = found[node] + row if node in found else row
    return found


def _move(reserved: Reserved, rows: Rows, times: int) -> None:
    for node, row in rows.items():
        if node in reserved.spare:
            reserved.spare[node] = reserved.spare[node] + row * times
