"""Tables that follow where a node changed say the same as tables made anew, whatever happened on the board between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import numpy as np
import pytest

from queuer.solver import floors
from queuer.solver.arrays import Arrays
from queuer.solver.board import FLOORS, Board
from queuer.solver.floor import Floor, Found
from queuer.solver.frame import ALL, Frame, Mask, Matrix, Need, NodeRows
from queuer.solver.journal import Followed, Journal
from queuer.solver.order import Gang
from queuer.solver.slots import Slots
from tests.solver import worlds
from tests.solver.make import FIRST, gangs_of


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
        floor = (
            floors.later(board, workload, rank=FIRST) if bound else floors.now(board, workload, rank=FIRST)
        )
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
        now, later = (f(board, anybody, rank=FIRST) for f in (floors.now, floors.later))
        for floor, free in (
            (now, np.minimum(board.now.free, board.later.free)),
            (later, board.later.free),
            (floors.present(board), np.minimum(board.now.free, board.later.free)),
        ):
            assert np.array_equal(floor.free, free)
            got, made = told_by(floor, gangs), told_by(Floor(board.frame, free.copy()), gangs)
            assert got == made


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
