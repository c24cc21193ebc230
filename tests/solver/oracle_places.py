"""Brute force of places for `oracle_granting`: where gangs can lie beside each other, at which time, and what
reservations keep from them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from math import inf

from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, Plan, Snapshot
from tests.solver.oracle import Oracle
from tests.solver.oracle_landing import all_land
from tests.solver.oracle_needed import Taken
from tests.solver.oracle_room import Free, Place, Turn, add, lands, place_of, sized, taken

LAYOUTS = 200
"""Arrangements of what has started that are looked at for one reservation."""
WORK = 400_000
"""Pods laid for one plan, after which nothing is said."""
Layout = Mapping[str, Place]
"""Places by uid."""
Rank = tuple[bool, int]


class GivenUp(Exception):
    """There is too much to try."""


class Victims(StrEnum):
    """Whose work is lost at a turn: the cheapest set; that of the plan; those settled before and the cheapest of its
    own. All may be replaced at the end; how cheap a plan is then `oracle` judges, without reservations.
    """

    CHEAPEST = "cheapest"
    PLANNED = "planned"
    MORE = "more"


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranked(Turn):
    """A settled gang with what it may displace, and when it ends. `workload`: at the size that was settled."""

    rank: Rank
    ends: float


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A reservation in force. `since`: how many were settled before; `layout`: where they lay; `lapsed`: it follows a
    hold that has expired, and its gang has had no turn yet. `over`: what the nodes of a hold will have more than it
    takes once those have ended for whom it waits.
    """

    uid: str
    start: float
    expires: float
    flavors: Mapping[str, str]
    place: Place
    taken: Mapping[str, Mapping[str, int]]
    rank: Rank
    since: int = 0
    layout: Layout = field(default_factory=dict)
    lapsed: bool = False
    over: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def told(self) -> object:
        """What a plan says of it."""
        return (self.uid, self.start, self.expires, sorted(self.flavors.items()), plain(self.place))


def plain(place: Place) -> dict[str, dict[str, int]]:
    """A place to be compared."""
    return {name: {n: c for n, c in sorted(nodes.items()) if c} for name, nodes in sorted(place.items())}


def smallest(workload: Workload) -> Workload:
    """The gang at its smallest size."""
    return sized(workload, {p.name: p.min_count or p.count for p in workload.pod_sets})


def end_of(admitted: Admitted, now: float) -> float:
    """When admitted work is expected to end."""
    if admitted.releasing:
        return now + 60.0 if admitted.gone_by is None or admitted.gone_by <= now else admitted.gone_by
    end = inf if admitted.expected_end is None else admitted.expected_end
    while end <= now:
        end = max(end + 60.0, end + (end - admitted.since) / 2)
    return end


def lasts(workload: Workload) -> float:
    """How long a gang runs."""
    return min((t for t in (workload.estimate, workload.max_runtime) if t is not None), default=inf)


class Placing(Oracle):
    """The tournament with reservations in force, `kept`, as far as nodes go. `plan`: whose places are tried first."""

    def __init__(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        super().__init__(snapshot, now)
        self.plan = plan
        self.kept: dict[str, Kept] = {}
        self.strict = self.landing = False
        self.lost = Victims.CHEAPEST
        self._planned = {a.uid: a.assignments for a in plan.admissions}
        self._planned |= {b.uid: b.assignments for b in plan.bonds}
        self._told = {r.uid: r for r in plan.reservations}
        self._sheets: dict[str, Free] = {}
        self._going: Sequence[str] = ()
        self._work = 0

    def _ends(self, layout: Layout) -> list[tuple[float, float, str, Mapping[str, Mapping[str, int]]]]:
        found = [
            (end_of(a, self.now), a.since, uid, a.bound)
            for uid, a in self.admitted.items()
            if uid not in self.gone and uid not in self.leaving() - self.vacating()
        ]
        for turn in self.settled:
            if not turn.bound:
                rows = taken(turn.workload, layout[turn.workload.uid])
                found.append((self.now + lasts(turn.workload), self.now, turn.workload.uid, rows))
        return found

    def _free_after(self, layout: Layout, ended: Container[str]) -> Free:
        """What is free once these have ended, beside all other reservations."""
        free = self._free_before(self.gone)
        for turn in self.settled:
            add(free, taken(turn.workload, layout[turn.workload.uid]), times=-1)
        for end in self._ends(layout):
            if end[2] in ended:
                add(free, end[3])
        for one in self.kept.values():
            add(free, one.taken, times=-1)
        return free

    def _free_before(self, gone: Sequence[str]) -> Free:
        """What is free once these have gone, and victims of bonds, but not yet who leaves anyway."""
        free = self.free_later(gone)
        for uid in self.vacating() - set(gone):
            add(free, self.admitted[uid].bound, times=-1)
        return free

    def _layouts(self) -> Iterator[Layout]:
        """Arrangements of what is settled, that of the plan first."""
        mine = {t.workload.uid: place_of(self._planned[t.workload.uid]) for t in self.settled}
        yield mine
        for one in islice(self._all_layouts(0, {}, self.free_now(), self.free_later(self.gone)), LAYOUTS):
            if one != mine:
                yield one

    def _all_layouts(self, at: int, done: Mapping[str, Place], now: Free, later: Free) -> Iterator[Layout]:
        if at == len(self.settled):
            yield dict(done)
            return
        turn = self.settled[at]
        sheets = [later] if turn.bound else [now, later]
        least = {name: {r: min(f[name].get(r, 0) for f in sheets) for r in now[name]} for name in now}
        for place in list(self._places(turn, least)):
            for sheet in sheets:
                add(sheet, taken(turn.workload, place), times=-1)
            yield from self._all_layouts(at + 1, {**done, turn.workload.uid: place}, now, later)
            for sheet in sheets:
                add(sheet, taken(turn.workload, place))

    def _narrowest(self, turn: Turn, free: Free) -> list[Place]:
        """Places of the least width, where a level is required; the one in the plan first."""
        found = [plain(p) for p in self._places(turn, free)]
        if found and turn.workload.required is not None:
            least = min(self._width(p) for p in found)
            found = [p for p in found if self._width(p) == least]
        told = self._told.get(turn.workload.uid)
        mine = None if told is None else plain(place_of(told.assignments))
        return sorted(found, key=lambda p: p != mine)

    def _width(self, place: Place) -> int:
        """0 = one host, 1 = one domain of the next level, and so on."""
        topology = self.snapshot.topology
        nodes = {s.node.name: s.node for s in self.snapshot.nodes}
        names = {name for row in place.values() for name in row}
        for width, level in enumerate(reversed(topology.levels)):
            index = topology.find(level)
            assert index is not None
            domains = {topology.domain(nodes[n], index) for n in names}
            if len(domains) == 1 and None not in domains:
                return width
        return len(topology.levels)

    def _places(self, turn: Turn, free: Free) -> Iterator[Place]:
        """Every place on what is free."""
        left = {name: dict(amounts) for name, amounts in free.items()}
        for scope in self._scopes(turn):
            for place in self._lay(turn.workload, scope, left, {}, 0, 0):
                if lands(turn.workload, place, free, scope):
                    yield place

    def _lay(
        self,
        workload: Workload,
        scope: Mapping[str, Sequence[str]],
        left: Free,
        done: Mapping[str, Mapping[str, int]],
        which: int,
        first: int,
    ) -> Iterator[Place]:
        if which == len(workload.pod_sets):
            yield done
            return
        pod_set = workload.pod_sets[which]
        mine = done.get(pod_set.name, {})
        if sum(mine.values()) == pod_set.count:
            yield from self._lay(workload, scope, left, {pod_set.name: mine, **done}, which + 1, 0)
            return
        for i, name in enumerate(scope[pod_set.name]):
            if i < first or any(left[name].get(r, 0) < n for r, n in pod_set.requests.items() if n):
                continue
            add(left, {name: pod_set.requests}, times=-1)
            more = {**done, pod_set.name: {**mine, name: mine.get(name, 0) + 1}}
            yield from self._lay(workload, scope, left, more, which, i + pod_set.exclusive_host)
            add(left, {name: pod_set.requests})

    def least(self, everyone: Sequence[Turn]) -> tuple[str, ...] | None:
        """See `Victims`; the cheapest where those are not enough."""
        found = None
        if self.lost is Victims.PLANNED:
            uids = {turn.workload.uid for turn in everyone}
            gone = tuple(e.uid for e in self.plan.evictions if e.beneficiary in uids)
            found = gone if self.arranged(everyone, gone) else None
        elif self.lost is Victims.MORE:
            own = {uid for uid, _, _ in self.permitted[everyone[-1].workload.uid]}
            more = (g for g in self.victim_sets(everyone) if set(self.gone) <= set(g) <= own | set(self.gone))
            found = next((gone for gone in more if self.arranged(everyone, gone)), None)
        return super().least(everyone) if found is None else found

    def _place(self, everyone: Sequence[Turn], at: int, now: Free, later: Free) -> bool:
        found = super()._place(everyone, at, now, later)
        return found and (not self.landing or at < len(everyone) or self._land(everyone))

    def _land(self, everyone: Sequence[Turn]) -> bool:
        """Whether all land where they have been laid (3.5)."""
        layout = {turn.workload.uid: self.place(turn.workload.uid) for turn in everyone}
        return all_land(self, everyone, layout, self._going)

    # What reservations keep from settled gangs

    def _lacking(self, so_far: Sequence[Turn], places: Taken, gone: Collection[str]) -> set[object]:
        """See `Needing`; and what those whom a reservation binds do not leave of it."""
        found = super()._lacking(so_far, places, gone)
        for held in self.kept.values():
            free = self._at_start(held, [*gone])
            for turn in so_far:
                assert isinstance(turn, Ranked)
                if turn.ends > held.start:
                    add(free, places[turn.workload.uid], times=-1)
            there = [places[t.workload.uid] for n, t in enumerate(so_far) if self._binds(held, t, n)]
            found |= {
                (held.uid, name, r)
                for name, row in held.taken.items()
                for r, n in row.items()
                if any(name in place for place in there) and n > free[name].get(r, 0)
            }
        return found

    def _binds(self, held: Kept, turn: Turn, number: int) -> bool:
        """Whether the gang must leave the reservation whole, as it does not outrank it or was there before."""
        assert isinstance(turn, Ranked)
        mine = held.uid == turn.workload.uid
        before = len(self.settled) if self.strict else held.since
        return not mine and turn.ends > held.start and (turn.rank <= held.rank or number < before)

    def arranged(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool:
        """See `Oracle`; reservations are left whole by those whom they bind."""
        before = self._sheets, self._going
        self._sheets = {uid: self._at_start(one, gone) for uid, one in self.kept.items()}
        self._going = gone
        found = super().arranged(everyone, gone)
        self._sheets, self._going = before
        return found

    def _at_start(self, held: Kept, gone: Sequence[str]) -> Free:
        free = self._free_before(gone)
        still = self.admitted.keys() - set(gone) - (self.leaving() - self.vacating())
        for uid in still:
            a = self.admitted[uid]
            if end_of(a, self.now) <= held.start:
                add(free, a.bound)
        return free

    def _bears(
        self,
        everyone: Sequence[Turn],
        at: int,
        name: str,
        requests: Mapping[str, int],
        sheets: Sequence[Free],
    ) -> bool:
        turn = everyone[at]
        self._work += 1
        if self._work > WORK:
            raise GivenUp
        if not super()._bears(everyone, at, name, requests, sheets):
            return False
        binding = [one for one in self.kept.values() if self._binds(one, turn, at)]
        for held in binding:
            if name not in held.taken or (held.start <= self.now and self._lay_there(held, turn, name)):
                continue
            there = [o for o in binding if o is held or o.start <= held.start]
            for r, n in requests.items():
                kept = sum(o.taken.get(name, {}).get(r, 0) for o in there)
                if n and self._sheets[held.uid][name].get(r, 0) - kept < n:
                    return False
        return True

    def _lay_there(self, held: Kept, turn: Turn, name: str) -> bool:
        """Whether one pod more lies where the gang lay when the place was held: that counts with it there."""
        place = held.layout.get(turn.workload.uid, {})
        laid = sum(node == name for _, node in self.laid.get(turn.workload.uid, ()))
        return laid < sum(nodes.get(name, 0) for nodes in place.values())

    def _spend(
        self, turn: Turn, name: str, pod_set: PodSet, sheets: Sequence[Free], *, times: int = 1
    ) -> None:
        super()._spend(turn, name, pod_set, sheets, times=times)
        assert isinstance(turn, Ranked)
        for uid, sheet in self._sheets.items():
            if uid != turn.workload.uid and turn.ends > self.kept[uid].start:
                add(sheet, {name: pod_set.requests}, times=-times)
