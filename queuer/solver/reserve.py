"""Reservations: the earliest time at which a gang that is blocked by capacity alone will fit, held for it. When it has
waited `maxWait` a place is held from now on: no end may be known, or work may outlive what was (DESIGN 3.4).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.domain.queue import ROOT
from queuer.domain.quota import Charge
from queuer.domain.reasons import Explanation
from queuer.solver.bonds import restored
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.floor import Floor
from queuer.solver.frame import Matrix
from queuer.solver.horizon import Horizon, intact
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.problem import Reservation
from queuer.solver.timeline import Timeline

LEAST = 300.0
"""Seconds that a reservation outlives its start at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A reservation on the board."""

    reservation: Reservation
    chosen: Chosen


class Reserver:
    """Keeps, renews and grants the reservations of one cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._held: dict[str, Held] = {}
        self._ended: dict[str, Held] = {}
        # Owners of expired holds who have had no turn yet, in order.
        self._lapsed: list[str] = []
        self._aside: dict[str, Horizon] | None = None
        self._after: Kept[Floor] = Kept(lambda: (cycle.board.version, *self._held))
        self._timeline: tuple[int, Timeline] | None = None
        self._counts: dict[object, int] = {}
        self._vain: tuple[int, set[object]] = (-1, set())  # what got none while the board was like this

    @property
    def held(self) -> tuple[Reservation, ...]:
        """All that hold now."""
        return tuple(held.reservation for held in self._held.values())

    def resume(self, gangs: Mapping[str, Gang]) -> None:
        """Put standing reservations on the board. One stays where it is unless its place or its time is lost, or an
        earlier time has come into reach; that is looked for beside all others, so that nobody loses a place to it.
        """
        standing = self._in_order(gangs)
        for gang, old, place in standing:
            if place is not None and self._stands(gang, place, at=old.start):
                self._hold(place, start=old.start, expires=old.expires)
        for gang, old, _ in standing:
            self._renew(gang, old)
        self._lapsed = [gang.uid for gang, old, _ in standing if old.expires <= self._board.time]

    def _in_order(self, gangs: Mapping[str, Gang]) -> list[tuple[Gang, Reservation, Chosen | None]]:
        """Those that can stand, with their places if these are usable: times to come before those that have, as nobody
        reckons with what is held from now on, then by rank and seniority.
        """
        found: list[tuple[tuple[object, ...], Gang, Reservation, Chosen | None]] = []
        for old in self._board.snapshot.reservations:
            gang = gangs.get(old.uid)
            if gang is None or not self._most(gang):
                continue
            over = old.expires <= self._board.time
            # A hold is followed by another while its gang waits, as `_giving_way` says; an expired reservation is not.
            if over and (old.start > self._board.time or not self._patient(gang)):
                continue
            place = None if over else restored(self._board, gang, old.assignments)
            charges = [charge for _, charge in gang.shape.smallest] if place is None else [place.charge]
            entitled = any(self._cycle.rank(gang, charge)[0] for charge in charges)
            key = (old.start <= self._board.time, not entitled, gang.seniority)
            found.append((key, gang, old, None if place is None else replace(place, bound=False)))
        return [(gang, old, place) for _, gang, old, place in sorted(found, key=lambda one: one[0])]

    def set_aside(self, uid: str) -> None:
        """It is this gang's turn: nobody leaves its own reservation whole while it looks for a place, as that ends when
        one is found.
        """
        if uid in self._held:
            self._lapsed = [other for other in self._lapsed if other != uid]
            self._aside = self._board.horizons
            self._board.horizons = {other: h for other, h in self._aside.items() if other != uid}
            self._board.changed()

    def refused(self) -> None:
        """Its turn has changed nothing: what was set aside holds again."""
        if self._aside is not None:
            self._board.horizons, self._aside = self._aside, None
            self._board.changed()

    def consider(self, gang: Gang) -> None:
        """The gang was refused for capacity: keep what it has, or reserve if its flavors have one left."""
        held = self._held.get(gang.uid)
        if held is not None:
            if not self._intact(held):
                self._again(gang, held)
            return
        giving_way = self._giving_way(gang)
        if giving_way is None:
            return
        if self._vain[0] != self._board.version:
            self._vain = (self._board.version, set())
        workload = gang.pending.workload
        key = (gang.shape.number, gang.pending.avoid, workload.preemptible, self._patient(gang), *giving_way)
        if key not in self._vain[1] and not self._granted_instead(gang, giving_way):
            self._vain[1].add(key)

    def _giving_way(self, gang: Gang) -> list[str] | None:
        """Owners whose holds end if the gang gets a reservation: nobody where its flavors have one left; else the last
        of those whose holds have expired and whom it outranks with whatever flavors it gets. None = that is not enough.
        """
        flavors, most = gang.shape.flavors, self._most(gang)
        if self._taken(flavors) < most:
            return []
        ranks = [self._cycle.rank(gang, charge) for _, charge in self._allowed(gang)] if self._lapsed else []
        found: list[str] = []
        for uid in reversed(self._lapsed) if ranks else ():
            held = self._held.get(uid)
            if held is None or flavors.isdisjoint(held.chosen.variant.flavors.values()):
                continue
            if self._board.horizons[uid].rank < min(ranks):
                found.append(uid)
                if self._taken(flavors, without=found) < most:
                    return found
        return None

    def _granted_instead(self, gang: Gang, others: Collection[str]) -> bool:
        """Whether there is a reservation for the gang without those of these others, which end then."""
        giving_way = {uid: self._held.pop(uid) for uid in others}
        self._grant(gang)
        granted = gang.uid in self._held
        self._held.update(giving_way)
        for uid in others if granted else ():
            self.settled(uid)
        return granted

    def _most(self, gang: Gang) -> int:
        return self._board.book.tree.policy(gang.queue).reservations or 0

    def _taken(self, flavors: frozenset[str], *, without: Sequence[str] = ()) -> int:
        """How many reservations there are of the flavor, of these, that has most, besides those of some owners."""
        key = (flavors, *without)
        if key not in self._counts:
            counted = [held.chosen for uid, held in self._held.items() if uid not in without]
            used = [set(one.variant.flavors.values()) for one in counted]
            self._counts[key] = max(
                sum(flavor in one for one in used) for flavor in flavors or {DEFAULT_FLAVOR}
            )
        return self._counts[key]

    def settled(self, uid: str) -> None:
        """The gang starts or is bound, or another has its turn to hold: its reservation ends."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._ended[uid] = held
            self._counts.clear()
            self._board.former.append((self._aside or self._board.horizons)[uid])
            self._board.horizons.pop(uid, None)
            self._aside = None
            self._board.changed()

    def given_back(self, put_off: Collection[str]) -> tuple[Reservation, ...]:
        """What ended at the turns of these, who do not start after all and are off the board, where it is still whole
        beside what does and as many are allowed, those made since included.
        """
        ended = [held for uid, held in self._ended.items() if uid in put_off and uid not in self._held]
        if not ended:
            return ()
        staying = [one for uid, one in self._cycle.chosen.items() if uid not in put_off]
        self._board.changed()
        starting = [one for one in self._cycle.expected() if one.gang.uid not in put_off]
        self._timeline = (self._board.version, Timeline(self._board, starting))
        lying = frozenset[int]().union(*(one.nodes for one in staying))
        back: dict[str, Held] = {}
        for held in ended:
            gang, flavors = held.chosen.gang, frozenset(held.chosen.variant.flavors.values())
            if self._taken(flavors) < self._most(gang) and self._whole(held, lying):
                back[gang.uid] = self._held[gang.uid] = held
                self._counts.clear()
        for uid in back:
            del self._held[uid]
        self._counts.clear()
        return tuple(held.reservation for held in back.values())

    def finish(self, gangs: Mapping[str, Gang]) -> None:
        """Renew reservations that were displaced in this cycle."""
        for uid, held in list(self._held.items()):
            if not self._intact(held):
                self._again(gangs[uid], held)

    # One reservation

    def _again(self, gang: Gang, held: Held) -> None:
        self.settled(gang.uid)
        self._renew(gang, held.reservation)

    def _renew(self, gang: Gang, old: Reservation) -> None:
        """Leave it where it is held, if it is, unless an earlier time has come into reach; else find it another."""
        held, found = self._held.pop(gang.uid, None), self._earliest(gang)
        if held is not None and (found is None or self._no_later(held, found[0])):
            self._held[gang.uid] = held
        elif found is None:
            self._grant(gang)
        elif self._patient(gang) and found[0] > old.start:
            self._hold_on(gang, found[1])
        else:
            start, chosen = found
            self._hold(chosen, start=start, expires=max(old.expires, start + LEAST))

    def _no_later(self, held: Held, other: float) -> bool:
        """Whether its time, or where that has come the one at which its place is whole, is not after the other."""
        start = held.reservation.start
        return start <= other if start > self._board.time else self._fits(held.chosen, at=other)

    def _stands(self, gang: Gang, place: Chosen, *, at: float) -> bool:
        """Whether capacity alone is in its gang's way: until then, but for its turn, or for too long already."""
        now = self._board.time
        if not self._permitted(gang, place.charge):
            return False
        return self._fits(place, at=max(at, now)) or (at <= now and self._patient(gang))

    def _grant(self, gang: Gang) -> None:
        now = self._board.time
        found = self._earliest(gang)
        if found is not None:
            start, chosen = found
            self._hold(chosen, start=start, expires=start + max(LEAST, start - now))
        elif self._patient(gang) and (place := self._sooner(gang)) is not None:
            self._hold_on(gang, place)

    def _hold_on(self, gang: Gang, place: Chosen) -> None:
        """From now on, for as long as it may wait."""
        now, wait = self._board.time, self._board.book.tree.policy(gang.queue).max_wait or 0.0
        self._hold(place, start=now, expires=now + max(LEAST, wait))

    def _patient(self, gang: Gang) -> bool:
        """Whether it has waited so long that a place is held for it, whatever is known of ends."""
        most = self._board.book.tree.policy(gang.queue).max_wait
        return most is not None and self._board.time - gang.pending.workload.submitted >= most

    def _intact(self, held: Held) -> bool:
        """Whether nothing has come onto its place that it has no room for, beside other reservations."""
        return held.reservation.uid in intact(self._board.horizons.values(), now=self._board.time)

    def _whole(self, held: Held, lying: Collection[int]) -> bool:
        """Whether it would stand as things are; a hold does where nobody came upon it, or all fit."""
        chosen, start = held.chosen, held.reservation.start
        if not self._stands(chosen.gang, chosen, at=start):
            return False
        alone = chosen.nodes.isdisjoint(lying)
        return alone or self._fits(chosen, at=max(start, self._board.time))

    # Where and when

    def _earliest(self, gang: Gang) -> tuple[float, Chosen] | None:
        """The first time at which enough has ended, and the narrowest place there, over its flavors."""
        best: tuple[float, Chosen] | None = None
        for variant, charge in self._allowed(gang):
            line = self._line()
            found = self._bisect(gang, variant, charge, low=1, high=len(line.times))
            if found is None:
                continue
            step = line.step_at(line.times[found - 1])
            while not self._fits_after(step, gang, variant, charge):
                step = line.step_at(line.times[step])  # the last bears it
            time = line.times[step - 1]
            if best is None or time < best[0]:
                best = time, self._at(step, gang, variant, charge)
        return best

    def _sooner(self, gang: Gang) -> Chosen | None:
        """The place that needs the fewest ends if the longest running end first."""
        known, steps = len(self._line().times), self._line().steps
        for variant, charge in self._allowed(gang):
            found = self._bisect(gang, variant, charge, low=known + 1, high=steps)
            if found is not None:
                return self._at(found, gang, variant, charge)
        return None

    def _allowed(self, gang: Gang) -> list[tuple[Variant, Charge]]:
        """Its flavors at its smallest size, as far as quota permits them; the live capacity is no matter of quota."""
        return [(variant, charge) for variant, charge in gang.shape.smallest if self._permitted(gang, charge)]

    def _permitted(self, gang: Gang, charge: Charge) -> bool:
        fits = all(s.usage.fits(gang.queue, charge, live=False) for s in self._board.sheets())
        return fits and (
            gang.pending.workload.preemptible
            or self._board.claimed.entitled(gang.queue, charge, at=gang.queue)
        )

    def _bisect(self, gang: Gang, variant: Variant, charge: Charge, *, low: int, high: int) -> int | None:
        """A step from `low` to `high` at which it fits: the first, as far as more room is never worse. Pod sets that
        share nodes may land for certain only where less is free, so a later step need not bear them.
        """
        if low > high or not self._fits_after(high, gang, variant, charge):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._fits_after(middle, gang, variant, charge):
                high = middle
            else:
                low = middle + 1
        return high

    def _fits_after(self, step: int, gang: Gang, variant: Variant, charge: Charge) -> bool:
        """Whether nodes and the live capacity bear it after so many ends."""
        placed = self._cycle.on(self._floor(step), gang, variant).spreads is not None
        return placed and self._live(step, gang, charge)

    def _live(self, step: int, gang: Gang, charge: Charge) -> bool:
        """Whether the live capacity bears it, where others keep a part of that back or more than nodes hold is used."""
        kept, overdrawn = self._board.book.initial[ROOT], self._line().overdrawn
        asked = {a: amount for a, amount in charge.items() if kept.get(a) or a in overdrawn}
        usages = self._line().usages(step, only=frozenset(asked)) if asked else ()
        return all(usage.fits(gang.queue, asked) for usage in usages)

    def _at(self, step: int, gang: Gang, variant: Variant, charge: Charge) -> Chosen:
        spreads = self._cycle.on(self._floor(step), gang, variant).spreads
        assert spreads is not None
        return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads)

    def _line(self) -> Timeline:
        if self._timeline is None or self._timeline[0] != self._board.version:
            self._timeline = (self._board.version, Timeline(self._board, self._cycle.expected()))
        return self._timeline[1]

    def _floor(self, step: int) -> Floor:
        """What is free after so many ends beside all other reservations."""

        def free() -> Matrix:
            left = self._line().free(step)
            for held in self._held.values():
                self._cycle.spend(left, held.chosen)
            return left

        return self._after.of(step, lambda: Floor(self._board.frame, free(), effort=self._board.effort))

    def _fits(self, chosen: Chosen, *, at: float) -> bool:
        """Whether nodes, at its own place, and the live capacity bear it by then."""
        step = self._line().step_at(at)
        return self._bears(step, chosen) and self._live(step, chosen.gang, chosen.charge)

    def _bears(self, step: int, chosen: Chosen) -> bool:
        """Whether nodes, at its own place, bear it after so many ends."""
        return bool((self._beside(step, chosen)[sorted(chosen.nodes)] >= 0).all())

    def _beside(self, step: int, chosen: Chosen) -> Matrix:
        """What is left beside it and all other reservations after so many ends (N x R)."""
        left = self._floor(step).free.copy()
        self._cycle.spend(left, chosen)
        return left

    def _over(self, chosen: Chosen) -> Matrix:
        """What a hold leaves over at the first step at which nodes bear it; nothing where they never do (N x R)."""
        last = self._line().steps
        first = bisect_left(range(last + 1), True, key=lambda step: self._bears(step, chosen))
        beside = self._beside(min(first, last), chosen)
        return np.maximum(beside, 0) if first <= last else np.zeros_like(beside)

    # On the board

    def _hold(self, chosen: Chosen, *, start: float, expires: float) -> None:
        board = self._board
        rows = board.rows(chosen.gang.pending.workload, chosen.spreads)
        self._counts.clear()
        uid, rank = chosen.gang.uid, self._cycle.rank(chosen.gang, chosen.charge)
        free = self._line().free(self._line().step_at(start))
        over = self._over(chosen) if start <= board.time else None
        board.horizons[uid] = Horizon.of(uid, start=start, rank=rank, rows=rows, free=free, over=over)
        reservation = Reservation(
            uid=uid, assignments=assignments(board, chosen), start=start, expires=expires
        )
        self._held[uid] = Held(reservation=reservation, chosen=chosen)
        board.changed()


def with_reservation(explanation: Explanation, held: Reservation) -> Explanation:
    """The owner's explanation with `detail.reservation`: `start`, `expires`, seconds since the epoch, and `hosts`."""
    hosts = sorted({name for row in held.assignments for name in row.nodes})
    told = {"start": held.start, "expires": held.expires, "hosts": hosts}
    return replace(explanation, detail={**explanation.detail, "reservation": told})
