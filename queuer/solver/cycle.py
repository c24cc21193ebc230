"""What one cycle has settled so far, and what every step of a turn needs to know about a gang: its sizes, its rank, the
nodes it keeps off, what quota says.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count, islice

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.reasons import Deferral
from queuer.domain.workload import Workload
from queuer.solver import floors
from queuer.solver.board import Board
from queuer.solver.contested import Proof, Variant
from queuer.solver.floor import Floor, Found, Room, key_of
from queuer.solver.frame import ALL, Amounts, Mask, Matrix, NodeRows, Numbers
from queuer.solver.horizon import Horizon
from queuer.solver.journal import Followed
from queuer.solver.order import Gang
from queuer.solver.outcome import Arbiter, Block, Chosen, Counts, Refusal
from queuer.solver.parts import take
from queuer.solver.pool import Pool, SettledPods
from queuer.solver.sheet import Sheet

Freed = Callable[[], tuple[Numbers, Matrix]]
"""What more is free: nodes (K), amounts (K x R)."""
MOST_NAMED = 4
"""Reservations on nodes of a gang up to which it is looked of each whether it is in the way; of more by halves."""
POOLS = 8
"""Pools that are kept."""


class Cycle:
    """The board of a cycle and the gangs it has settled on it. `awaiting`: gangs that are not settled, but fit as soon
    as pods of earlier cycles have landed; place and quota are kept for them till the end of the cycle. `turns`:
    those that are settled, by uid, numbered in the order of their turns; `starts`: of all that have been started, how
    many had been before, those tried in vain included; `begun`: how many by now. `as_greedy`: whether each turn so far
    was as it is where nobody can be asked.
    """

    def __init__(self, board: Board, *, crowded: Mapping[str, frozenset[str]] | None = None) -> None:
        """`crowded`: nodes by gang uid that it shall keep off, as others are landing there."""
        self.board = board
        self._crowded = dict(crowded or {})
        self.contest: Arbiter | None = None
        self.as_greedy = True
        self.chosen: dict[str, Chosen] = {}
        self.awaiting: dict[str, Chosen] = {}
        self.starts: dict[str, int] = {}
        self.begun = 0
        self.turns: dict[str, int] = {}
        self._turn = count()
        self.counts = Counts()
        self.lifts = 0
        self._sizes: dict[object, tuple[Variant, Charge]] = {}
        # What is settled takes no more than its place, open here.
        self._pools: Followed[Pool] = Followed(board.freed, most=POOLS)
        self._emptied: Followed[Pool] = Followed(board.freed, most=POOLS)
        self._lasting: dict[Horizon, tuple[int, dict[int, Matrix]]] = {}
        self._pods: dict[object, SettledPods] = {}
        self._places = {bound: np.zeros_like(board.frame.alloc) for bound in (False, True)}
        self._evicting = np.zeros_like(board.frame.alloc)
        self._bound = 0

    def take(self, chosen: Chosen) -> None:
        """Put a settled gang on the board."""
        workload = chosen.gang.pending.workload
        self.chosen[chosen.gang.uid] = chosen
        self.turns.setdefault(chosen.gang.uid, next(self._turn))
        if chosen.bound:
            uids = [e.uid for e in chosen.evictions]
            self.board.bind(workload, chosen.charge, chosen.spreads, victims=uids)
        else:
            if chosen.gang.uid not in self.starts:
                self.starts[chosen.gang.uid] = self.begun
                self.begun += 1
            self.board.start(workload, chosen.charge, chosen.spreads)
        self._settle(chosen, times=-1)

    def in_turn(self, settled: Iterable[Chosen]) -> list[Chosen]:
        """In the order of their turns, whatever was moved since; who has just its turn comes last."""
        return sorted(settled, key=lambda one: self.turns.get(one.gang.uid, math.inf))

    def forget(self, uid: str) -> None:
        """It was tried in vain: as if it had never been settled."""
        self.turns.pop(uid, None)
        self.starts.pop(uid, None)

    def lift(self, chosen: Iterable[Chosen]) -> None:
        """Take settled gangs off the board again; their victims stay."""
        self._pods.clear()
        self._lasting.clear()
        self.lifts += 1
        for one in chosen:
            workload = one.gang.pending.workload
            if one.bound:
                self.board.unbind(workload, one.charge, one.spreads)
                for eviction in one.evictions:
                    self.board.stay(eviction.uid)
            else:
                self.board.start(workload, one.charge, one.spreads, times=-1)
            self._settle(one, times=1)

    def keep(self, one: Chosen) -> None:
        """Keep its place and quota for a gang that awaits pods of earlier cycles."""
        self.awaiting[one.gang.uid] = one
        self.board.keep(one.gang.pending.workload, one.charge, one.spreads)

    @contextmanager
    def none_kept(self) -> Iterator[None]:
        """With nothing kept for those that await pods of earlier cycles."""
        for one in self.awaiting.values():
            self.board.give_up(one.gang.pending.workload, one.charge)
        yield
        for one in self.awaiting.values():
            self.board.keep(one.gang.pending.workload, one.charge, one.spreads)

    def _settle(self, one: Chosen, *, times: int) -> None:
        self._bound -= one.bound * times
        self.spend(self._places[one.bound], one, times=times)
        if one.evictions:
            self.spend(self._evicting, one, times=times)

    def ask(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | Proof | Deferral:
        """The exact solver's answer about a contested gang, see `Arbiter`."""
        if self.contest is None:
            return Deferral.TIME
        answer = self.contest.settle(gang, variants, evict=evict)
        self.counts.contested += isinstance(answer, Chosen)
        return answer

    @property
    def asks_readily(self) -> bool:
        """See `Arbiter`."""
        return self.contest is not None and self.contest.asks_readily()

    def unasked(self) -> Deferral | None:
        """See `Arbiter`; without one nobody is asked."""
        return Deferral.TIME if self.contest is None else self.contest.unasked()

    def ask_earlier(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | None:
        """The gang on flavors that come before those to be had, for which others make room; not in large clusters."""
        if not variants or not self.asks_readily:
            return None
        answer = self.ask(gang, variants, evict=evict)
        return answer if isinstance(answer, Chosen) else None

    def settled_since(self, seen: int) -> list[Chosen]:
        """Those that were settled after the first so many, in their order; without a look at these."""
        return list(islice(reversed(self.chosen.values()), len(self.chosen) - seen))[::-1]

    def started(self) -> list[Chosen]:
        """Those that start now."""
        return [c for c in self.chosen.values() if not c.bound]

    def expected(self) -> list[Chosen]:
        """Those that start now, or as soon as others have landed."""
        return [*self.started(), *self.awaiting.values()]

    @property
    def anybody_bound(self) -> bool:
        """Whether any settled gang is bound, so that it might have other victims."""
        return self._bound > 0

    @property
    def started_places(self) -> Matrix:
        """What those that start now take (N x R); not to be changed."""
        return self._places[False]

    def movable_places(self, *, bound: bool) -> Matrix:
        """What those take that start now, or are bound, and evict nobody (N x R); not to be changed."""
        return self._places[True] - self._evicting if bound else self._places[False]

    def rank(self, gang: Gang, charge: Charge) -> tuple[bool, int]:
        """What displaces a reservation: entitled somewhere on the path, then priority."""
        workload = gang.pending.workload
        return (any(self.board.claimed.entitlements(workload.queue, charge)), workload.priority)

    def rank_beside(self, gang: Gang, charge: Charge) -> tuple[bool, int]:
        """Its rank beside the reservations of this moment: where there are none, any will do."""
        return self.rank(gang, charge) if self.board.horizons else (False, 0)

    def keeps_off(self, uid: str) -> frozenset[str]:
        """Nodes on which others are landing that the gang cannot land beside."""
        return self._crowded.get(uid, frozenset())

    def keep_off(self, uid: str, nodes: frozenset[str]) -> None:
        """From now on the gang keeps off these nodes, and these only."""
        self._crowded.pop(uid, None)
        if nodes:
            self._crowded[uid] = nodes

    def waits_apart(self, uid: str) -> bool:
        """Whether the gang keeps off nodes where others are landing."""
        return uid in self._crowded

    @property
    def apart(self) -> bool:
        """Whether any gang, settled or not, keeps off nodes where others are landing, or awaits them."""
        return bool(self._crowded or self.awaiting)

    @property
    def kept_apart(self) -> bool:
        """Whether any settled gang keeps off nodes where others are landing."""
        return not self._crowded.keys().isdisjoint(self.chosen.keys())

    def closed(self, gang: Gang) -> Mask | None:
        """Nodes that the gang keeps off."""
        return self.board.closed(self._avoid(gang))

    def _avoid(self, gang: Gang) -> frozenset[str]:
        return gang.pending.avoid | self.keeps_off(gang.uid)

    def on(self, floor: Floor, gang: Gang, variant: Variant) -> Found:
        """A place for the gang on a floor."""
        return floor.place(gang.pending.workload, variant, form=gang.shape.form, avoid=self._avoid(gang))

    def room(self, floor: Floor, gang: Gang, variant: Variant) -> Room:
        """Whether there is a place for the gang on a floor."""
        return floor.room(gang.pending.workload, variant, form=gang.shape.form, avoid=self._avoid(gang))

    def in_the_way(self, gang: Gang, variant: Variant, bars: Sequence[str]) -> tuple[str, ...]:
        """Owners of the reservations, of these, that keep a place from the gang: the first without which it has one,
        else several all of which it would break; of many one of those. Nobody where there is none even without any.
        """
        if not bars or self.on(floors.present(self.board), gang, variant).spreads is None:
            return ()
        owners = self._of_its_nodes(gang, variant, bars) if len(bars) > 1 else list(bars)

        def fits_without(gone: Collection[str]) -> bool:
            return self.fits_beside(gang, variant, tuple([uid for uid in owners if uid not in gone]))

        if len(owners) > MOST_NAMED:
            fewest = bisect_left(range(1, len(owners)), True, key=lambda many: fits_without(owners[:many]))
            return (owners[fewest],)
        for uid in owners:
            if len(owners) == 1 or fits_without((uid,)):
                return (uid,)
        needed = owners
        for uid in reversed(owners):
            fewer = [other for other in needed if other != uid]
            needed = fewer if fits_without(fewer) else needed
        return tuple(needed)

    def fits_beside(self, gang: Gang, variant: Variant, bars: tuple[str, ...]) -> bool:
        """Whether there is a place for the gang now that leaves these reservations whole."""
        return self.on(floors.now_behind(self.board, bars), gang, variant).spreads is not None

    def _of_its_nodes(self, gang: Gang, variant: Variant, bars: Iterable[str]) -> list[str]:
        """Owners of those reservations that lie where pods of the gang may."""
        sets = gang.pending.workload.pod_sets
        masks = [self.board.frame.open_to(pod_set, variant.flavors[pod_set.name]) for pod_set in sets]
        places = ((uid, self.board.horizons[uid].nodes) for uid in bars)
        return [uid for uid, nodes in places if any(mask[list(nodes)].any() for mask in masks)]

    def key(self, gang: Gang, variant: Variant) -> object:
        """Equal for gangs that placement cannot tell apart."""
        return key_of(gang.pending.workload, variant, form=gang.shape.form, avoid=self._avoid(gang))

    def resized(self, gang: Gang, variant: Variant, counts: Mapping[str, int]) -> tuple[Variant, Charge]:
        """The variant at other sizes, with its charge."""
        key = (gang.shape.number, tuple(variant.flavors.values()), tuple(counts.items()))
        if key not in self._sizes:
            sized = replace(variant, counts=dict(counts))
            charge = self.board.charge(gang.pending.workload, sized.flavors, sized.counts)
            self._sizes[key] = (sized, charge)
        return self._sizes[key]

    def quota_block(
        self, workload: Workload, variant: Variant, charge: Charge, sheets: Sequence[Sheet]
    ) -> Refusal | None:
        """What quota says against it: a row of these sheets, or that it may not borrow."""
        for sheet in sheets:
            bar = sheet.usage.bar(workload.queue, charge)
            if bar is not None:
                kept, started = bool(self.awaiting), self.begun
                return Refusal(block=Block.QUOTA, variant=variant, bar=bar, kept=kept, started=started)
        if not workload.preemptible and not self.board.claimed.entitled(
            workload.queue, charge, at=workload.queue
        ):
            return Refusal(block=Block.ENTITLEMENT, variant=variant)
        return None

    def pool(
        self, gang: Gang, charge: Charge, *, later: bool, gone: object = None, freed: Freed | None = None
    ) -> Pool:
        """The nodes that the gang may use with the places of this cycle's gangs open, reservations kept.

        `later`: once today's victims have gone; `freed`: with what these leave, too; `gone` is equal for equal ones.
        """
        board = self.board
        bars = board.bars(gang.pending.workload, rank=self.rank_beside(gang, charge), bound=later)
        settled = self._settled_pods(bars, later=later)
        free = partial(self._opened, bars, later=later)
        pool = self._pools.of(
            (self.lifts, later, bars),
            lambda: Pool(board.frame, Floor(board.frame, free(ALL), effort=board.effort), settled),
            lambda pool, nodes: pool.renew(nodes, free(nodes)),
        )
        if freed is None:
            return pool
        return self._emptied.of((self.lifts, later, bars, gone), lambda: pool.but(*freed()))

    def _settled_pods(self, bars: Sequence[str], *, later: bool) -> SettledPods:
        """The pods of all settled gangs that need a place as long as the new one; they are only added to."""
        key = (later, *[(uid, self.board.horizons[uid].start) for uid in bars])
        if key not in self._pods:
            self._pods[key] = SettledPods(self.board.frame)
        pods = self._pods[key]
        for one in self.settled_since(pods.seen):
            if self._lies_in(one, bars, later=later):
                pods.add(one.gang.pending.workload, one.variant)
        pods.seen = len(self.chosen)
        return pods

    def _lies_in(self, one: Chosen, bars: Sequence[str], *, later: bool) -> bool:
        """Whether a settled gang needs a place in such a pool."""
        workload, board = one.gang.pending.workload, self.board
        return (later or not one.bound) and all(
            board.outlives(board.horizons[uid], workload, bound=one.bound) for uid in bars
        )

    def opened(self) -> tuple[Matrix, Matrix]:
        """What is free now, and once today's victims have gone (N x R each), without what this cycle has settled."""
        started = self._places[False]
        return self.board.now.free + started, self.board.later.free + started + self._places[True]

    def _opened(self, bars: Sequence[str], nodes: NodeRows, *, later: bool) -> Matrix:
        """What is free on some nodes with the places of settled gangs open (K x R), a new matrix."""
        board, started = self.board, self._places[False][nodes]
        free = board.later.free[nodes] + started + self._places[True][nodes]
        if not later:
            free = np.minimum(free, board.now.free[nodes] + started)
        return board.behind(bars, free, nodes, more={uid: self.outliving(uid) for uid in bars})

    def outliving(self, uid: str) -> Amounts:
        """What those settled gangs take of a reservation's nodes that still run when it starts."""
        horizon = self.board.horizons[uid]
        seen, taken = self._lasting.get(horizon, (0, {}))
        for one in self.settled_since(seen):
            workload = one.gang.pending.workload
            if self.board.outlives(horizon, workload, bound=one.bound):
                for node, row in self.board.rows(workload, one.spreads):
                    if node in horizon.free:
                        taken[node] = taken[node] + row if node in taken else row
        self._lasting[horizon] = (len(self.chosen), taken)
        return taken

    def excluded(self, pool: Pool, gang: Gang, variant: Variant) -> bool:
        """Whether sums, or the gang's own place, show that it has none in any arrangement."""
        if pool.excludes(self.key(gang, variant), gang.pending.workload, variant):
            return True
        return self.room(pool.floor, gang, variant) is Room.NONE

    def spend(self, free: Matrix, chosen: Chosen, *, times: int = 1) -> None:
        """Take a settled gang's pods off `free` (N x R); `times=-1` gives them back."""
        for pod_set in chosen.gang.pending.workload.pod_sets:
            if pod_set.name in chosen.spreads:
                take(free, self.board.frame.row(pod_set.requests), chosen.spreads[pod_set.name], times=times)
