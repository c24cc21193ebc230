"""Tables that follow where a node changed say the same as tables made anew, whatever happened on the board between."""

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
from queuer.solver.arrays import Arrays
from queuer.solver.board import FLOORS, Board
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle, Freed
from queuer.solver.decide import decide
from queuer.solver.evict import Evict, Gone
from queuer.solver.floor import Floor, Found, Room
from queuer.solver.frame import ALL, Frame, Mask, Matrix, Need, NodeRows
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import Horizon
from queuer.solver.journal import Followed, Journal
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.pool import Pool, SettledPods
from queuer.solver.problem import Budget, Eviction, EvictionRule
from queuer.solver.slots import Slots
from tests.solver import worlds
from tests.solver.cases import NOW, seeded
from tests.solver.cases_reserved import reserving
from tests.solver.cycles import Life

FIRST = (True, 2**31)
"""The rank of a gang that no reservation binds."""


def gangs_of(arrays: Arrays) -> list[Gang]:
    """Who waits and has flavors."""
    return [gang for gang in arrays.offers.gangs.values() if gang.shape.variants]


def answers(floor: Floor, gangs: list[Gang]) -> list[Found]:
    """Where each gang would lie."""
    return [
        floor.place(gang.pending.workload, variant, form=gang.shape.form, avoid=gang.pending.avoid)
        for gang in gangs
        for variant in gang.shape.variants
    ]


def told_by(floor: Floor, gangs: list[Gang]) -> list[tuple[object, bool]]:
    """The same as places and whether a refusal is a proof."""
    return [(found.spreads, found.exact) for found in answers(floor, gangs)]


class Play:
    """Random starts, bindings, leaves and returns on a board."""

    def __init__(self, seed: int) -> None:
        arrays = Arrays.of(worlds.world(seed, nodes=12, pending=12, running=12))
        self.random, self.board = Random(seed), Board(arrays, now=worlds.NOW)
        self.gangs = gangs_of(arrays)
        self._waiting = list(self.gangs)
        self._undo: list[Callable[[], None]] = []

    def step(self) -> None:
        """One change."""
        if self._undo and self.random.random() < 0.3:
            self._undo.pop(self.random.randrange(len(self._undo)))()
        elif self._waiting:
            self._settle(self._waiting.pop(self.random.randrange(len(self._waiting))))

    def _settle(self, gang: Gang) -> None:
        board, workload = self.board, gang.pending.workload
        variant, charge = gang.shape.variants[0], gang.shape.charges[0]
        bound = self.random.random() < 0.5
        victims = [uid for uid in board.holds if uid not in board.leaving and self.random.random() < 0.2]
        if bound:
            board.bind(workload, charge, {}, victims=victims)
            board.unbind(workload, charge, {})
            self._undo += [partial(board.stay, uid) for uid in victims]
        floor = board.floor_later(workload, rank=FIRST) if bound else board.floor_now(workload, rank=FIRST)
        found = floor.place(workload, variant, form=gang.shape.form, avoid=gang.pending.avoid)
        spreads = found.spreads
        if spreads is None:
            return
        if bound:
            board.bind(workload, charge, spreads, victims=())
            self._undo.append(lambda: board.unbind(workload, charge, spreads))
        else:
            board.start(workload, charge, spreads)
            self._undo.append(lambda: board.start(workload, charge, spreads, times=-1))


@pytest.mark.parametrize("seed", range(40))
def test_floors_follow_the_board(seed: int) -> None:
    """Free amounts and every place found there, asked for after one change or after several."""
    play = Play(seed)
    board, gangs = play.board, play.gangs
    if not gangs:
        return
    anybody = gangs[0].pending.workload
    for _ in range(12):
        play.step()
        if play.random.random() < 0.4:
            continue
        now, later = (f(anybody, rank=FIRST) for f in (board.floor_now, board.floor_later))
        for floor, free in (
            (now, np.minimum(board.now.free, board.later.free)),
            (later, board.later.free),
            (board.floor_present(), np.minimum(board.now.free, board.later.free)),
        ):
            assert np.array_equal(floor.free, free)
            got, made = told_by(floor, gangs), told_by(Floor(board.frame, free.copy()), gangs)
            assert got == made


def settled_on(cycle: Cycle, gang: Gang, random: Random) -> Chosen | None:
    """The gang bound to what some victims leave, or started; None where it has no place."""
    board, workload = cycle.board, gang.pending.workload
    variant, charge = gang.shape.variants[0], gang.shape.charges[0]
    bound = random.random() < 0.5
    floor = board.floor_later(workload, rank=FIRST) if bound else board.floor_now(workload, rank=FIRST)
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
        self._shared = Evict._shared_pool
        patch.setattr(Evict, "_shared_pool", lambda *a: self._emptied(*a))
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

    def _emptied(self, evict: Evict, gang: Gang, charge: Charge, gone: Gone) -> Pool:
        pool, made = self._shared(evict, gang, charge, gone), evict._pool(gang, charge, gone)
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
        staying = greedy.prey.staying(np.arange(len(board.holds)) % 2 == 0)
        freed = partial(greedy.prey.vacated, staying)
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
    monkeypatch.setattr(Evict, "_beyond_root", lambda *_: False)
    monkeypatch.setattr(Evict, "_breaks_rows", lambda *_: False)
    for seed in range(20):
        life = Life(Random(seed), seeded(seed))
        for number in range(8):
            life.cycle(Budget() if number % 4 == 0 else Budget(deterministic=0.0))
    for seed in range(60):
        decide(reserving(seed), now=NOW, seed=0, budget=Budget(deterministic=0.0))
        decide(worlds.world(seed, pending=24), now=worlds.NOW, seed=0, budget=Budget(deterministic=0.0))
    floors = ("kept", "floor beside reservations", "room: some", "room: none")
    pools = ("shared", "pool beside reservations", "outliving", "freed", "bond stands", "excluded")
    assert all(watched.seen[what] > 5 for what in (*floors, *pools)), watched.seen


def needs_of(arrays: Arrays) -> list[tuple[Need, Mask]]:
    """Kinds of pods that wait, with the nodes that accept them."""
    frame = arrays.frame
    return [
        (frame.need(pod_set), frame.open_to(pod_set, variant.flavors[pod_set.name]))
        for gang in gangs_of(arrays)
        for variant in gang.shape.variants
        for pod_set in gang.pending.workload.pod_sets
    ]


def told(frame: Frame, slots: Slots, arrays: Arrays) -> list[object]:
    """All that the tables say, exactly."""
    levels, found = range(len(frame.domains)), list[object]()
    for need, accepting in needs_of(arrays):
        counted = slots.counted(need, accepting)
        found += [counted.by_node.tolist(), counted.total]
        found += [counted.by_domain(level, inside).tolist() for level in levels for inside in levels]
        alone = slots.alone(need, accepting)
        found += [alone.total.tolist(), *(alone.whole(level, 2).tolist() for level in levels)]
    for columns in ((0,), (0, 1), tuple(range(len(frame.resources)))):
        empty = slots.emptiness(columns)
        found += [empty.by_node.tolist(), *(empty.by_domain(level).tolist() for level in levels)]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_slots_follow_their_amounts(seed: int) -> None:
    """To the last bit, as the order of domains rests on it; so do those that differ on a few nodes only."""
    arrays, random = Arrays.of(worlds.world(seed, nodes=12, pending=6)), np.random.default_rng(seed)
    frame = arrays.frame
    free: Matrix = frame.bound_free.copy()
    slots = Slots(frame, free)
    for _ in range(5):
        nodes = np.flatnonzero(random.random(len(free)) < 0.3)
        free[nodes] = (frame.alloc[nodes] * random.uniform(-0.1, 1.0, size=(len(nodes), 1))).astype(np.int64)
        slots.renew(*nodes.tolist())
        anew = told(frame, Slots(frame, free.copy()), arrays)
        assert told(frame, slots, arrays) == anew
        other = slots.but(nodes, frame.alloc[nodes])
        changed = free.copy()
        changed[nodes] = frame.alloc[nodes]
        assert told(frame, other, arrays) == told(frame, Slots(frame, changed), arrays)
        assert told(frame, slots, arrays) == anew


def test_only_what_has_changed_is_asked_for_and_a_turn_of_the_journal_makes_anew() -> None:
    journal, asked = Journal(), list[str]()
    tables: Followed[list[int]] = Followed(journal, most=2)

    def table(key: str) -> list[int]:
        def make() -> list[int]:
            asked.append(key)
            return []

        return tables.of(key, make, lambda kept, nodes: kept.extend(nodes.tolist()))

    first = table("a")
    journal.touch([3, 1, 3])
    assert table("a") is first
    assert first == [1, 3]
    journal.touch([2])
    table("b")
    assert table("a") == [1, 3, 2]
    journal.turn()
    assert table("a") == []
    table("c")
    table("b")
    assert asked == ["a", "b", "a", "c", "b"]


def test_a_floor_keeps_its_proofs_until_something_becomes_more() -> None:
    """What had no place has none with less; found places are looked for again."""
    play = next(
        p for p in map(Play, range(100)) if not all(f.spreads for f in answers(p.board.idle, p.gangs))
    )
    floor = Floor(play.board.frame, play.board.frame.alloc.copy())
    before = answers(floor, play.gangs)
    nodes = np.arange(1)
    assert not floor.renew(nodes, floor.free[nodes].copy())
    assert all(a is b for a, b in zip(answers(floor, play.gangs), before, strict=True))
    floor.renew(nodes, floor.free[nodes] - 1)
    after = answers(floor, play.gangs)
    kept = [a is b for a, b in zip(after, before, strict=True)]
    assert kept == [f.nowhere for f in before]
    assert any(kept)


def test_floors_beyond_the_most_go() -> None:
    board = Play(0).board

    def free(nodes: NodeRows) -> Matrix:
        return board.unheld(nodes)

    first = board.floor(0, free)
    assert all(board.floor(n, free) is not first for n in range(1, FLOORS + 1))
    assert board.floor(0, free) is not first
    assert np.array_equal(first.free, board.unheld(ALL))
