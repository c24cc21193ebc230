"""What a search for victims keeps up step by step is what the nodes say when they are looked at anew."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from queuer.solver.arrays import Arrays
from queuer.solver.asker import Asker
from queuer.solver.board import Board
from queuer.solver.capacity import place
from queuer.solver.frame import Matrix
from queuer.solver.trial import Trial
from queuer.solver.victims import Candidate, Prey
from tests.solver import worlds
from tests.solver.make import gang, node, pod_set, queue, running, snapshot


def searches(seed: int) -> Iterator[tuple[Board, Asker, list[Candidate]]]:
    """The gangs of a world that may evict somebody, with whom."""
    snapshot = worlds.expected(worlds.world(seed, nodes=12, running=24), seed)
    board = Board(Arrays.of(snapshot), now=worlds.NOW)
    prey = Prey(board)
    for one in board.arrays.offers.gangs.values():
        workload = one.pending.workload
        for variant, charge in one.shape.smallest:
            found = prey.permitted(prey.reach(one.pending, charge))
            if found:
                yield (
                    board,
                    Asker(workload=workload, variant=variant, charge=charge, closed=None, bars=()),
                    found,
                )


def coming_and_going(
    trial: Trial, found: Sequence[Candidate], rng: random.Random
) -> Iterator[list[Candidate]]:
    """Who is gone, step by step; in the end all are back."""
    gone = list[Candidate]()
    for _ in range(12):
        candidate = rng.choice(found)
        if candidate in gone:
            gone.remove(candidate)
            trial.put_back(candidate)
        else:
            gone.append(candidate)
            trial.remove(candidate)
        yield gone
    for candidate in gone:
        trial.put_back(candidate)


def has_place(board: Board, asker: Asker, gone: list[Candidate]) -> bool:
    """Whether the gang is placed on nodes from which these are released."""
    sheet = board.later.copy()
    for candidate in gone:
        sheet.release(candidate.hold)
    return place(board.frame, sheet.free, asker.workload, asker.variant, limits=board.limits()) is not None


def test_whoever_goes_and_comes_back_leaves_what_the_nodes_say() -> None:
    """In any order, with pods of others that have still to land there."""
    rng, fitted, looked = random.Random(1), 0, 0
    for seed in range(70_000, 70_060):
        for board, asker, found in searches(seed):
            trial = Trial(board, asker, found)
            for gone in coming_and_going(trial, found, rng):
                fits = trial.placed.fits()
                assert fits == has_place(board, asker, gone), (seed, asker.workload.uid)
                fitted, looked = fitted + fits, looked + 1
    assert 0 < fitted < looked


def led_in_one_domain(board: Board, asker: Asker, free: Matrix) -> bool:
    """Whether all of one set have slots in some domain with the single pod of the other on one of its nodes."""
    one, many = sorted(asker.parts(board), key=lambda part: part.count)
    level = asker.level(board)
    domains = np.zeros(len(free), dtype=np.intp) if level is None else board.frame.domains[level]
    for host in np.flatnonzero(one.open & (one.need.slots(free) > 0) & (domains >= 0)).tolist():
        beside = free.copy()
        beside[host] -= one.row
        slots = np.where(many.open & (domains == domains[host]), many.need.slots(beside), 0)
        if slots.sum() >= many.count:
            return True
    return False


def test_a_leader_and_its_workers_are_counted_as_nodes_hold_them() -> None:
    """Whoever goes and comes back."""
    rng, fitted, looked = random.Random(2), 0, 0
    for seed in range(71_000, 71_150):
        for board, asker, found in searches(seed):
            if not asker.is_led(board):
                continue
            trial = Trial(board, asker, found, counting=True)
            for gone in coming_and_going(trial, found, rng):
                sheet = board.later.copy()
                for one in gone:
                    sheet.release(one.hold)
                fits = trial.placed.fits()
                assert fits == led_in_one_domain(board, asker, sheet.free), (seed, asker.workload.uid)
                assert has_place(board, asker, gone) <= fits  # the sets might not land beside each other
                fitted, looked = fitted + fits, looked + 1
    assert 0 < fitted < looked


def test_a_place_of_several_pod_sets_stands_only_while_nobody_comes_back_there() -> None:
    """Who comes back elsewhere leaves it as it is."""
    runs = [running(gang(f"r{n}", pod_set(1, 8)), {f"n{n}": 1}) for n in range(3)]
    wide = gang("wide", pod_set(1, 8, name="leader"), pod_set(1, 8), priority=1)
    nodes = [node(f"n{n}") for n in range(3)]
    board = Board(Arrays.of(snapshot(nodes, [queue("root.a")], admitted=runs, pending=[wide])), now=1.0)
    offered = board.arrays.offers.gangs["wide"]
    ((variant, charge),) = offered.shape.smallest
    prey = Prey(board)
    found = prey.permitted(prey.reach(offered.pending, charge))
    asker = Asker(workload=wide, variant=variant, charge=charge, closed=None, bars=())
    trial, fits = Trial(board, asker, found), list[bool]()
    for candidate in found:
        trial.remove(candidate)
        fits.append(trial.placed.fits())
    for candidate in reversed(found):
        trial.put_back(candidate)
        fits.append(trial.placed.fits())
    assert fits == [False, True, True, True, False, False]
