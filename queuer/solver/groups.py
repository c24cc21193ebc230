"""The pods of a cycle as groups that land: those of earlier cycles, those for which a place is held, those that start.

They are kept while a gang lies where it does, so that thousands of bound gangs cost nothing when one of them moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from queuer.domain.workload import PodSet, Workload
from queuer.solver.board import Board
from queuer.solver.frame import Mask, Matrix, Taken
from queuer.solver.landing import Group
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.problem import Assignment

HELD = 2**31
"""The wave of bound gangs: after all that land meanwhile."""
Part = tuple[Group, ...]
Assignments = tuple[Assignment, ...]


class Groups:
    """Of one board. `any_unbound`: whether pods of earlier cycles have still to land, on open nodes or others.

    `held`: of bound gangs, by uid; `doubtful`: those of them that meet themselves or pods of earlier cycles, so that
    they may not land even alone. Both are as of the last `follow`.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._landing: dict[int, list[Group]] = {}
        for group in self._unbound():
            for host in group.hosts:
                self._landing.setdefault(host, []).append(group)
        self.any_unbound = any(admitted.unbound for admitted in board.snapshot.admitted)
        self._known: dict[str, tuple[Chosen, Assignments, Part]] = {}
        self.held: dict[str, Part] = {}
        self.doubtful: set[str] = set()
        self._placed: dict[str, Assignments] = {}
        self._held_on: dict[int, set[str]] = {}
        self._taken: dict[str, Taken] = {}
        self._left: frozenset[str] = frozenset()
        self._releasing = frozenset(uid for uid, h in board.holds.items() if h.admitted.releasing)
        self._vacated: Matrix = board.frame.bound_free.copy()
        self._overdrawn = frozenset[int]()
        self._version = -1

    def of(self, one: Chosen) -> tuple[Assignments, Part]:
        """The place of a settled gang by node name, and its groups, each on the hosts of its place."""
        known = self._known.get(one.gang.uid)
        if known is None or known[0] is not one:
            rows = assignments(self._board, one)
            known = self._known[one.gang.uid] = (one, rows, self.at(one.gang.pending.workload, rows))
        return known[1:]

    def at(self, workload: Workload, rows: Iterable[Assignment]) -> Part:
        """The groups of a gang, each on the hosts of its place."""
        frame, find = self._board.frame, self._board.snapshot.topology.find
        found = []
        for row in rows:
            pod_set, hosts = set_named(workload, row.pod_set), [frame.index[n] for n in row.nodes]
            level = find(pod_set.required) if pod_set.required else None
            open_ = frame.alongside(frame.open_to(pod_set, row.flavor), level, hosts)
            found.append(self.group(workload, pod_set, row.count, hosts, open_=open_))
        return tuple(found)

    def group(
        self,
        workload: Workload,
        pod_set: PodSet,
        count: int,
        hosts: Iterable[int],
        *,
        open_: Mask | None = None,
    ) -> Group:
        """So many pods of a set on some of these hosts. `open_`: see `Group`."""
        frame = self._board.frame
        return Group(
            uid=workload.uid,
            count=count,
            need=frame.need(pod_set),
            row=frame.row(pod_set.requests),
            hosts=frozenset(hosts),
            open=open_,
        )

    def landing_near(self, groups: Iterable[Group]) -> list[Group]:
        """Of earlier cycles, on hosts of these."""
        if not self._landing:
            return []
        near = {id(g): g for own in groups for h in sorted(own.hosts) for g in self._landing.get(h, ())}
        return list(near.values())

    def held_near(self, groups: Iterable[Group]) -> list[str]:
        """Bound gangs with hosts of these, by uid."""
        return meet(self._held_on, groups)

    def follow(self, bonds: Mapping[str, tuple[Workload, Assignments]]) -> None:
        """These are the bound gangs and their places."""
        for uid in [
            uid for uid, rows in self._placed.items() if uid not in bonds or bonds[uid][1] is not rows
        ]:
            for host in _hosts(self.held.pop(uid)):
                self._held_on[host].discard(uid)
            self.doubtful.discard(uid)
            del self._placed[uid]
        for uid, (workload, rows) in bonds.items():
            if uid not in self._placed:
                self._placed[uid] = rows
                part = self.held[uid] = tuple(replace(g, wave=HELD) for g in self.at(workload, rows))
                for host in _hosts(part):
                    self._held_on.setdefault(host, set()).add(uid)
                if _meets_itself(part) or self.landing_near(part):
                    self.doubtful.add(uid)

    def _vacate(self) -> Matrix:
        """The nodes once all have gone who leave, with all bound gangs in place, as the board stands (N x R)."""
        board, free = self._board, self._vacated
        if self._version == board.version:
            return free
        self._version = board.version
        for uid in [u for u, place in self._taken.items() if board.held.get(u) is not place]:
            for node, row in self._taken.pop(uid):
                free[node] += row
        for uid, place in board.held.items():
            if uid not in self._taken:
                self._taken[uid] = place
                for node, row in place:
                    free[node] -= row
        gone = self._releasing | board.leaving
        for uid in self._left ^ gone:
            times = 1 if uid in gone else -1
            for node, row in board.holds[uid].bound.items():
                free[node] += row * times
        self._left = gone
        self._overdrawn = frozenset(np.flatnonzero((free < 0).any(axis=1)).tolist())
        return free

    @contextmanager
    def vacated(self, uid: str) -> Iterator[Matrix]:
        """For one bound gang: the nodes once all have gone who leave, with the other bound gangs in place (N x R)."""
        free, own = self._vacate(), self._taken.get(uid, ())
        for node, row in own:
            free[node] += row
        yield free
        for node, row in own:
            free[node] -= row

    def is_whole(self, uid: str) -> bool:
        """Whether the place of a bound gang will be there: that of an earlier cycle is lost where a victim stays."""
        free = self._vacate()
        return not any(
            node in self._overdrawn and np.any((free[node] < 0) & (row > 0))
            for node, row in self._taken.get(uid, ())
        )

    def _unbound(self) -> Iterator[Group]:
        index = self._board.frame.index
        for admitted in self._board.snapshot.admitted:
            for part in admitted.unbound:
                pod_set = set_named(admitted.workload, part.pod_set)
                hosts = [index[h] for h in part.hosts if h in index]
                yield replace(self.group(admitted.workload, pod_set, part.count, hosts), turn=admitted.turn)


def set_named(workload: Workload, name: str) -> PodSet:
    """The pod set of this name."""
    return next(p for p in workload.pod_sets if p.name == name)


def meet(on_host: Mapping[int, set[str]], groups: Iterable[Group]) -> list[str]:
    """Who is on a host of these, by uid."""
    return sorted({uid for g in groups for h in g.hosts for uid in on_host.get(h, ())})


def touch(group: Group, groups: Iterable[Group]) -> bool:
    """Whether it shares a host with one of these."""
    return any(not group.hosts.isdisjoint(g.hosts) for g in groups)


def _meets_itself(part: Part) -> bool:
    return len(part) > 1 and any(len(g.hosts) > 1 and touch(g, [o for o in part if o is not g]) for g in part)


def _hosts(part: Part) -> frozenset[int]:
    return frozenset().union(*(g.hosts for g in part))
