"""Brute force of the reservations of DESIGN 3.4 on small worlds: is there a run of the tournament, by the rules alone,
that comes to a given plan?

Which of several places of one width a reservation gets, and where gangs lie that have started by then, no rule says:
all of them are tried, those of the plan first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.problem import Plan, Reservation, Snapshot
from tests.solver.oracle import BOUND, STARTED, WAITING
from tests.solver.oracle_granting import Granting, flavors_of
from tests.solver.oracle_places import GivenUp, Kept, Layout, Ranked, Victims, lasts, plain, smallest
from tests.solver.oracle_room import Place, Turn, add, place_of, sized, taken


class Follower(Granting):
    """Follows a plan turn by turn. `wrong`: the farthest difference; `deferred`: how often an answer was put off."""

    def __init__(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        super().__init__(snapshot, now, plan)
        self.wrong: tuple[int, str] = (-1, "")
        self.deferred = 0
        self._planned_starts = {a.uid for a in plan.admissions}

    def agrees(self) -> bool | None:
        """Whether some run comes to the plan; None = too many to look at."""
        try:
            self.resume()
            for uid, flag in self.flags.items():
                if flag != self._told_flag(uid):
                    return self._miss(f"{uid} was bound and is {self._told_flag(uid)}, not {flag}")
            return self._stand(self._lasting())
        except GivenUp:
            return None

    def _miss(self, text: str) -> bool:
        self.wrong = max(self.wrong, (len(self.order), text))
        return False

    # The run

    def _lasting(self) -> list[Reservation]:
        """Reservations that have not ended, in the order in which none is lost to one of lower rank or a later one."""

        def order(old: Reservation) -> tuple[object, ...]:
            workload = self.workloads[old.uid]
            stood = self._restored(old, workload) if old.expires > self.now else None
            turns = [self.turn_of(smallest(workload), f, bound=False) for f in self.flavor_choices(workload)]
            entitled = any(t.rank[0] for t in (turns if stood is None else [stood[0]]))
            return (old.start <= self.now, not entitled, -workload.priority, workload.submitted)

        lasting = [r for r in self.snapshot.reservations if r.uid in self.workloads and self._lasts(r)]
        return sorted((r for r in lasting if self._most(self.workloads[r.uid])), key=order)

    def _lasts(self, old: Reservation) -> bool:
        """Whether it has not ended, or is a hold that another follows."""
        again = old.start <= self.now and self._patient(self.workloads[old.uid])
        return again or old.expires > self.now

    def _stand(self, olds: list[Reservation], at: int = 0) -> bool:
        """All that may stay where they are, before anybody looks for an earlier time."""
        if at == len(olds):
            return self._look(olds)
        old, workload = olds[at], self.workloads[olds[at].uid]
        stood = self._restored(old, workload)
        for layout in self._layouts():
            one = None
            if stood is not None and old.expires > self.now and self._stays(old, *stood, layout):
                one = self._hold(*stood, layout, start=old.start, expires=old.expires)
            if self._with(old.uid, one, lambda: self._stand(olds, at + 1)):
                return True
        return False

    def _stays(self, old: Reservation, turn: Ranked, place: Place, layout: Layout) -> bool:
        """Whether capacity alone is still in its way: until its time, but for its turn, or for too long."""
        if not self._permitted(turn):
            return False
        if old.start <= self.now and self._patient(turn.workload):
            return True
        return self._whole_by(old.start, turn, place, layout)

    def _look(self, olds: list[Reservation], at: int = 0) -> bool:
        if at == len(olds):
            return self._turns()
        old = olds[at]
        held = self.kept.pop(old.uid, None)
        found: Iterable[Kept | None] = self._renewed(old, held)
        if old.expires <= self.now:
            found = (one and replace(one, lapsed=True) for one in found)
        return any(self._with(old.uid, one, lambda: self._look(olds, at + 1)) for one in found)

    def _with(self, uid: str, one: Kept | None, then: Callable[[], bool]) -> bool:
        before = self.kept  # who yields what comes next reckons with it unchanged
        self.kept = {other: held for other, held in before.items() if other != uid}
        if one is not None:
            self.kept[uid] = one
        done = then()
        self.kept = before
        return done

    def _turns(self) -> bool:
        workload = self.next()
        if workload is None:
            return self._finish(list(self.kept))
        if self.plan.order[len(self.order)] != workload.uid:
            return self._miss(f"turn {len(self.order)} is {workload.uid}'s")
        with self._undone():
            self.order.append(workload.uid)
            return self._settle(workload)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        saved = (list(self.order), dict(self.flags), list(self.settled), self.gone, dict(self.kept))
        permitted = dict(self.permitted)
        yield
        self.order, self.flags, self.settled, self.gone, self.kept = saved
        self.permitted = permitted

    def _settle(self, workload: Workload) -> bool:
        uid = workload.uid
        if uid in self.kept:
            self.kept[uid] = replace(self.kept[uid], lapsed=False)
        got = self._told_flag(uid)
        tried = set()
        for self.lost in Victims:
            flag, turn, gone = self._owed(workload, got)
            if (flag, gone) in tried:
                continue
            tried.add((flag, gone))
            if got < flag and self._is_deferred(uid):
                self.deferred += 1
                flag, turn = WAITING, None
            if got != flag and (got, flag) != (STARTED, BOUND):  # it may start after all, see `_finish`
                self._miss(f"{uid} is {got}, not {flag} ({self.kept or 'no reservations'})")
                continue
            before = dict(self.kept)
            self.flags[uid] = flag
            if turn is not None and gone is not None:
                old = self.gone
                self.settled.append(turn)
                self.gone = gone
                self.kept.pop(uid, None)
                if self._turns():
                    return True
                self.settled.pop()
                self.gone = old
            elif any(self._with(uid, one, self._turns) for one in self._considered(workload)):
                return True
            self.kept = before
        return False

    def _owed(self, workload: Workload, got: int) -> tuple[int, Turn | None, tuple[str, ...] | None]:
        """What must become of it. At its own turn nobody leaves its reservation whole; nobody is owed a move that
        breaks one, nor a place in which not all land, nor one that is reserved still for whom others have displaced.
        """
        before = self.kept
        self.kept = {uid: one for uid, one in before.items() if uid != workload.uid}
        found = self._possible(workload)
        for self.strict, self.landing in ((True, False), (True, True)):
            if got < found[0]:
                found = self._possible(workload)
        if got > found[0]:
            self.strict = self.landing = False
            self.kept = self._undisplaced()
            found = self._possible(workload)
        self.kept, self.strict, self.landing = before, False, False
        return found

    def _told_flag(self, uid: str) -> int:
        return STARTED if uid in self._planned_starts else BOUND if uid in self._planned else WAITING

    def _is_deferred(self, uid: str) -> bool:
        told = self.plan.explanations.get(uid)
        return told is not None and told.primary.token is Token.SOLVER_DEFERRED

    def _possible(self, workload: Workload) -> tuple[int, Turn | None, tuple[str, ...] | None]:
        """What must become of it, at the flavors and the size that the plan has."""
        least = smallest(workload)
        for bound in (False, True):
            for flavors in self.flavor_choices(workload):
                turn = self.turn_of(least, flavors, bound=bound)
                gone = self.possible(turn)
                if gone is None:
                    continue
                flag = BOUND if bound else STARTED
                rows = self._planned.get(workload.uid)
                if rows is None or bound == (workload.uid in self._planned_starts):
                    return flag, turn, gone
                counts = {p.name: 0 for p in workload.pod_sets} | {r.pod_set: r.count for r in rows}
                large = self.turn_of(
                    sized(workload, counts), {r.pod_set: r.flavor for r in rows}, bound=bound
                )
                again = self.possible(large)
                if again is None:
                    self._miss(f"{workload.uid} is too large with {counts}")
                    return WAITING, None, None
                return flag, large, again
        return WAITING, None, None

    def _finish(self, left: list[str]) -> bool:
        """Reservations that others may have displaced are renewed."""
        if not left:
            if not self._upgraded():
                return self._miss("somebody who was bound could not start after all")
            if broken := [uid for uid, one in self.kept.items() if not self._is_whole(one)]:
                return self._miss(f"nobody moved what is reserved for {broken}")
            mine = sorted(map(str, (one.told() for one in self.kept.values())))
            told = [
                (r.uid, r.start, r.expires, sorted(flavors_of(r).items()), plain(place_of(r.assignments)))
                for r in self._told.values()
            ]
            open_ = bool(self.plan.evictions)  # whose victims left what at which turn, no plan tells
            return open_ or mine == sorted(map(str, told)) or self._miss(f"reserved {mine}, not {told}")
        uid, rest = left[0], left[1:]
        if self._finish(rest):
            return True
        if not self._displaceable(self.kept[uid]):
            return False
        held = self.kept.pop(uid)
        found = self._renewed(_as_reservation(held), None)
        done = any(self._with(uid, one, lambda: self._finish(rest)) for one in found)
        self.kept[uid] = held
        return done

    def _upgraded(self) -> bool:
        """Whether those who start though they were bound at their turn can: a reservation that was in their way may
        have ended since.
        """
        late = {
            t: self._started(t)
            for t in self.settled
            if t.bound and self._told_flag(t.workload.uid) == STARTED
        }
        everyone = [late.get(t, t) for t in self.settled]
        return not late or (all(map(self.has_quota, late)) and self.arranged(everyone, self.gone))

    def _started(self, turn: Turn) -> Ranked:
        assert isinstance(turn, Ranked)
        return replace(turn, bound=False, ends=self.now + lasts(turn.workload))

    def _undisplaced(self) -> dict[str, Kept]:
        """Those that are whole beside each other: the one of lower rank is not, else the later one."""
        before, self.kept = self.kept, {}
        for one in sorted(
            before.values(), key=lambda k: (k.start <= self.now, not k.rank[0], -k.rank[1], k.start)
        ):
            self.kept[one.uid] = one
            if not all(map(self._is_whole, self.kept.values())):
                del self.kept[one.uid]
        found, self.kept = self.kept, before
        return found

    def _is_whole(self, held: Kept) -> bool:
        """Whether its place, with those of all that start no later, is free at its start as the plan lies."""
        if held.start <= self.now:
            return self._leaves(held)
        free, layout = self._at_start(held, self.gone), next(self._layouts())
        for turn in self.settled:
            assert isinstance(turn, Ranked)
            if turn.ends > held.start:
                add(free, taken(turn.workload, layout[turn.workload.uid]), times=-1)
        for one in self.kept.values():
            if self.now < one.start <= held.start:
                add(free, one.taken, times=-1)
        return all(free[n].get(r, 0) >= 0 for n, amounts in held.taken.items() for r in amounts if amounts[r])

    def _leaves(self, held: Kept) -> bool:
        """Whether those who outrank it have left the place of a hold to it since it was made, now or once those have
        ended for whom it waits. What victims leave there is kept for it.
        """
        layout, free = next(self._layouts()), self._free_before(self.gone)
        came = {name: dict.fromkeys(amounts, 0) for name, amounts in free.items()}
        for turn in self.settled:
            assert isinstance(turn, Ranked)
            uid = turn.workload.uid
            add(free, taken(turn.workload, layout[uid]), times=-1)
            if turn.rank > held.rank:
                add(came, taken(turn.workload, layout[uid]))
                add(came, taken(turn.workload, held.layout.get(uid, {})), times=-1)
        return all(
            came[name].get(r, 0) <= held.over.get(name, {}).get(r, 0) or free[name].get(r, 0) >= n
            for name, row in held.taken.items()
            for r, n in row.items()
        )

    def _displaceable(self, held: Kept) -> bool:
        """Whether anybody settled since may lie on its place."""
        return any(
            not self._binds(held, turn, i) and turn.ends > held.start
            for i, turn in enumerate(self.settled)
            if isinstance(turn, Ranked)
        )

    def _considered(self, workload: Workload) -> Iterator[Kept | None]:
        """What a refused gang has then; None = nothing."""
        held = self.kept.get(workload.uid)
        if held is not None:
            yield held
            if self._displaceable(held):
                del self.kept[workload.uid]
                yield from self._renewed(_as_reservation(held), None)
                self.kept[workload.uid] = held
        elif self._by_capacity(workload) and (ousted := self._ousted(workload)) is not None:
            before, others = self.kept, {u: k for u, k in self.kept.items() if u not in ousted}
            self.kept = others
            for one in self._granted(workload):
                self.kept = before if one is None else others
                yield one
                self.kept = others
            self.kept = before
        else:
            yield None


def _as_reservation(held: Kept) -> Reservation:
    return Reservation(uid=held.uid, assignments=(), start=held.start, expires=held.expires)
