"""Floors and pools that follow a whole cycle say the same as those made anew whenever they are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from queuer.domain.quota import Charge
from queuer.domain.workload import Workload
from queuer.solver import floors
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle, Freed
from queuer.solver.decide import decide
from queuer.solver.floor import Floor, Found, Room
from queuer.solver.frame import ALL, Matrix, NodeRows
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import Horizon
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.pool import Pool, SettledPods
from queuer.solver.problem import Budget, Eviction, EvictionRule
from queuer.solver.prospects import Gone, Prospects, Turn
from tests.solver import worlds
from tests.solver.cases import NOW, seeded
from tests.solver.cases_reserved import reserving
from tests.solver.cycles import Life
from tests.solver.make import FIRST, gangs_of


def settled_on(cycle: Cycle, gang: Gang, random: Random) -> Chosen | None:
    """The gang bound to what some victims leave, or started; None where it has no place."""
    board, workload = cycle.board, gang.pending.workload
    variant, charge = gang.shape.variants[0], gang.shape.charges[0]
    bound = random.random() < 0.5
    floor = floors.later(board, workload, rank=FIRST) if bound else floors.now(board, workload, rank=FIRST)
    spreads = cycle.on(floor, gang, variant).spreads
    if spreads is None:
        return None
    gone = [uid for uid in board.holds if bound and uid not in board.leaving and random.random() < 0.2]
    evictions = tuple(Eviction(uid=u, beneficiary=gang.uid, rule=EvictionRule.PREEMPT) for u in gone)
    return Chosen(
        gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=evictions, bound=bound
    )


class Watched:
    """Decisions of which every floor and pool is compared with one made anew whenever it is asked. `seen`: how often,
    by what was there.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        self._settled: dict[int, tuple[Pool, SettledPods]] = {}
        self._floor, self._pool = Board.floor, Cycle.pool
        self._place, self._excludes = Floor.place, Pool.excludes
        patch.setattr(Board, "floor", lambda *a: self._floored(*a))
        patch.setattr(Cycle, "pool", lambda *a, **k: self._pooled(*a, **k))
        self._shared = Prospects._shared_pool
        patch.setattr(Prospects, "_shared_pool", lambda *a: self._emptied(*a))
        patch.setattr(Floor, "place", lambda *a, **k: self._placed(*a, **k))
        patch.setattr(Pool, "excludes", lambda *a: self._excluded(*a))
        self._room = Floor.room
        patch.setattr(Floor, "room", lambda *a, **k: self._roomy(*a, **k))

    def _floored(self, board: Board, key: object, free: Callable[[NodeRows], Matrix]) -> Floor:
        floor = self._floor(board, key, free)
        assert np.array_equal(floor.free, free(ALL))
        self.seen["kept"] += key == "kept"
        self.seen["floor beside reservations"] += isinstance(key, tuple) and bool(key[-1])
        return floor

    def _placed(self, floor: Floor, workload: Workload, variant: Variant, **more: Any) -> Found:
        found = self._place(floor, workload, variant, **more)
        made = Floor(floor._frame, floor.free.copy(), idle=floor._idle)
        anew = self._place(made, workload, variant, **more)
        assert (found.spreads, found.exact) == (anew.spreads, anew.exact)
        return found

    def _roomy(self, floor: Floor, workload: Workload, variant: Variant, **more: Any) -> Room:
        room = self._room(floor, workload, variant, **more)
        assert room is self._placed(floor, workload, variant, **more).room
        self.seen[f"room: {room}"] += 1
        return room

    def _pooled(
        self,
        cycle: Cycle,
        gang: Gang,
        charge: Charge,
        *,
        later: bool,
        gone: object = None,
        freed: Freed | None = None,
    ) -> Pool:
        pool = self._pool(cycle, gang, charge, later=later, gone=gone, freed=freed)
        rank = cycle.rank(gang, charge)
        bars = cycle.board.bars(gang.pending.workload, rank=rank, bound=later)
        free, settled = anew(cycle, bars, later=later)
        if freed is not None:
            nodes, amounts = freed()
            free[nodes] += amounts
        assert np.array_equal(pool.floor.free, free)
        self._settled[id(pool)] = (pool, settled)
        self.seen["pools"] += 1
        self.seen["freed"] += freed is not None and bool(len(freed()[0]))
        self.seen["pool beside reservations"] += bool(bars)
        self.seen["outliving"] += bool(bars) and settled.gangs > 0
        self.seen["bond stands"] += bool(cycle.board.snapshot.bonds)
        return pool

    def _emptied(self, prospects: Prospects, gang: Gang, turn: Turn, gone: Gone) -> Pool:
        pool, made = self._shared(prospects, gang, turn, gone), prospects._pool(gang, turn, gone)
        assert np.array_equal(pool.floor.free, made.floor.free)
        self._settled[id(pool)] = (pool, self._settled[id(made)][1])
        self.seen["shared"] += bool(gone.flags.any())
        return pool

    def _excluded(self, pool: Pool, key: object, workload: Workload, variant: Variant) -> bool:
        excluded, (_, settled) = self._excludes(pool, key, workload, variant), self._settled[id(pool)]
        made = Pool(pool._frame, Floor(pool._frame, pool.floor.free.copy()), settled)
        assert excluded == self._excludes(made, key, workload, variant)
        self.seen["excluded"] += excluded
        return excluded


def anew(cycle: Cycle, bars: Sequence[str], *, later: bool) -> tuple[Matrix, SettledPods]:
    """What is free with the places of settled gangs open, and who of them needs a place there, from all that is
    settled.
    """
    board, zero = cycle.board, np.zeros_like(cycle.board.frame.alloc)

    def places(among: Iterable[Chosen]) -> Matrix:
        taken = zero.copy()
        for one in among:
            cycle.spend(taken, one, times=-1)
        return taken

    chosen = list(cycle.chosen.values())
    free = board.later.free + places(chosen)
    if not later:
        free = np.minimum(free, board.now.free + places(c for c in chosen if not c.bound))
    settled = SettledPods(board.frame)
    for uid in bars:
        horizon = board.horizons[uid]
        lasting = places(c for c in chosen if board.outlives(horizon, c.gang.pending.workload, bound=c.bound))
        for node, left in horizon.free.items():
            others = [
                board.horizons[o] for o in bars if o != uid and board.horizons[o].start <= horizon.start
            ]
            held = sum(o.takes.get(node, 0) for o in others)
            free[node] = np.minimum(free[node], left - held + lasting[node])
    for one in chosen:
        workload = one.gang.pending.workload
        if (later or not one.bound) and all(
            board.outlives(board.horizons[uid], workload, bound=one.bound) for uid in bars
        ):
            settled.add(workload, one.variant)
    return free, settled


def reserve(board: Board, random: Random) -> None:
    """A reservation is granted or renewed, or one ends."""
    waiting = [pending.workload.uid for pending in board.snapshot.pending]
    if board.horizons and random.random() < 0.3:
        del board.horizons[random.choice(sorted(board.horizons))]
    else:
        uid, node = random.choice(waiting[:3]), random.randrange(len(board.frame.names))
        free, row = board.later.free // 2, board.frame.alloc[node] // 2
        start = board.time + random.choice((100.0, 1_000.0, 5_000.0))
        rank = (False, random.choice((0, 2**30)))
        board.horizons[uid] = Horizon.of(uid, start=start, rank=rank, rows=[(node, row)], free=free)
    board.changed()


@pytest.mark.parametrize("seed", range(40))
def test_pools_follow_what_is_settled_reserved_and_leaves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After starts, bindings with victims, places given back, and reservations that come, move and go; with more
    victims gone, too.
    """
    watched = Watched(monkeypatch)
    arrays, random = Arrays.of(worlds.world(seed, nodes=12, pending=16, running=12)), Random(seed)
    board, gangs = Board(arrays, now=worlds.NOW), gangs_of(arrays)
    greedy = Greedy(board)
    for gang in gangs:
        if random.random() < 0.3:
            reserve(board, random)
        if (chosen := settled_on(greedy, gang, random)) is not None:
            greedy.take(chosen)
        if greedy.chosen and random.random() < 0.4:
            back = random.choice(list(greedy.chosen.values()))
            greedy.lift([back])
            del greedy.chosen[back.gang.uid]
            if random.random() < 0.3:
                greedy.take(back)
        staying = greedy.prey.holds.staying(np.arange(len(board.holds)) % 2 == 0)
        freed = partial(greedy.prey.holds.vacated, staying)
        for asks, later in product(gangs, (False, True)):
            variant, charge = asks.shape.variants[0], asks.shape.charges[0]
            greedy.excluded(greedy.pool(asks, charge, later=later), asks, variant)
            emptied = greedy.pool(asks, charge, later=later, gone=staying.tobytes(), freed=freed)
            greedy.excluded(emptied, asks, variant)
            if asks.uid not in greedy.chosen:
                greedy._try_now(asks, variant, charge)
    assert not gangs or watched.seen["pools"]


def test_floors_and_pools_follow_whole_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside reservations and standing bonds, with victims gone, whatever the turns of a decision do in between; also
    for gangs that sums would refuse before.
    """
    watched = Watched(monkeypatch)
    monkeypatch.setattr(Prospects, "_beyond_root", lambda *_: False)
    monkeypatch.setattr(Prospects, "_breaks_rows", lambda *_: False)
    for seed in range(20):
        life = Life(Random(seed), seeded(seed))
        for number in range(8):
            life.cycle(Budget() if number % 4 == 0 else Budget(deterministic=0.0))
    for seed in range(80):
        decide(reserving(seed), now=NOW, seed=0, budget=Budget(deterministic=0.0))
        decide(worlds.world(seed, pending=24), now=worlds.NOW, seed=0, budget=Budget(deterministic=0.0))
    floors = ("kept", "floor beside reservations", "room: some", "room: none")
    pools = ("shared", "pool beside reservations", "outliving", "freed", "bond stands", "excluded")
    assert all(watched.seen[what] > 5 for what in (*floors, *pools)), watched.seen
