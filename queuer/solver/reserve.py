"""Reservations: the earliest time at which a gang that is blocked by capacity alone fits, held for it.

A hold is the same with start = now, for who has waited `maxWait`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from heapq import merge
from math import inf
from typing import NamedTuple

import numpy as np

from queuer.domain.assignments import Bond, Reservation
from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.solver.arrays import Arrays
from queuer.solver.bonds import restored, resume
from queuer.solver.ends import end_of, expected_end
from queuer.solver.nodes import Matrix, Rows, added, fits
from queuer.solver.order import by_right
from queuer.solver.placement import Spreads, Variant, parts_of, place
from queuer.solver.shapes import Gang, GangShape
from queuer.solver.slots import Room
from queuer.solver.state import Reserved, Settled, State

LEAST = 300.0
"""Seconds that a reservation outlives its start at least."""
TRIED = 16
"""Gangs for which a reservation is looked for in one cycle."""


class Reserver:
    """Keeps, renews and grants the reservations of one cycle."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known_timeline: Timeline | None = None
        self._idle = Usage(state.book)
        self._could_hold = cache(self._find_could_hold)
        self._tried, self._had = 0, Counter[tuple[str, frozenset[str]]]()
        self._looked = Counter[int]()  # by shape
        self._had_all = (-1, False)  # after so many reservings
        self._standing = frozenset[str]()  # uids with a reservation before the first turn

    def resume(self) -> None:
        """Put the standing reservations into the state. One stays where it was unless its placement or time is lost, or
        an earlier time has come into reach.
        """
        for old in self._state.snapshot.reservations:
            gang = self._state.arrays.waiting.gangs.get(old.uid)
            if gang is None or old.uid in self._state.settled or old.expires <= self._state.time:
                continue
            if not self._keep(gang, old):
                self._grant(gang, self._choices(gang), expires=old.expires)
        self._standing = frozenset(self._state.reserved)

    def finish(
        self, lines: Iterable[Sequence[Gang]], blocked: Callable[[Gang], bool]
    ) -> tuple[Reservation, ...]:
        """Renew what was lost to others in this cycle, then reserve for blocked gangs that had no turn of their own."""
        state = self._state
        self._known_timeline = None
        for uid, reserved in list(state.reserved.items()):
            if uid in state.settled:
                state.release(uid)
            elif not reserved.intact:
                state.release(uid)
                gang = reserved.settled.gang
                self._grant(gang, self._choices(gang), expires=reserved.reservation.expires)
        for gang in self._in_order(lines, blocked):
            if self._tried >= TRIED or self._all_had():
                break
            self._reserve_for(gang)
        return tuple(reserved.reservation for reserved in state.reserved.values())

    def wants(self, gang: Gang) -> bool:
        """Whether a reservation is still to be looked for at the gang's turn, if capacity alone blocks it."""
        return (
            self._tried < TRIED
            and not self._all_had()
            and self._looked[gang.shape.number] < self._most(gang.queue)
            and gang.uid not in self._state.reserved
        )

    def at_turn(self, gang: Gang) -> None:
        """Reserve for a gang that wants it and is blocked, so that no later turn of this cycle delays it."""
        self._looked[gang.shape.number] += 1
        self._known_timeline = None
        self._reserve_for(gang)

    def forget(self) -> None:
        """All turns come again: release what was granted at a turn."""
        for uid in self._state.reserved.keys() - self._standing:
            self._state.release(uid)
        self._known_timeline = None
        self._tried = 0
        self._had.clear()
        self._looked.clear()

    def _reserve_for(self, gang: Gang) -> None:
        choices = self._choices(gang)
        whose = gang.queue, frozenset(f for variant, _ in choices for f in variant.flavors.values())
        if choices and self._had[whose] < self._most(gang.queue):
            self._tried += 1
            self._grant(gang, choices)
            self._had[whose] += gang.uid in self._state.reserved

    def _choices(self, gang: Gang) -> list[tuple[Variant, Charge]]:
        """Its flavors, at its smallest size, that have a reservation left for it and could hold it."""
        return [
            (variant, charge)
            for number, (variant, charge) in enumerate(gang.shape.least)
            if self._may_have(gang.queue, variant)
            and self._permitted(gang, charge)
            and self._could_hold(gang.shape, number)
        ]

    def _may_have(self, queue: str, variant: Variant) -> bool:
        """Whether each of these flavors has fewer reservations than the policy wants."""
        most, there = self._most(queue), self._there()
        return all(there[flavor] < most for flavor in variant.flavors.values())

    def _there(self) -> Counter[str]:
        """Reservations by flavor."""
        reserved = self._state.reserved.values()
        return Counter(f for r in reserved for f in set(r.settled.variant.flavors.values()))

    def _most(self, queue: str) -> int:
        return self._state.book.tree.policy(queue).reservations or 0

    # Candidates

    def _in_order(self, lines: Iterable[Sequence[Gang]], blocked: Callable[[Gang], bool]) -> Iterator[Gang]:
        """The blocked ones that have none, leaf by leaf in the order in which they get one."""
        heads = (self._blocked_of(line, blocked) for line in lines)
        return merge(*heads, key=lambda gang: by_right(gang, self._state.claimed))

    def _blocked_of(self, line: Sequence[Gang], blocked: Callable[[Gang], bool]) -> Iterator[Gang]:
        """Of each shape in a leaf as many as may have one."""
        most, there = self._most(line[0].queue), Counter[int]()
        for gang in line if most else ():
            number = gang.shape.number
            if there[number] < most and gang.uid not in self._state.reserved and blocked(gang):
                there[number] += 1
                yield gang

    def _all_had(self) -> bool:
        """Whether no flavor has a reservation left for anybody."""
        if self._had_all[0] != self._state.reservings:
            most, there = (
                max((self._most(leaf) for leaf in self._state.book.tree.leaves), default=0),
                self._there(),
            )
            had = all(there[flavor] >= most for flavor in self._state.nodes.flavors)
            self._had_all = (self._state.reservings, had)
        return self._had_all[1]

    @cached_property
    def _emptied(self) -> Room:
        """The room once all running work has ended."""
        free = self._state.nodes.bound_free.copy()
        for run in self._state.running.values():
            for node, row in run.rows.items():
                free[node] += row
        return Room(self._state.nodes, free)

    def _find_could_hold(self, shape: GangShape, number: int) -> bool:
        """Whether such a gang has a placement in one of its variants, if nothing else ran and all nodes were well."""
        parts = parts_of(self._state.nodes, shape.example, shape.least[number][0], idle=True)
        return place(self._emptied, shape.example, parts) is not None

    # One reservation

    def _keep(self, gang: Gang, old: Reservation) -> bool:
        """Leave it where it is, if its placement will still be free by then, and not a step earlier elsewhere."""
        settled = restored(self._state, gang, old.assignments)
        if settled is None or not self._may_have(gang.queue, settled.variant):
            return False
        if not self._permitted(gang, settled.charge):
            return False
        if old.start > self._state.time:
            line, rows = self._timeline, self._state.rows(settled)
            free = self._beside(line.free(line.step_at(old.start)))
            if not fits(free, rows):
                return False
            sooner = line.step_before(old.start)
            if sooner and self._place(gang, settled.variant, self._beside(line.free(sooner))):
                return False
        self._reserve(settled, start=old.start, expires=old.expires)
        return True

    def _grant(self, gang: Gang, choices: Sequence[tuple[Variant, Charge]], *, expires: float = 0.0) -> None:
        """The earliest time, then the narrowest domain, over these flavors. A gang that has waited `maxWait` holds its
        place from now on. Where no end is known, the longest running work is taken to end first.
        """
        state, line, best = self._state, self._timeline, None
        most = state.book.tree.policy(gang.queue).max_wait
        patient = most is not None and state.time - gang.workload.submitted >= most
        for variant, charge in choices:
            found = self._earliest(gang, variant, high=line.steps if patient else len(line.times))
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, variant, charge)
        if best is None:
            return
        step, spreads, variant, charge = best
        settled = Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)
        start = state.time if patient else line.times[step - 1]
        lasts = max(LEAST, most or 0.0 if patient else start - state.time)
        self._reserve(settled, start=start, expires=max(expires, start + lasts))

    def _permitted(self, gang: Gang, charge: Charge) -> bool:
        """Whether quota lets it start. The live capacity is no matter of quota, unless nothing runs."""
        state = self._state
        bears = all(usage.fits(gang.queue, charge, live=False) for usage in state.usages())
        return self._idle.fits(gang.queue, charge) and bears and gang.may_take(charge, state.claimed)

    def _reserve(self, settled: Settled, *, start: float, expires: float) -> None:
        state, gang = self._state, settled.gang
        rows = state.rows(settled)
        free = state.free_now
        if start > state.time:
            free = self._beside(self._timeline.free(self._timeline.step_at(start)))
        spare = {node: free[node] - row for node, row in rows.items()}
        state.reserve(
            Reserved(
                reservation=Reservation(
                    uid=gang.uid,
                    assignments=settled.pinned(state.nodes),
                    start=start,
                    expires=expires,
                ),
                settled=settled,
                rank=state.rank(gang, settled.charge),
                takes=rows,
                spare=spare,
                lacks={node: np.minimum(left, 0) for node, left in spare.items()},
            )
        )

    # Where and when

    @property
    def _timeline(self) -> Timeline:
        if self._known_timeline is None:
            self._known_timeline = Timeline(self._state)
        return self._known_timeline

    def _beside(self, free: Matrix) -> Matrix:
        """`free` with the gangs of all reservations in place."""
        for reserved in self._state.reserved.values():
            for node, row in reserved.takes.items():
                free[node] -= row
        return free

    def _earliest(self, gang: Gang, variant: Variant, *, high: int) -> tuple[int, Spreads] | None:
        """The first step, from 1 to `high`, at which the gang fits, and its placement then."""
        best: tuple[int, Spreads] | None = None
        low, step = 1, high
        while low <= high:
            found = self._place(gang, variant, self._beside(self._timeline.free(step)))
            if found is not None:
                best, high = (step, found), step - 1
            elif best is None:
                return None
            else:
                low = step + 1
            step = (low + high) // 2
        return best

    def _place(self, gang: Gang, variant: Variant, free: Matrix) -> Spreads | None:
        room = Room(self._state.nodes, free)
        parts = parts_of(self._state.nodes, gang.workload, variant)
        return place(room, gang.workload, parts, closed=self._state.closed(gang))


class Resumed(NamedTuple):
    """The state in which a cycle begins: with the bonds and reservations that the one before left.

    `bonds`: bonds that hold still, by uid; the others have started, or have ended.
    """

    state: State
    bonds: dict[str, Bond]
    reserver: Reserver

    @classmethod
    def of(cls, arrays: Arrays, *, time: float) -> Resumed:
        """On these arrays."""
        state = State(arrays, time=time)
        bonds, reserver = resume(state), Reserver(state)
        reserver.resume()
        return cls(state, bonds, reserver)


class Timeline:
    """Ends in order: known ones by time, then the unknown ones, the longest running first. A *step* is a number of
    ends: at step 3 the first three have come. `times`: when the known ones do; `steps`: how many there are in all.

    It is of the moment at which it was made: victims have gone, bound gangs and this cycle's starts are in place.
    """

    def __init__(self, state: State) -> None:
        ends: list[tuple[float, float, str, Rows]] = [
            (expected_end(run.admitted, now=state.time), run.admitted.since, uid, state.rows_of(uid))
            for uid, run in state.running.items()
            if uid not in state.leaving
        ]
        for uid, settled in state.settled.items():
            if not settled.bound:
                end = end_of(settled.gang.workload, start=state.time)
                ends.append((inf if end is None else end, state.time, uid, state.rows(settled)))
        ends.sort(key=lambda end: end[:3])
        self.times = [end[0] for end in ends if end[0] < inf]
        self.steps = len(ends)
        self._began = state.free_later.copy()
        self._lengths = np.cumsum([0, *(len(end[3]) for end in ends)])
        self._nodes = np.array([node for end in ends for node in end[3]], dtype=np.intp)
        amounts = [np.zeros(0, dtype=np.int64), *(row for end in ends for row in end[3].values())]
        self._amounts = np.concatenate(amounts).reshape(-1, self._began.shape[1])

    def step_at(self, time: float) -> int:
        """How many have ended by then."""
        return bisect_right(self.times, time)

    def step_before(self, time: float) -> int:
        """How many have ended earlier."""
        return bisect_left(self.times, time)

    def free(self, step: int) -> Matrix:
        """The free amounts at a step (N x R), a new matrix."""
        length = self._lengths[step]
        return added(self._began.copy(), self._nodes[:length], self._amounts[:length])
