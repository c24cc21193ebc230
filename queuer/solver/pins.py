"""What is written into the pods so that they land where the plan wants them (DESIGN 3.5).

Where all are pinned to one host each and have room they are safe: the plan counts them there. A gang that spreads over
hosts goes in a later wave where it could take the slots of others. Where others could take its own, their hosts are
opened to it, too, so that it finds what they leave; where that is not enough, it is put off to the next cycle. At the
end a gang that is alone in its domain is pinned to the domain instead of the hosts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.frame import Mask, Matrix, Numbers
from queuer.solver.groups import Assignments, Groups, meet, set_named, touch
from queuer.solver.landing import Group
from queuer.solver.outcome import Chosen
from queuer.solver.problem import Admission, Assignment, waits_for

ORDERS = 4
"""Times that gangs which find no wave are tried before the others."""
WIDENED = (2, 2, 1)
"""Fewest hosts of pods that get the hosts of those beside them, too, one time after the other."""
WORK = 10_000
"""Rivals looked at after which gangs get no wave but the last, no further host and no other order."""


@dataclass(slots=True, eq=False)
class Waves:
    """What comes of one order. `groups` with their waves, `rows` (places) and who is on a host: of those that start;
    `held`: groups of bound gangs on the hosts that they take beside these.
    """

    groups: dict[str, tuple[Group, ...]] = field(default_factory=dict)
    rows: dict[str, tuple[Workload, Assignments]] = field(default_factory=dict)
    on_host: dict[int, set[str]] = field(default_factory=dict)
    held: dict[str, tuple[Group, ...]] = field(default_factory=dict)


class Pinner:
    """Settles pins and waves of the gangs that start in one cycle. `work`: rivals looked at so far."""

    def __init__(
        self,
        board: Board,
        bonds: Mapping[str, tuple[Workload, Assignments]],
        *,
        work: int = WORK,
        groups: Groups | None = None,
    ) -> None:
        """`bonds`: places of this cycle's bound gangs, of old ones too. `work`: see `WORK`. `groups`: of this board,
        where the caller keeps them; they follow `bonds`, and this is of no use once they have followed others.
        """
        self._board = board
        self._most = work
        self.work = 0
        self._free: Matrix = board.frame.bound_free
        self._alloc: Matrix = board.frame.alloc
        self._ask = board.arrays.landings
        self._around = groups or Groups(board)
        self._around.follow(bonds)
        self._sure: dict[tuple[Group, bool], bool] = {}
        self._by_itself: dict[str, tuple[Group, ...]] = {}
        self._lost = {uid for uid in self._around.doubtful if not self._is_held(uid)}
        self._waves = Waves(held=dict(self._by_itself))

    def admissions(self) -> tuple[Admission, ...]:
        """Those that found a wave, with pins and waves; see `late`."""
        return tuple(
            Admission(uid=uid, assignments=self._pin(uid), wave=groups[0].wave)
            for uid, groups in self._waves.groups.items()
        )

    def late(self, chosen: Iterable[Chosen]) -> list[Chosen]:
        """The gangs that must wait until others have landed; all others have a wave from now on. Bound ones are among
        them that would not land in the place held for them even alone.

        Those that find no wave are tried before the others that spread over hosts, as they might go first.
        """
        chosen = list(chosen)
        lost = [c for c in chosen if c.bound and c.gang.uid in self._lost]
        order = sorted((c for c in chosen if not c.bound), key=_spreads)
        late = missed = self._put(order)
        least, tried = self._waves, {_uids(order)}
        for _ in range(ORDERS):
            order = _ahead(order, missed)
            if not missed or self._worn or _uids(order) in tried:
                break
            tried.add(_uids(order))
            missed = self._put(order)
            if len(missed) < len(late):
                least, late = self._waves, missed
        self._waves = least
        return [*late, *lost]

    def lands_alone(self, one: Chosen) -> bool:
        """Whether it lands beside what lands already, whoever else starts."""
        if one.bound:
            return one.gang.uid not in self._lost
        _, groups = self._around.of(one)
        near = self._around.landing_near(groups)
        return self._ask.together(groups, near, self._free, self._alloc) is not None

    def crosses(self, one: Chosen) -> bool:
        """Whether its own pod sets could keep each other from landing, if nobody else landed."""
        if not one.bound:
            return self._ask.together(self._around.of(one)[1], (), self._free) is None
        with self._around.vacated(one.gang.uid) as free:
            return self._ask.together(self._around.held[one.gang.uid], (), free) is None

    @property
    def _worn(self) -> bool:
        return self.work >= self._most

    def _put(self, order: Iterable[Chosen]) -> list[Chosen]:
        """One after the other into the earliest wave in which it lands; those that found none."""
        self._waves = Waves(held=dict(self._by_itself))
        late: list[Chosen] = []
        for one in order:
            workload, uid = one.gang.pending.workload, one.gang.uid
            rows, groups = self._around.of(one)
            settled, wider = self._in_a_wave(groups), groups
            for least in WIDENED:
                if settled is None and not self._worn:
                    before, wider = wider, self._widened(workload, rows, wider, least=least)
                    if any(g.hosts != b.hosts for g, b in zip(wider, before, strict=True)):
                        settled = self._in_a_wave(wider)
            if settled is None:
                late.append(one)
                continue
            self._waves.groups[uid], self._waves.rows[uid] = settled, (workload, rows)
            for host in {h for g in settled for h in g.hosts}:
                self._waves.on_host.setdefault(host, set()).add(uid)
        return late

    def to_hosts(self, workload: Workload, rows: Sequence[Assignment]) -> Assignments:
        """The rows of a bound gang pinned to their hosts."""
        names, wider = self._board.frame.names, self._waves.held.get(workload.uid)
        hosts = [
            row.nodes if wider is None else [names[h] for h in wider[i].hosts] for i, row in enumerate(rows)
        ]
        return tuple(
            replace(row, selector=self._selector(workload, row), hosts=tuple(sorted(there)))
            for row, there in zip(rows, hosts, strict=True)
        )

    def _widened(
        self, workload: Workload, rows: Assignments, groups: tuple[Group, ...], *, least: int
    ) -> tuple[Group, ...]:
        """Pods that have this many hosts at `least`, with the hosts of those with whom they share some, too."""
        frame, sets = self._board.frame, [set_named(workload, row.pod_set) for row in rows]
        if self._bound_to_nodes(workload) or any(p.required for p in sets):
            return groups
        level, inside = self._level(workload, rows), None
        if level is not None:
            numbers = frame.domains[level]
            inside = numbers == numbers[frame.index[next(iter(rows[0].nodes))]]
        found = []
        for group, pod_set, row in zip(groups, sets, rows, strict=True):
            near = [g for uid in self._near([group]) for g in self._waves.groups[uid] if len(g.hosts) > 1]
            theirs = frozenset().union(*(g.hosts for g in near if touch(g, [group])))
            open_ = frame.open_to(pod_set, row.flavor)
            usable = {h for h in theirs if open_[h] and (inside is None or inside[h])}
            found.append(replace(group, hosts=group.hosts | usable) if len(group.hosts) >= least else group)
        return tuple(found)

    # Waves

    def _in_a_wave(self, groups: Sequence[Group]) -> tuple[Group, ...] | None:
        """The gang in the earliest wave in which it lands and lets all others land; None = not in this cycle."""
        near = [self._waves.groups[uid] for uid in self._near(groups)]
        landing = self._around.landing_near(groups)
        held = [u for u in self._around.held_near(groups) if u not in self._lost and self._around.is_whole(u)]
        single = all(len(g.hosts) == 1 for g in itertools.chain(groups, landing, *near))
        if single and not held and self._all_fit(landing):
            return tuple(groups)
        last = max((own[0].wave for own in near), default=0 if landing else -1)
        for wave in range(last + 1 if self._worn else 0, last + 2):
            rivals = [*landing, *(g for own in near if own[0].wave <= wave for g in own)]
            self.work += len(groups) * (len(rivals) + len(groups))
            placed = [replace(g, wave=wave) for g in groups]
            coming = self._ask.together(placed, rivals, self._free, self._alloc)
            others = (own for own in near if own[0].wave >= wave)
            if (
                coming is not None
                and (wave > 0 or not self._rob(landing, coming))
                and all(self._land(own, coming) for own in others)
                and self._land_held(held, coming)
            ):
                return coming
        return None

    def _all_fit(self, landing: Iterable[Group]) -> bool:
        """Whether there is room for pods of earlier cycles, each on its one host. For those that have none the plan
        counts nothing, but they come as soon as something ends there.
        """
        left: dict[int, Matrix] = {}
        for group in landing:
            (host,) = group.hosts
            left[host] = left.get(host, self._free[host]) - group.row * group.count
        return all(bool((row >= 0).all()) for row in left.values())

    def _near(self, groups: Sequence[Group]) -> list[str]:
        return meet(self._waves.on_host, groups)

    def _land(self, own: Sequence[Group], coming: Sequence[Group]) -> bool:
        """Whether these, of one wave, land beside all others up to it."""
        rivals = self._up_to(own, coming, self._around.landing_near(own))
        return all(self._ask.lands(g, rivals, self._free, self._alloc) for g in own)

    def _rob(self, landing: Sequence[Group], coming: Sequence[Group]) -> bool:
        """Whether these may take from pods of an earlier cycle what they are sure of, with victims gone: in room that
        is free already, or gets free as well.
        """
        for alloc in (None, self._alloc) if landing else ():
            robbed = [g for g in landing if self._stays(g) and self._is_sure(g, alloc)]
            already = [g for g in self._around.landing_near(robbed) if self._stays(g)]
            rivals = self._up_to(robbed, coming, already) if robbed else []
            if not all(self._ask.lands(g, _not_waiting(g, rivals), self._free, alloc) for g in robbed):
                return True
        return False

    def _up_to(self, own: Sequence[Group], coming: Sequence[Group], landing: Iterable[Group]) -> list[Group]:
        """All on hosts of these that come in their wave or before."""
        known = (*landing, *(g for uid in self._near(own) for g in self._waves.groups[uid]))
        rivals = [g for g in (*known, *coming) if g.wave <= own[0].wave]
        self.work += len(own) * len(rivals)
        return rivals

    def _stays(self, landing: Group) -> bool:
        return landing.uid not in self._board.leaving

    def _is_sure(self, landing: Group, alloc: Matrix | None) -> bool:
        """Whether pods of an earlier cycle land if nobody else comes: nobody may rob them of that."""
        key = (landing, alloc is None)
        if key not in self._sure:
            near = [g for g in _not_waiting(landing, self._around.landing_near([landing])) if self._stays(g)]
            self._sure[key] = self._ask.lands(landing, near, self._free, alloc)
        return self._sure[key]

    def _land_held(self, held: Sequence[str], coming: Sequence[Group]) -> bool:
        """Whether these bound gangs find their places beside all that land before; from now on on the hosts that they
        take then.
        """
        found: dict[str, tuple[Group, ...]] = {}
        for uid in held:
            hosts = self._held_beside(uid, coming)
            if hosts is None:
                return False
            found[uid] = hosts
        self._waves.held |= found
        return True

    def _held_beside(self, uid: str, coming: Sequence[Group]) -> tuple[Group, ...] | None:
        """The hosts on which a bound gang finds its place once all victims have gone: those it was given last, else
        others of its own. Those are wide so that its sets leave each other room; who comes may have seen to that.
        """
        part, lying = self._waves.held.get(uid), self._around.held[uid]
        landing = [g for g in self._around.landing_near(lying) if self._stays(g)]
        rivals = [*landing, *(g for other in self._near(lying) for g in self._waves.groups[other]), *coming]
        self.work += len(lying) * (len(rivals) + len(lying))
        with self._around.vacated(uid) as free:
            if part is not None and all(self._ask.lands(g, [*rivals, *part], free) for g in part):
                return part
            return self._ask.together(lying, rivals, free)

    def _is_held(self, uid: str) -> bool:
        """Whether a bound gang finds its place if nobody else comes; from now on on the hosts that it takes."""
        part = self._around.held[uid]
        landing = [g for g in self._around.landing_near(part) if self._stays(g)]
        with self._around.vacated(uid) as free:
            found = self._ask.together(part, landing, free)
        if found is not None:
            self._by_itself[uid] = found
        return found is not None

    # Pins

    def _pin(self, uid: str) -> Assignments:
        """To the domain where that is safe, else to the hosts."""
        (workload, rows), names = self._waves.rows[uid], self._board.frame.names
        wide = self._domain(workload, rows)
        if wide is not None:
            return tuple(replace(row, selector={**self._selector(workload, row), **wide}) for row in rows)
        return tuple(
            replace(
                row,
                selector=self._selector(workload, row),
                hosts=tuple(sorted(names[h] for h in group.hosts)),
            )
            for row, group in zip(rows, self._waves.groups[uid], strict=True)
        )

    def _level(self, workload: Workload, rows: Assignments) -> int | None:
        """The narrowest level of which one domain holds the gang, if it asks for one and not for more than that."""
        frame, topology = self._board.frame, self._board.snapshot.topology
        asked = topology.find(workload.required or workload.preferred or "")
        nodes = [frame.index[name] for row in rows for name in row.nodes]
        if asked is None:
            return None
        for level in range(len(frame.domains) - 1, asked - 1, -1):
            numbers = frame.domains[level][nodes]
            if numbers[0] >= 0 and (numbers == numbers[0]).all():
                return level
        return None

    def _domain(self, workload: Workload, rows: Assignments) -> Mapping[str, str] | None:
        """Labels of the narrowest domain that holds the gang, if nobody else is landing there and it lands
        for certain anywhere in it. None for a gang that asks for no level, or that lies on one host.
        """
        frame, topology = self._board.frame, self._board.snapshot.topology
        level = self._level(workload, rows)
        if level in (None, len(frame.domains) - 1) or any(
            set_named(workload, r.pod_set).required for r in rows
        ):
            return None
        node = frame.index[next(iter(rows[0].nodes))]
        labels, keys = self._board.snapshot.nodes[node].node.labels, topology.keys[: level + 1]
        if any(key not in labels for key in keys):
            return None
        inside = frame.domains[level] == frame.domains[level][node]
        if any(self._strays(np.flatnonzero(inside & ~frame.in_flavor[r.flavor]), r.flavor) for r in rows):
            return None
        if self._around.any_unbound and any(self._any_closed(inside, workload, row) for row in rows):
            return None
        groups = [
            self._around.group(workload, pod_set, row.count, np.flatnonzero(open_).tolist())
            for row in rows
            for pod_set in (set_named(workload, row.pod_set),)
            for open_ in (inside & frame.open_to(pod_set, row.flavor),)
        ]
        return {key: labels[key] for key in keys} if self._alone(workload, groups) else None

    def _strays(self, others: Numbers, flavor: str) -> bool:
        """Whether the labels of a flavor let pods onto one of these nodes of other flavors."""
        asked, states = self._board.frame.flavors[flavor].node_labels.items(), self._board.snapshot.nodes
        return any(asked <= states[n].node.labels.items() for n in others.tolist())

    def _any_closed(self, inside: Mask, workload: Workload, row: Assignment) -> bool:
        """Whether one of these nodes (N) is closed to the pods for a moment, or by a taint: nobody says who will land
        there when it opens.
        """
        frame, pod_set = self._board.frame, set_named(workload, row.pod_set)
        closed = inside & frame.in_flavor[row.flavor] & ~frame.open_to(pod_set, row.flavor)
        states = self._board.snapshot.nodes
        return any(states[n].node.is_meant(pod_set.terms) for n in np.flatnonzero(closed).tolist())

    def _alone(self, workload: Workload, groups: Sequence[Group]) -> bool:
        around = self._around
        if self._near(groups) != [workload.uid] or around.landing_near(groups) or around.held_near(groups):
            return False
        return not self._bound_to_nodes(workload) and all(
            self._ask.lands(g, groups, self._free) for g in groups
        )

    def _bound_to_nodes(self, workload: Workload) -> bool:
        """Whether other nodes than those of its place may be closed to it."""
        return workload.uid in self._board.avoiding or bool(self._board.horizons)

    def _selector(self, workload: Workload, row: Assignment) -> dict[str, str]:
        """Labels of the flavor and of the required levels."""
        frame, topology = self._board.frame, self._board.snapshot.topology
        selector = dict(frame.flavors[row.flavor].node_labels)
        labels = self._board.snapshot.nodes[frame.index[next(iter(row.nodes))]].node.labels
        for level in (workload.required, set_named(workload, row.pod_set).required):
            at = topology.find(level) if level else None
            if at is not None and (key := topology.keys[at]) in labels:
                selector[key] = labels[key]
        return selector


def _ahead(order: Iterable[Chosen], late: Sequence[Chosen]) -> list[Chosen]:
    """The late before all others that spread over hosts."""
    first = {c.gang.uid for c in late}
    return sorted(order, key=lambda c: (_spreads(c), c.gang.uid not in first))


def _not_waiting(group: Group, rivals: Iterable[Group]) -> list[Group]:
    """Those that may come before this group does."""
    return [rival for rival in rivals if not waits_for(rival.turn, group.turn)]


def _uids(order: Iterable[Chosen]) -> tuple[str, ...]:
    return tuple(one.gang.uid for one in order)


def _spreads(chosen: Chosen) -> bool:
    return max(len(s) for s in chosen.spreads.values()) > 1
