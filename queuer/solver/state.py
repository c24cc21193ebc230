"""The state of one decision: what is used and free now and once the victims have gone, what is held and reserved.

Every change is logged and can be undone. A gang that starts fits both moments, so that nobody takes what is held for a
bound gang; a bound gang fits the later one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from queuer.domain.assignments import Assignment, Eviction, Reservation
from queuer.domain.quota import Account, Charge, CountedCharge
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.ends import end_of, expected_end, leaves_soon
from queuer.solver.landing import Landing, pinned
from queuer.solver.nodes import ALL, Mask, Matrix, NodeRows, Nodes, Rows
from queuer.solver.placement import Spreads, Variant, rows_of
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room, View

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

    def pinned(self, nodes: Nodes) -> tuple[Assignment, ...]:
        """The placement by node name, with its pins."""
        return pinned(nodes, self.gang.shape.example, self.variant.flavors, self.spreads)

    @property
    def size(self) -> int:
        """How many pods it has."""
        return sum(self.variant.counts.values())

    @property
    def hosts(self) -> frozenset[int]:
        """Where its pods lie."""
        return frozenset(node for spread in self.spreads.values() for node in spread)


@dataclass(slots=True, eq=False, kw_only=True)
class Reserved:
    """A reservation in the state. By node number (vectors of R):
    `takes`, its needs; `spare`, the room beside these at its start; `lacks`, the shortage of room from the beginning.
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
    """`used_now`, `free_now`: use, and free amounts of the nodes (N x R), with all running work. `used_later`,
    `free_later`: the same with the victims gone and bonds in place. `claimed`: what is used plus what is held for bound
    gangs, by which entitlement and shares are judged. `changes`: how many there were, those taken back and that itself,
    too.
    """

    def __init__(self, arrays: Arrays, *, time: float) -> None:
        self.arrays, self.snapshot, self.time = arrays, arrays.snapshot, time
        self.nodes, self.book, self.running = arrays.nodes, arrays.book, arrays.running
        self.capacity = {r: n for (flavor, r), n in self.book.live.items() if flavor is None}
        self.past: Mapping[str, float] = {
            queue: self.book.past_share(queue, used) for queue, used in self.snapshot.past.items()
        }
        self.used_now = self.used_later = self.claimed = arrays.usage.copy()
        self.free_now: Matrix = self.nodes.bound_free.copy()
        self.landing = Landing(self.nodes)
        self.landing_rows: dict[str, Rows] = {}
        for uid, run in self.running.items():
            if run.admitted.unbound:
                self.landing_rows[uid] = self.landing.expected(run.admitted, self.free_now)
                for node, row in self.landing_rows[uid].items():
                    self.free_now[node] -= row
        self.free_later: Matrix = self.free_now
        self.leaving: dict[str, None] = {}
        self.settled: dict[str, Settled] = {}
        self.starts_in: dict[str, dict[str, Settled]] = {}  # by queue, those of its subtree by uid
        self.kept: dict[str, Settled] = {}
        self.reserved: dict[str, Reserved] = {}
        self._starts: list[float] = []  # of reservations, in order
        self.reservings = 0  # how often a reservation began or ended
        self.forked, self.changes = False, 0
        self._remaining: Usage | None = None
        self.rows = cache(self._find_rows)
        self._rooms: dict[tuple[tuple[str, ...], View], Room] = {}
        self._touched: list[int] = []
        self._entries: dict[int, tuple[CountedCharge, Settled]] = {}  # by charge, which is kept with it
        self._log: list[Callable[[], None]] = []
        for uid, run in self.running.items():
            if leaves_soon(run.admitted, now=time):
                self.leave(uid)

    # Changes, each with its inverse in the log

    def start(self, settled: Settled) -> None:
        """The gang starts in its placement."""
        self._do(partial(self._start, settled))

    def lift(self, settled: Settled) -> None:
        """A gang that starts in this cycle is taken out of its placement."""
        self._do(partial(self._start, settled), times=-1)

    def bind(self, settled: Settled) -> None:
        """Placement and quota are held for the gang, whose victims leave."""
        for eviction in settled.evictions:
            if eviction.uid not in self.leaving:
                self.leave(eviction.uid)
        self._do(partial(self._set_aside, self.settled, settled))

    def unbind(self, settled: Settled) -> None:
        """The holding ends; the victims stay on their way out."""
        self._do(partial(self._set_aside, self.settled, settled), times=-1)

    def keep(self, settled: Settled) -> None:
        """The gang fits but for what is still landing: nobody later comes to its hosts in this cycle."""
        self._do(partial(self._set_aside, self.kept, settled))
        self.close(settled)

    def close(self, settled: Settled) -> None:
        """Hosts where room was just set aside for the gang are closed to all later ones."""
        self._do(partial(self.landing.add, settled.gang.uid, settled.hosts, settled.hosts))

    def leave(self, uid: str) -> None:
        """A victim, or somebody who leaves anyway, will have gone later."""
        self._do(partial(self._leave, uid))

    def _do(self, change: Callable[[int], None], *, times: int = 1) -> None:
        """A change, or its inverse."""
        change(times)
        self.changes += 1
        self._log.append(partial(change, -times))

    @property
    def mark(self) -> int:
        """This moment, for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take back all changes since."""
        while len(self._log) > mark:
            self._log.pop()()
            self.changes += 1

    def _fork(self) -> None:
        """From now on the two moments differ."""
        if not self.forked:
            self.forked = True
            self.used_later, self.claimed = self.used_now.copy(), self.used_now.copy()
            self.free_later = self.free_now.copy()

    def _start(self, settled: Settled, times: int) -> None:
        self._take(self.settled, settled, times, first=True)
        for queue in self.book.lineage(settled.gang.queue):
            there = self.starts_in.setdefault(queue, {})
            if times > 0:
                there[settled.gang.uid] = settled
            else:
                del there[settled.gang.uid]
        owned = self.landing.choices(settled.gang.shape.example, settled.variant.flavors, settled.spreads)
        self.landing.add(settled.gang.uid, settled.hosts, owned, times)

    def _set_aside(self, there: dict[str, Settled], settled: Settled, times: int) -> None:
        """A kept place is no claim: it may come to nothing, and the rights of others do not depend on it."""
        self._fork()
        self._take(there, settled, times, first=False)
        self.landing.hold(settled.gang.uid, settled.hosts, times=times)

    def _take(self, there: dict[str, Settled], settled: Settled, times: int, *, first: bool) -> None:
        """Quota and room of the second moment, and where it starts of the first, too."""
        usages, frees = ([self.used_later], [self.free_later]) if self.forked else ([], [])
        if self.forked and there is self.settled:
            usages.append(self.claimed)
        if first:
            usages += [self.used_now] if self._remaining is None else [self.used_now, self._remaining]
            frees.append(self.free_now)
        gang, rows = settled.gang, self.rows(settled)
        known = self._entries.get(id(settled.charge))
        if known is None:
            entry = self.book.counted(gang.queue, settled.charge)
            known = self._entries[id(settled.charge)] = (entry, settled)
        for usage in usages:
            usage.count(known[0], times=times)
        for free in frees:
            for node, row in rows.items():
                free[node] -= row * times
        if times > 0:
            there[gang.uid] = settled
        else:
            del there[gang.uid]
        for reserved in self.reserved.values():
            if self.outlives(gang.workload, reserved.start):
                _move(reserved, rows, -times)
        self._touched += rows

    def _leave(self, uid: str, times: int) -> None:
        run, rows = self.running[uid], self.rows_of(uid)
        self._fork()
        if times > 0:
            self.leaving[uid] = None
        else:
            del self.leaving[uid]
        self.used_later.add(run.admitted.workload.queue, run.charge, times=-times)
        if self._remaining is not None and not run.admitted.releasing:
            self._remaining.add(run.admitted.workload.queue, run.charge, times=-times)
        for node, row in rows.items():
            self.free_later[node] += row * times
        for reserved in self.reserved.values():
            if expected_end(run.admitted, now=self.time) > reserved.start:
                _move(reserved, rows, times)
        self._touched += rows

    # Questions

    def _find_rows(self, settled: Settled) -> dict[int, Matrix]:
        """Amounts that a placement takes, by node number (vectors of R)."""
        return rows_of(self.nodes, settled.gang.shape.example, settled.spreads)

    def rows_of(self, uid: str) -> Rows:
        """Amounts that an admitted workload takes on its nodes, with pods that are still to land."""
        rows, landing = self.running[uid].rows, self.landing_rows.get(uid)
        if not landing:
            return rows
        return {**rows, **{n: rows[n] + r if n in rows else r for n, r in landing.items()}}

    def room(self, respected: tuple[str, ...] = (), view: View = View.NOW) -> Room:
        """The room for a gang that must leave these reservations whole."""
        room = self._rooms.get((respected, view))
        if room is None:
            room = self._rooms[respected, view] = Room(self.nodes, self._open(respected, view, ALL))
        elif room.told < len(self._touched):
            nodes = list(dict.fromkeys(self._touched[room.told :]))
            at = np.array(nodes, dtype=np.intp)
            room.free[at] = self._open(respected, view, at)
            room.touch(nodes)
        room.told = len(self._touched)
        return room

    def _open(self, respected: tuple[str, ...], view: View, at: NodeRows) -> Matrix:
        free = (self.free_later if view is View.LATER else self.free_now)[at].copy()
        if view in (View.NOW, View.LANDED):
            np.minimum(free, self.free_later[at], out=free)
        if view is View.NOW and self.landing.any_owned:
            free[self.landing.owned[at]] = 0
        return self.behind(respected, free, at) if respected else free

    def behind(self, respected: Sequence[str], free: Matrix, at: NodeRows = ALL) -> Matrix:
        """`free` on some nodes (K x R), changed so that these reservations stay whole."""
        row_of = None if isinstance(at, slice) else {node: i for i, node in enumerate(at.tolist())}
        for uid in respected:
            reserved = self.reserved[uid]
            for node, row in reserved.takes.items():
                i = node if row_of is None else row_of.get(node)
                if i is not None:
                    least = np.maximum(reserved.spare[node], 0)
                    np.minimum(free[i], np.where(row > 0, least, ANY), out=free[i])
        return free

    def respected(self, gang: Gang, charge: Charge) -> tuple[str, ...]:
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
        """The order by which a reservation is displaced: entitled somewhere on the path, then priority."""
        return any(self.claimed.entitlements(gang.queue, charge)), gang.workload.priority

    def outlives(self, workload: Workload, start: float) -> bool:
        """Whether a gang that starts now would still be there at that time."""
        end = end_of(workload, start=self.time)
        return end is None or end > start

    def outlived(self, workload: Workload) -> int:
        """How many reservations a gang that starts now would outlive."""
        end = end_of(workload, start=self.time)
        return len(self._starts) if end is None else bisect_left(self._starts, end)

    def closed(self, gang: Gang, *, bound: bool = False) -> Mask | None:
        """Nodes that the gang avoids, and if it is to be `bound` those that landing pods have to themselves; None =
        none.
        """
        closed = self.nodes.closed(gang.pending.avoid)
        if not (bound and self.landing.any_owned):
            return closed
        return self.landing.owned.copy() if closed is None else closed | self.landing.owned

    @property
    def remaining(self) -> Usage:
        """Use once all leaving work has gone: it says whether a victim's queue is above its guarantee."""
        if self._remaining is None:
            self._remaining = self.used_now.copy()
            for uid, run in self.running.items():
                if run.admitted.releasing or uid in self.leaving:
                    self._remaining.add(run.admitted.workload.queue, run.charge, times=-1)
        return self._remaining

    def reserve(self, reserved: Reserved) -> None:
        """The reservation holds from now on. Not logged."""
        self.reserved[reserved.reservation.uid] = reserved
        self.reservings += 1
        self._rooms.clear()
        insort(self._starts, reserved.start)

    def release(self, uid: str) -> Reserved | None:
        """The reservation of this gang, if there is one, ends. Not logged."""
        ended = self.reserved.pop(uid, None)
        if ended is not None:
            self.reservings += 1
            self._rooms = {key: room for key, room in self._rooms.items() if uid not in key[0]}
            self._starts.remove(ended.start)
        return ended

    def usages(self) -> tuple[Usage, ...]:
        """The distinct uses that a gang which starts now must fit."""
        return (self.used_now, self.used_later) if self.forked else (self.used_now,)

    def rooms(self, queue: str, account: Account) -> dict[str, int]:
        """The room that limits on the path leave a gang that starts now, by queue; no limit = absent."""
        found: dict[str, int] = {}
        for usage in self.usages():
            for path, room in usage.rooms(queue, account):
                found[path] = min(room, found.get(path, room))
        return found

    def free_in(self, flavor: str, resources: Iterable[str]) -> dict[str, int]:
        """Free amounts on the nodes of a flavor that are ready and not cordoned."""
        nodes, at = self.nodes, np.flatnonzero(self.nodes.in_flavor[flavor]).tolist()
        there = [(i, self.snapshot.nodes[i].node) for i in at]
        usable = [i for i, node in there if node.schedulable]
        free = np.minimum(self.free_now[usable], self.free_later[usable]).clip(min=0).sum(axis=0)
        return {resource: int(free[nodes.column(resource)]) for resource in resources}


def _move(reserved: Reserved, rows: Rows, times: int) -> None:
    for node, row in rows.items():
        if node in reserved.spare:
            reserved.spare[node] = reserved.spare[node] + row * times
