"""What is free beside pods that have still to land, whoever else comes and goes."""

from __future__ import annotations

import pytest

from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from tests.solver import worlds
from tests.solver.make import GPU, gang, landing, node, pod_set, queue, running, snapshot


def test_pods_that_land_come_before_gangs_of_this_cycle() -> None:
    """A gang that is settled where pods were awaited finds no room any more if those come back."""
    snap = snapshot([node("a", gpu=4)], [queue("root.a")], admitted=[landing("late", 4, "a")])
    arrays = Arrays.of(snap)
    sheet, gpu = arrays.sheet.copy(), arrays.frame.column[GPU]
    sheet.release(arrays.holds["late"])
    sheet.free[0, gpu] -= 4
    sheet.release(arrays.holds["late"], times=-1)
    assert sheet.free[0, gpu] == -4
    assert sheet.before_landing()[0][gpu] == 4


def test_what_one_leaves_does_not_depend_on_when_it_is_asked() -> None:
    """Victims are taken off the sheet while they are tried."""
    runs = running(gang("runs", pod_set(1, 2)), {"a": 1})
    snap = snapshot([node("a", gpu=4)], [queue("root.a")], admitted=[landing("late", 1, "a"), runs])
    arrays, left = Arrays.of(snap), []
    for tried in ((), ("runs",)):
        board = Board(arrays, now=0.0)
        for uid in tried:
            board.now.release(board.holds[uid])
        left.append(int(board.left_by(board.holds["late"])[0][board.frame.column[GPU]]))
    assert left == [2, 2]


@pytest.mark.parametrize("seed", range(40))
def test_who_goes_and_comes_back_leaves_the_nodes_as_they_were(seed: int) -> None:
    arrays = Arrays.of(worlds.world(seed, nodes=6, running=24))
    sheet = arrays.sheet.copy()
    for hold in arrays.holds.values():
        for at in hold.rows:
            sheet.free[at] -= 1  # somebody is settled there
    before = sheet.free.copy()
    for hold in arrays.holds.values():
        sheet.release(hold)
    for hold in arrays.holds.values():
        sheet.release(hold, times=-1)
    assert (sheet.free == before).all()
