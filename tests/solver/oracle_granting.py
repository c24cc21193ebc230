"""Brute force of what a gang has reserved by DESIGN 3.4: whether no more than capacity is in its way, when it is to
start and where. It says nothing of turns: see `oracle_reservations`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from math import inf

from queuer.domain.workload import Workload
from queuer.solver.problem import Plan, Reservation, Snapshot
from queuer.solver.verify.quota import Uses, amounts_of, broken_limits
from tests.solver.oracle_places import Kept, Layout, Placing, Rank, Ranked, lasts, plain, smallest
from tests.solver.oracle_room import Place, Turn, place_of, sized, taken


def flavors_of(reservation: Reservation) -> dict[str, str]:
    """Flavors by pod set."""
    return {row.pod_set: row.flavor for row in reservation.assignments}


class Granting(Placing):
    """What is reserved for whom, as things lie at one moment of the tournament."""

    def __init__(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        super().__init__(snapshot, now, plan)
        self.workloads = {p.workload.uid: p.workload for p in snapshot.pending}

    def turn_of(self, workload: Workload, flavors: Mapping[str, str], *, bound: bool) -> Ranked:
        return Ranked(
            workload=workload,
            flavors=flavors,
            bound=bound,
            rank=self._rank_of(workload, flavors),
            ends=inf if bound else self.now + lasts(workload),
        )

    def _rank_of(self, workload: Workload, flavors: Mapping[str, str]) -> Rank:
        asks = amounts_of(workload, {p.name: p.count for p in workload.pod_sets}, flavors)
        use = self.claimed()
        path = self.snapshot.tree.lineage(workload.queue)
        entitled = any(use.entitled(workload.queue, asks, at=a) for a in path if a != "root")
        return (entitled, workload.priority)

    # Who may have a reservation

    def _most(self, workload: Workload) -> int:
        return self.snapshot.tree.policy(workload.queue).reservations or 0

    def _patient(self, workload: Workload) -> bool:
        most = self.snapshot.tree.policy(workload.queue).max_wait
        return most is not None and self.now - workload.submitted >= most

    def _by_capacity(self, workload: Workload) -> bool:
        return bool(list(self._allowed(workload)))

    def _allowed(self, workload: Workload) -> Iterator[Ranked]:
        """Its flavors, as far as written quota permits them and there is a reservation left for them."""
        least = smallest(workload)
        for flavors in self.flavor_choices(workload):
            turn = self.turn_of(least, flavors, bound=False)
            if self._permitted(turn):
                yield turn

    def _permitted(self, turn: Turn) -> bool:
        """Whether no more than capacity is in its way."""
        leaf = turn.workload.queue
        if not turn.workload.preemptible and not self.claimed().entitled(leaf, turn.asks, at=leaf):
            return False
        return self._written(self.use(), turn) and self._written(self._with_bonds(), turn)

    def _left(self, workload: Workload, *, without: Container[str] = ()) -> bool:
        """Whether its flavors have a reservation left."""
        allowed = {f for choice in self.flavor_choices(workload) for f in choice.values()}
        taken = [set(one.flavors.values()) for uid, one in self.kept.items() if uid not in without]
        return max((sum(f in t for t in taken) for f in allowed), default=0) < self._most(workload)

    def _ousted(self, workload: Workload) -> list[str] | None:
        """Whose lapsed holds must end for it to have one: as few of the last as will do. It must outrank their owners
        with all its flavors. None = it has none even so.
        """
        uses = {f for choice in self.flavor_choices(workload) for f in choice.values()}
        least = min(turn.rank for turn in self._allowed(workload))
        below = [
            uid
            for uid, k in self.kept.items()
            if k.lapsed and k.rank < least and uses & {*k.flavors.values()}
        ]
        for many in range(len(below) + 1):
            ousted = below[len(below) - many :]
            if self._left(workload, without=ousted):
                return ousted
        return None

    def _with_bonds(self) -> Uses:
        """Use once all victims have gone."""
        use = self.later(self.gone)
        for turn in self.settled:
            if turn.bound:
                use.count(turn.workload.queue, turn.asks)
        return use

    def _written(self, use: Uses, turn: Turn) -> bool:
        """Whether it fits in all limits but root's, which is the live capacity in these worlds."""
        return all(text.startswith("root:") for text in self._broken(use, turn))

    def _broken(self, use: Uses, turn: Turn) -> list[str]:
        after = use.copy()
        after.count(turn.workload.queue, turn.asks)
        broken = broken_limits(use, after, [(turn.workload.queue, turn.asks)])
        return [text for _, text in broken]

    def _has_quota_after(self, ended: Container[str], turn: Turn) -> bool:
        """Whether all limits bear it once these have ended, too: beside who leaves anyway and is still there, and then
        beside who is bound. Nobody whose bond is of an earlier cycle counts together with those for whom it waits.
        """
        gone = [uid for uid in self.admitted if uid in ended or uid in self.gone]
        before = self.use(without=[*gone, *(self.leaving() - self.vacating())], started=False)
        after = self.later(gone, started=False)
        for held in self.held.values():
            if not held.victims & self.vacating() - set(gone):
                before.count(held.turn.workload.queue, held.turn.asks)
        for one in self.settled:
            if one.workload.uid not in ended:
                after.count(one.workload.queue, one.asks)
                before.count(one.workload.queue, one.asks)
        return not (self._broken(before, turn) or self._broken(after, turn))

    # What is reserved

    def _granted(self, workload: Workload) -> Iterator[Kept | None]:
        for layout in self._layouts():
            yield from self._granted_in(workload, layout)

    def _granted_in(self, workload: Workload, layout: Layout) -> Iterator[Kept | None]:
        found = self._earliest(workload, layout)
        if found is not None:
            start, turn, places = found
            for place in places:
                expires = start + max(300.0, start - self.now)
                yield self._hold(turn, place, layout, start=start, expires=expires)
        elif self._patient(workload) and (later := self._soonest(workload, layout)) is not None:
            yield from self._held_on(*later, layout)
        else:
            yield None

    def _held_on(self, turn: Ranked, places: Iterable[Place], layout: Layout) -> Iterator[Kept]:
        """From now on."""
        wait = self.snapshot.tree.policy(turn.workload.queue).max_wait or 0.0
        for place in places:
            yield self._hold(turn, place, layout, start=self.now, expires=self.now + max(300.0, wait))

    def _renewed(self, old: Reservation, held: Kept | None) -> Iterator[Kept | None]:
        """`held`: where it may stay; it is not in force."""
        workload = self.workloads[old.uid]
        for layout in self._layouts():
            found = self._earliest(workload, layout)
            if held is not None and (found is None or self._no_later(old, held, found[0], layout)):
                yield held
            elif found is None:
                yield from self._granted_in(workload, layout)
            elif self._patient(workload) and found[0] > old.start:
                yield from self._held_on(*found[1:], layout)
            else:
                start, turn, places = found
                for place in places:
                    yield self._hold(
                        turn, place, layout, start=start, expires=max(old.expires, start + 300.0)
                    )

    def _no_later(self, old: Reservation, held: Kept, other: float, layout: Layout) -> bool:
        """Whether it comes no later: at its time, or where that has come when its place is whole."""
        stood = self._restored(old, self.workloads[old.uid])
        return (
            held.start <= other
            if held.start > self.now
            else stood is not None and self._whole_by(other, *stood, layout)
        )

    def _whole_by(self, time: float, turn: Ranked, place: Place, layout: Layout) -> bool:
        """Whether nodes and limits bear it there once all have ended that do by then."""
        ended = {uid for end, _, uid, _ in self._ends(layout) if end <= time}
        free = self._free_after(layout, ended)
        asked = taken(turn.workload, place)
        room = all(free[name].get(r, 0) >= n for name, row in asked.items() for r, n in row.items())
        return room and self._has_quota_after(ended, turn)

    def _restored(self, old: Reservation, workload: Workload) -> tuple[Ranked, Place] | None:
        place = place_of(old.assignments)
        counts = {name: sum(nodes.values()) for name, nodes in place.items()}
        for p in workload.pod_sets:
            if not (p.min_count or p.count) <= counts.get(p.name, 0) <= p.count:
                return None
        flavors = flavors_of(old)
        if flavors not in list(self.flavor_choices(workload)):
            return None
        turn = self.turn_of(sized(workload, counts), flavors, bound=False)
        return (turn, place) if self.as_asked(turn, place) else None

    def _hold(self, turn: Ranked, place: Place, layout: Layout, *, start: float, expires: float) -> Kept:
        asked = taken(turn.workload, place)
        return Kept(
            uid=turn.workload.uid,
            start=start,
            expires=expires,
            flavors=turn.flavors,
            place=plain(place),
            taken=asked,
            rank=turn.rank,
            since=len(self.settled),
            layout=layout,
            over=self._left_over(asked, layout) if start <= self.now else {},
        )

    def _left_over(
        self, asked: Mapping[str, Mapping[str, int]], layout: Layout
    ) -> Mapping[str, Mapping[str, int]]:
        """What these nodes have more than is asked for after the first end after which all have enough, if ever."""
        ends = sorted(self._ends(layout), key=lambda end: end[:3])
        for step in range(len(ends) + 1):
            free = self._free_after(layout, {end[2] for end in ends[:step]})
            over = {
                name: {r: free[name].get(r, 0) - n for r, n in row.items()} for name, row in asked.items()
            }
            if all(n >= 0 for row in over.values() for n in row.values()):
                return over
        return {}

    # When and where

    def _earliest(self, workload: Workload, layout: Layout) -> tuple[float, Ranked, list[Place]] | None:
        """The first end after which it fits, and every narrowest place then."""
        best: tuple[float, Ranked, list[Place]] | None = None
        times = sorted({t for t, *_ in self._ends(layout) if t < inf})
        for turn in self._allowed(workload):
            for time in times:
                if best is not None and time >= best[0]:
                    break
                ended = {uid for end, _, uid, _ in self._ends(layout) if end <= time}
                places = self._narrowest(turn, self._free_after(layout, ended))
                if places and self._has_quota_after(ended, turn):
                    best = (time, turn, places)
                    break
        return best

    def _soonest(self, workload: Workload, layout: Layout) -> tuple[Ranked, list[Place]] | None:
        """The same with work ending that says nothing, the longest running first."""
        ends = sorted(self._ends(layout), key=lambda end: end[:3])
        known = sum(end[0] < inf for end in ends)
        for turn in self._allowed(workload):
            for step in range(known + 1, len(ends) + 1):
                ended = {end[2] for end in ends[:step]}
                places = self._narrowest(turn, self._free_after(layout, ended))
                if places and self._has_quota_after(ended, turn):
                    return turn, places
        return None
