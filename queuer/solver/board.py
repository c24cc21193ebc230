"""The mutable state of one decision: what is used and free now, and what will be once all bonds' victims have
gone.

A gang that starts now must fit both sheets, so that nobody takes what is held for a bound gang, free or being
vacated. Reservations are further sheets, each the state at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from queuer.domain.quota import Charge, charge_for
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.ends import end_of, expected_end, leaves_soon
from queuer.solver.floor import Floor
from queuer.solver.frame import ALL, Amounts, Mask, Matrix, NodeRows, Numbers, summed
from queuer.solver.horizon import NOTHING, Horizon, behind
from queuer.solver.journal import Followed, Journal
from queuer.solver.kept import Kept
from queuer.solver.landing import Effort
from queuer.solver.parts import Limits, Spread, take
from queuer.solver.sheet import Hold, Sheet, leaves
from queuer.solver.tight import lying_tight

FLOORS = 12
"""Floors that are kept."""
SEARCHED = 40_000
"""Steps of searches for places of gangs with several pod sets in one arrangement of a cycle: about a second. Whoever
has no place by then is contested.
"""


class Board:
    """Sheets, holds and horizons of one decision. `later` is `now` until there is a bond, or somebody leaves anyway.

    `leaving`: who will have gone on `later`: victims of bonds, and `vacating`, who leaves anyway and is expected to be
    gone soon.
    `claimed`: what is used plus what is held for bound gangs, their victims still counted, or kept for those that await
    pods. Entitlement and shares are judged by it, so that what a queue has taken back in this cycle it does not take
    back twice.
    `former`: horizons that ended or moved in this cycle.
    `journal`, `freed`: nodes where anything changes, and where more than the places of settled gangs does.
    `past`: shares of past use by queue. `epoch`, `version`, `ground` move when what was refused may be permitted, when
    anything changes, and when more than the places of settled gangs does.
    """

    charge = staticmethod(charge_for)

    def __init__(self, arrays: Arrays, *, now: float) -> None:
        self.arrays = arrays
        self.snapshot = arrays.snapshot
        self.time = now
        self.frame = arrays.frame
        self.book = arrays.book
        self.capacity = {r: n for (flavor, r), n in self.book.live.items() if flavor is None}
        self.now = arrays.sheet.copy()
        self.holds = arrays.holds
        self.later = self.now
        self.claimed = self.now.usage
        self.past: Mapping[str, float] = {
            q: self.book.past_share(q, used) for q, used in self.snapshot.past.items()
        }
        self.leaving: set[str] = set()
        self.vacating = frozenset(uid for uid, h in self.holds.items() if leaves_soon(h.admitted, now=now))
        self.held: dict[str, list[tuple[int, Matrix]]] = {}
        self.bound: dict[str, tuple[Workload, Charge]] = {}
        self.avoiding = arrays.offers.avoiding
        self.horizons: dict[str, Horizon] = {}
        self.former: list[Horizon] = []
        self.epoch = 0
        self.version = 0
        self.ground = 0
        self.journal = Journal()
        self.freed = Journal()
        self._floors: Followed[Floor] = Followed(self.journal, most=FLOORS)
        self._line: Usage | None = None
        self._unvacated: Kept[Usage] = Kept(lambda: self.version)
        self._risen: dict[str, int] = {}
        self._before = self.now.before_landing()
        self._left: dict[str, Mapping[int, Matrix]] = {}
        self._spared: Kept[Matrix] = Kept(lambda: self.ground)
        self._kept: dict[str, list[tuple[int, Matrix, Matrix]]] = {}
        self._promised: dict[int, Matrix] = {}
        self.idle = arrays.idle
        self.effort = Effort(SEARCHED, arrays.landings.lands)
        if self.vacating:
            self.fork()
            for uid in self.vacating:
                self.leaving.add(uid)
                self._leave(uid)

    def fork(self) -> None:
        """Let `later` differ from `now`."""
        if self.later is self.now:
            self.later = self.now.copy()
            self.claimed = self.now.usage.copy()
            self.ground += 1
        self.epoch += 1
        self.version += 1

    def changed(self) -> None:
        """What was refused may be permitted now, as reservations or whose places these are may be others."""
        self.journal.turn()
        self.freed.turn()
        self.epoch += 1
        self.version += 1
        self.ground += 1

    def limits(self) -> Limits:
        """For one search of a place."""
        return Limits(effort=self.effort)

    def floor(self, key: object, free: Callable[[NodeRows], Matrix]) -> Floor:
        """The floor of this name, see `floors`. `free`: what is free on some nodes as things are (K x R), a new
        matrix.
        """
        return self._floors.of(
            key,
            lambda: Floor(self.frame, free(ALL), effort=self.effort),
            lambda floor, nodes: floor.renew(nodes, free(nodes)),
        )

    @cached_property
    def vacated(self) -> Matrix:
        """What those take who leave anyway (N x R). Not to be changed."""
        found = np.zeros_like(self.now.free)
        for uid in self.vacating:
            for node, row in self.left_by(self.holds[uid]).items():
                found[node] += row
        return found

    def unvacated(self) -> tuple[Numbers, Matrix]:
        """What is less on some nodes (K x R) while those are there who leave anyway."""
        nodes = np.flatnonzero(self.vacated.any(axis=1))
        return nodes, -self.vacated[nodes]

    def bars(self, gang: Workload, *, rank: tuple[bool, int], bound: bool = False) -> tuple[str, ...]:
        """Owners of the reservations that the gang must leave whole if it starts now, or is to be `bound`."""
        return tuple(uid for uid, h in self.horizons.items() if self.binds(h, gang, rank=rank, bound=bound))

    @property
    def evicting(self) -> bool:
        """Whether anybody is on its way out who does not leave anyway."""
        return len(self.leaving) > len(self.vacating)

    def usage_unvacated(self) -> Usage:
        """By what limits are judged for a gang that may evict nobody, see `floors.unvacated`. Not to be changed."""
        return self._unvacated.of(None, self._with_vacating) if self.vacating else self.later.usage

    def _with_vacating(self) -> Usage:
        usage = self.later.usage.copy()
        for uid in self.vacating:
            usage.add(self.holds[uid].admitted.workload.queue, self.holds[uid].charge)
        return usage

    def line(self) -> Usage:
        """What is used once all that is on its way out has gone: by it a victim's queue is judged to be above its
        guarantee. Not to be changed.
        """
        if self._line is None:
            self._line = self.now.usage.copy()
            for uid, hold in self.holds.items():
                if hold.admitted.releasing or uid in self.leaving:
                    self._line.add(hold.admitted.workload.queue, hold.charge, times=-1)
        return self._line

    def line_before(self) -> Usage:
        """The same, had nobody been evicted in this cycle."""
        line = self.line().copy()
        for uid in self.leaving:
            hold = self.holds[uid]
            if not hold.admitted.releasing:
                line.add(hold.admitted.workload.queue, hold.charge)
        return line

    def risen(self, queue: str) -> int:
        """While this is the same, nobody under the queue who was not permitted to go is permitted by what is used: it
        moves when use there rises, or somebody stays after all.
        """
        return self._risen.get(queue, 0)

    def _rise(self, leaf: str) -> None:
        for queue in self.book.lineage(leaf):
            self._risen[queue] = self._risen.get(queue, 0) + 1

    def _leave(self, uid: str, *, times: int = 1) -> None:
        """A victim is on its way out; `times=-1`: it stays after all."""
        hold = self.holds[uid]
        self.ground += 1
        self.journal.touch(hold.rows)
        self.freed.touch(hold.rows)
        if times < 0:
            self._rise(hold.admitted.workload.queue)
        self.later.release(hold, times=times)
        for horizon in self.horizons.values():
            if self.outlasts(hold, horizon.start):
                horizon.gain(self.left_by(hold).items(), now=self.time, times=times)
        if self._line is not None and not hold.admitted.releasing:
            self._line.add(hold.admitted.workload.queue, hold.charge, times=-times)

    def left_by(self, hold: Hold) -> Mapping[int, Matrix]:
        """What it leaves by node, with its pods that have still to land on each of their nodes, as they were counted
        there before this cycle. Once others have gone it may be more.
        """
        uid = hold.admitted.workload.uid
        if hold.loose and uid not in self._left:
            self._left[uid] = leaves(hold.bound, hold.loose, self._before)
        return self._left[uid] if hold.loose else hold.bound

    def outlasts(self, hold: Hold, start: float) -> bool:
        """Whether it would still be there when a reservation starts then, did it not leave."""
        return expected_end(hold.admitted, now=self.time) > start

    def sheets(self) -> tuple[Sheet, ...]:
        """The distinct sheets that a gang which starts now must fit."""
        return (self.now,) if self.later is self.now else (self.now, self.later)

    def unheld(self, nodes: NodeRows) -> Matrix:
        """What is free now, less what is held for bound gangs, on some nodes (K x R), a new matrix."""
        free = self.now.free[nodes]
        return free.copy() if self.later is self.now else np.minimum(free, self.later.free[nodes])

    def landed(self, nodes: NodeRows) -> Matrix:
        """The same once pods of earlier cycles lie, as tight as they can."""
        left = [sheet.free[nodes] + self._spared_on(sheet)[nodes] for sheet in self.sheets()]
        least: Matrix = np.minimum(left[0], left[-1])
        return least

    def _spared_on(self, sheet: Sheet) -> Matrix:
        """What pods of earlier cycles leave when they lie so, of what they are counted at, and is kept for nobody yet
        (N x R).
        """

        def spared() -> Matrix:
            found = np.zeros_like(sheet.free)
            for node, row in sheet.spared(self._lying).items():
                found[node] = row - self._promised.get(node, 0)
            return found

        return self._spared.of(sheet is self.now, spared)

    @cached_property
    def _lying(self) -> Mapping[str, Mapping[int, Matrix]]:
        return lying_tight([h for h in self.holds.values() if h.loose], self._before, now=self.time)

    def behind(
        self,
        bars: Sequence[str],
        free: Matrix,
        nodes: NodeRows = ALL,
        *,
        more: Mapping[str, Amounts] = NOTHING,
    ) -> Matrix:
        """`free` on some nodes (K x R) less what these reservations hold there, see `horizon.behind`."""
        return behind([self.horizons[uid] for uid in bars], free, nodes, more=more)

    def binds(self, horizon: Horizon, gang: Workload, *, rank: tuple[bool, int], bound: bool = False) -> bool:
        """Whether the gang must leave this reservation whole."""
        return rank <= horizon.rank and self.outlives(horizon, gang, bound=bound)

    def outlives(self, horizon: Horizon, gang: Workload, *, bound: bool = False) -> bool:
        """Whether the gang, started now, would still run when this reservation of another starts. Nobody knows when one
        ends that is bound, as nobody knows when it starts.
        """
        end = None if bound else end_of(gang, start=self.time)
        return horizon.uid != gang.uid and (end is None or end > horizon.start)

    def start(self, gang: Workload, charge: Charge, spreads: Mapping[str, Spread], *, times: int = 1) -> None:
        """The gang takes its place and quota now; `times=-1` takes it back."""
        self.version += 1
        if times > 0:
            self._rise(gang.queue)
        self._touch(spreads)
        for sheet in self.sheets():
            sheet.usage.add(gang.queue, charge, times=times)
            self._take(sheet.free, gang, spreads, times=times)
        for usage in (self.claimed, self._line):
            if usage is not None and usage is not self.now.usage:
                usage.add(gang.queue, charge, times=times)
        self._on_horizons(gang, spreads, times=times)

    def bind(
        self, gang: Workload, charge: Charge, spreads: Mapping[str, Spread], *, victims: Sequence[str]
    ) -> None:
        """Hold place and quota for the gang until its victims have gone."""
        self.fork()
        for uid in victims:
            if uid in self.holds and uid not in self.leaving:
                self.leaving.add(uid)
                self._leave(uid)
        self._touch(spreads)
        self.later.usage.add(gang.queue, charge)
        self.claimed.add(gang.queue, charge)
        self.held[gang.uid] = self.rows(gang, spreads)
        self.bound[gang.uid] = (gang, charge)
        self._take(self.later.free, gang, spreads)
        self._on_horizons(gang, spreads, bound=True)

    def unbind(self, gang: Workload, charge: Charge, spreads: Mapping[str, Spread]) -> None:
        """End the holding; the victims stay on their way out."""
        self.fork()
        self.ground += 1
        self._touch(spreads)
        self.later.usage.add(gang.queue, charge, times=-1)
        self.claimed.add(gang.queue, charge, times=-1)
        del self.held[gang.uid], self.bound[gang.uid]
        self._take(self.later.free, gang, spreads, times=-1)
        self._on_horizons(gang, spreads, bound=True, times=-1)

    def keep(self, gang: Workload, charge: Charge, spreads: Mapping[str, Spread]) -> None:
        """Leave place and quota to a gang that awaits pods of earlier cycles. They are not used, so nobody becomes
        evictable for it, and no reservation gives way to it yet. First it takes what these pods will leave there.
        """
        rows = []
        for node, row in summed(self.rows(gang, spreads)).items():
            left = np.minimum(row, np.maximum(self._spared_on(self.later)[node], 0))
            rows.append((node, left, row - left))
        self._kept[gang.uid] = rows
        self._move_kept(gang, charge, times=1)

    def give_up(self, gang: Workload, charge: Charge) -> None:
        """What was kept for it is anybody's again."""
        self._move_kept(gang, charge, times=-1)
        del self._kept[gang.uid]

    def _move_kept(self, gang: Workload, charge: Charge, *, times: int) -> None:
        self.fork()
        self.ground += 1
        for node, left, more in self._kept[gang.uid]:
            self._promised[node] = self._promised.get(node, 0) + left * times
            self.later.free[node] -= more * times
            self.journal.touch([node])
            self.freed.touch([node])
        for usage in (self.later.usage, self.claimed):
            usage.add(gang.queue, charge, times=times)

    def stay(self, uid: str) -> None:
        """A victim is not evicted after all."""
        self.version += 1
        self.leaving.discard(uid)
        self._leave(uid, times=-1)

    def _touch(self, spreads: Mapping[str, Spread]) -> None:
        for spread in spreads.values():
            self.journal.touch(spread)

    def _take(self, free: Matrix, gang: Workload, spreads: Mapping[str, Spread], *, times: int = 1) -> None:
        for pod_set in gang.pod_sets:
            if pod_set.name in spreads:
                take(free, self.frame.row(pod_set.requests), spreads[pod_set.name], times=times)

    def _on_horizons(
        self, gang: Workload, spreads: Mapping[str, Spread], *, bound: bool = False, times: int = 1
    ) -> None:
        for horizon in self.horizons.values():
            if self.outlives(horizon, gang, bound=bound):
                horizon.spend(self.rows(gang, spreads), times=times)

    def rows(self, gang: Workload, spreads: Mapping[str, Spread]) -> list[tuple[int, Matrix]]:
        """What a place takes, by node number (vectors of R)."""
        return [
            (node, self.frame.row(pod_set.requests) * count)
            for pod_set in gang.pod_sets
            for node, count in spreads.get(pod_set.name, Spread()).items()
        ]

    def closed(self, avoid: frozenset[str]) -> Mask | None:
        """Node mask of an avoid list; None = nothing to avoid."""
        return self.frame.closed(avoid)
