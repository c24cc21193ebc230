"""What is written into the pods so that they land where the plan wants them (DESIGN 3.5).

Pods pinned to one host are always safe: the plan counts them there. A gang that spreads over hosts goes in a
later wave where it could take the slots of others, and is put off to the next cycle where others could take
its own. At the end a gang that is alone in its domain is pinned to the domain instead of the hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from queuer.domain.workload import PodSet, Workload
from queuer.solver.board import Board
from queuer.solver.frame import Matrix
from queuer.solver.landing import Group, lands
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.problem import Admission, Assignment, Bond


class Pinner:
    """Settles pins and waves of the gangs that start in one cycle."""

    def __init__(self, board: Board, bonds: Mapping[str, tuple[Workload, Bond]]) -> None:
        self._board = board
        self._free: Matrix = board.frame.bound_free
        self._groups: dict[str, tuple[Group, ...]] = {}
        self._waves: dict[str, int] = {}
        self._on_host: dict[int, set[str]] = {}
        self._landing = tuple(self._unbound())
        self._held = {uid: tuple(self._hosts(w, b.assignments)) for uid, (w, b) in bonds.items()}
        self._before_held: dict[str, Matrix] = {}

    def settle(self, chosen: Iterable[Chosen]) -> tuple[list[Admission], list[Chosen]]:
        """Admissions with pins and waves, and the gangs that must wait until others have landed."""
        rows: dict[str, tuple[Workload, tuple[Assignment, ...]]] = {}
        late: list[Chosen] = []
        for one in sorted(chosen, key=lambda c: max(len(s) for s in c.spreads.values()) > 1):
            workload, uid = one.gang.pending.workload, one.gang.uid
            plain = assignments(self._board, one)
            groups = tuple(self._hosts(workload, plain))
            wave = self._wave(groups)
            if wave is None:
                late.append(one)
                continue
            self._groups[uid], self._waves[uid] = groups, wave
            for host in {h for g in groups for h in g.hosts}:
                self._on_host.setdefault(host, set()).add(uid)
            rows[uid] = (workload, plain)
        admissions = [
            Admission(uid=uid, assignments=self._pin(workload, plain), wave=self._waves[uid])
            for uid, (workload, plain) in rows.items()
        ]
        return admissions, late

    def to_hosts(self, workload: Workload, rows: Sequence[Assignment]) -> tuple[Assignment, ...]:
        """The rows pinned to their hosts."""
        return tuple(
            replace(row, selector=self._selector(workload, row), hosts=tuple(sorted(row.nodes)))
            for row in rows
        )

    # Who may land where

    def _unbound(self) -> Iterator[Group]:
        frame = self._board.frame
        for admitted in self._board.snapshot.admitted:
            for part in admitted.unbound:
                pod_set = _set(admitted.workload, part.pod_set)
                hosts = [frame.index[h] for h in part.hosts if h in frame.index]
                yield self._group(admitted.workload, pod_set, part.count, hosts)

    def _hosts(self, workload: Workload, rows: Sequence[Assignment]) -> Iterator[Group]:
        for row in rows:
            hosts = [self._board.frame.index[name] for name in row.nodes]
            yield self._group(workload, _set(workload, row.pod_set), row.count, hosts)

    def _group(self, workload: Workload, pod_set: PodSet, count: int, hosts: Iterable[int]) -> Group:
        frame = self._board.frame
        return Group(
            uid=workload.uid,
            count=count,
            need=frame.need(pod_set),
            row=frame.row(pod_set.requests),
            hosts=frozenset(hosts),
        )

    # Waves

    def _wave(self, groups: tuple[Group, ...]) -> int | None:
        """The earliest wave in which a gang lands and lets all others land; None = not in this cycle."""
        near = self._near(groups)
        others = [g for uid in near for g in self._groups[uid]]
        landing = [g for g in self._landing if _touch(g, groups)]
        held = {uid: part for uid, part in self._held.items() if any(_touch(g, groups) for g in part)}
        if not held and all(len(g.hosts) == 1 for g in (*groups, *others, *landing)):
            return 0
        if not all(lands(g, [*landing, *others, *groups], self._free) for g in groups):
            return None
        if not all(self._lands_held(uid, part, groups) for uid, part in held.items()):
            return None
        harmed = [-1]
        if not all(lands(g, [*self._landing, *groups], self._free) for g in landing):
            harmed.append(0)
        harmed += [self._waves[uid] for uid in near if not self._still_lands(uid, groups)]
        return 1 + max(harmed)

    def _near(self, groups: Sequence[Group]) -> list[str]:
        return sorted({uid for g in groups for h in g.hosts for uid in self._on_host.get(h, ())})

    def _still_lands(self, uid: str, coming: Sequence[Group]) -> bool:
        own = self._groups[uid]
        rivals = [
            g
            for other in self._near(own)
            if self._waves[other] <= self._waves[uid]
            for g in self._groups[other]
        ]
        return all(lands(g, [*self._landing, *rivals, *coming], self._free) for g in own)

    def _lands_held(self, uid: str, part: Sequence[Group], coming: Sequence[Group]) -> bool:
        rivals = [g for other in self._near(part) for g in self._groups[other]]
        free = self._free_for_held(uid)
        return all(lands(g, [*self._landing, *rivals, *coming, *part], free) for g in part)

    def _free_for_held(self, uid: str) -> Matrix:
        """For one bound gang: the nodes once all victims have gone, with the other bound gangs in place."""
        if uid not in self._before_held:
            free = self._vacated.copy()
            for node, row in self._board.held.get(uid, ()):
                free[node] += row
            self._before_held[uid] = free
        return self._before_held[uid]

    @cached_property
    def _vacated(self) -> Matrix:
        """The nodes once all victims have gone, with all bound gangs in place."""
        board = self._board
        free = self._free.copy()
        for uid in board.leaving:
            for node, row in board.holds[uid].bound.items():
                free[node] += row
        for place in board.held.values():
            for node, row in place:
                free[node] -= row
        return free

    # Pins

    def _pin(self, workload: Workload, rows: Sequence[Assignment]) -> tuple[Assignment, ...]:
        """To the domain where that is safe, else to the hosts."""
        wide = self._domain(workload, rows)
        if wide is None:
            return self.to_hosts(workload, rows)
        return tuple(replace(row, selector={**self._selector(workload, row), **wide}) for row in rows)

    def _domain(self, workload: Workload, rows: Sequence[Assignment]) -> Mapping[str, str] | None:
        """Labels of the narrowest domain that holds the gang, if nobody else is landing there and it lands
        for certain anywhere in it. None for a gang that asks for no level, or that lies on one host.
        """
        frame, topology = self._board.frame, self._board.snapshot.topology
        asked = topology.find(workload.required or workload.preferred or "")
        nodes = [frame.index[name] for row in rows for name in row.nodes]
        if asked is None or any(_set(workload, r.pod_set).required for r in rows):
            return None
        for level in range(len(frame.domains) - 1, asked - 1, -1):
            numbers = frame.domains[level]
            if numbers[nodes[0]] < 0 or any(numbers[n] != numbers[nodes[0]] for n in nodes):
                continue
            labels = self._board.snapshot.nodes[nodes[0]].node.labels
            keys = topology.keys[: level + 1]
            if level == len(frame.domains) - 1 or any(key not in labels for key in keys):
                return None
            inside = numbers == numbers[nodes[0]]
            groups = [
                self._group(
                    workload,
                    pod_set,
                    row.count,
                    map(int, (inside & frame.open_to(pod_set, row.flavor)).nonzero()[0]),
                )
                for row in rows
                for pod_set in (_set(workload, row.pod_set),)
            ]
            return {key: labels[key] for key in keys} if self._alone(workload.uid, groups) else None
        return None

    def _alone(self, uid: str, groups: Sequence[Group]) -> bool:
        others = [*self._landing, *(g for part in self._held.values() for g in part)]
        if self._near(groups) != [uid] or any(_touch(g, groups) for g in others):
            return False
        if uid in self._board.avoiding or self._board.horizons:
            return False
        return all(lands(g, groups, self._free) for g in groups)

    def _selector(self, workload: Workload, row: Assignment) -> dict[str, str]:
        """Labels of the flavor and of the required levels."""
        frame, topology = self._board.frame, self._board.snapshot.topology
        selector = dict(frame.flavors[row.flavor].node_labels)
        labels = self._board.snapshot.nodes[frame.index[next(iter(row.nodes))]].node.labels
        for level in (workload.required, _set(workload, row.pod_set).required):
            at = topology.find(level) if level else None
            if at is not None and (key := topology.keys[at]) in labels:
                selector[key] = labels[key]
        return selector


def _set(workload: Workload, name: str) -> PodSet:
    return next(p for p in workload.pod_sets if p.name == name)


def _touch(group: Group, groups: Sequence[Group]) -> bool:
    return any(not group.hosts.isdisjoint(g.hosts) for g in groups)
