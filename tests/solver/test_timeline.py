"""What is free after so many ends, in the order in which they are expected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import ROOT
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.bonds import resume
from queuer.solver.ends import end_of
from queuer.solver.greedy import Greedy
from queuer.solver.problem import Admitted, Assignment, Bond
from queuer.solver.timeline import Timeline
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot

NOW = 100.0


def here(*admitted: Admitted, waits: Workload | None = None, bonds: tuple[Bond, ...] = ()) -> Greedy:
    """Two nodes of 8 GPUs, and whoever waits has had its turn or is bound."""
    pending = [] if waits is None else [waits]
    snap = snapshot(
        [node("a"), node("b")], [queue("root.a")], admitted=admitted, pending=pending, bonds=bonds
    )
    greedy = Greedy(Board(Arrays.of(snap), now=NOW))
    gangs = greedy.board.arrays.offers.gangs
    resume(greedy, gangs)
    for one in gangs.values():
        if one.uid not in greedy.board.bound:
            greedy.turn(one)
    return greedy


def steps(greedy: Greedy, line: Timeline) -> list[tuple[list[int], int]]:
    """GPUs free on each node, and used in all, step by step."""
    gpus, account = greedy.board.frame.column[GPU], (None, GPU)
    only = frozenset({account})
    return [
        (line.free(n)[:, gpus].tolist(), max(u.used(ROOT, account) for u in line.usages(n, only=only)))
        for n in range(line.steps + 1)
    ]


def test_known_ends_come_first_then_the_longest_running_and_at_last_who_starts() -> None:
    there = (
        running(gang("new", pod_set(1, 1)), {"a": 1}, since=90.0),
        running(gang("old", pod_set(1, 2)), {"a": 1}, since=10.0),
        running(gang("ends", pod_set(1, 3)), {"b": 1}, since=0.0, expected_end=500.0),
    )
    greedy = here(*there, waits=gang("g", pod_set(1, 4)))
    assert greedy.chosen["g"].nodes == {0}
    line = Timeline(greedy.board, greedy.expected())
    assert (line.times, line.step_at(499.0), line.step_at(500.0)) == ([500.0], 0, 1)
    assert steps(greedy, line) == [([1, 5], 10), ([1, 8], 7), ([3, 8], 5), ([4, 8], 4), ([8, 8], 0)]


@pytest.mark.parametrize(
    ("estimate", "most", "end"),
    [
        (None, None, None),
        (300.0, None, 400.0),
        (None, 200.0, 300.0),
        (300.0, 200.0, 300.0),
        (200.0, 300.0, 300.0),
    ],
)
def test_a_gang_ends_when_it_is_thought_to_and_no_later_than_it_may(
    estimate: float | None, most: float | None, end: float | None
) -> None:
    assert end_of(gang("g", estimate=estimate, max_runtime=most), start=NOW) == end


def test_who_leaves_anyway_is_there_until_it_is_gone() -> None:
    """Though its room may be promised already."""
    out = running(gang("out", pod_set(1, 8)), {"a": 1}, releasing=True, gone_by=130.0)
    greedy = here(out, running(gang("stays", pod_set(1, 4)), {"b": 1}))
    assert greedy.board.later.free[0].all()
    line = Timeline(greedy.board, ())
    assert line.times == [130.0]
    assert steps(greedy, line) == [([0, 4], 12), ([8, 4], 4), ([8, 8], 0)]


def test_a_bound_gang_is_not_counted_beside_whom_it_waits_for() -> None:
    out = running(gang("out", pod_set(1, 8)), {"a": 1}, releasing=True, gone_by=130.0)
    held, waits = Assignment(pod_set="main", flavor="default", nodes={"a": 1}), gang("g", pod_set(1, 6))
    bond = Bond(uid="g", assignments=(held,), victims=("out",), deadline=400.0)
    greedy = here(out, running(gang("stays", pod_set(1, 4)), {"b": 1}), waits=waits, bonds=(bond,))
    assert [used for _, used in steps(greedy, Timeline(greedy.board, ()))] == [12, 10, 6]


def test_victims_have_gone_from_the_first() -> None:
    old = running(gang("old", pod_set(1, 8)), {"a": 1})
    greedy = here(old, running(gang("stays", pod_set(1, 4)), {"b": 1}))
    held = gang("g", pod_set(1, 6))
    charge = greedy.board.charge(held, {"main": "default"}, {"main": 1})
    greedy.board.bind(held, charge, {"main": {0: 1}}, victims=["old"])
    assert steps(greedy, Timeline(greedy.board, ())) == [([2, 4], 10), ([2, 8], 6)]


def test_what_happens_after_it_was_made_is_not_in_it() -> None:
    greedy = here(running(gang("out", pod_set(1, 8)), {"a": 1}))
    line, board, one = Timeline(greedy.board, ()), greedy.board, gang("g", pod_set(1, 1))
    before = steps(greedy, line)
    board.start(one, board.charge(one, {"main": "default"}, {"main": 1}), {"main": {1: 1}})
    assert steps(greedy, Timeline(board, ())) != before
    assert steps(greedy, line) == before


def test_more_is_used_than_nodes_lack_where_pods_are_on_no_node_or_too_many_for_one() -> None:
    """Also of work that leaves, until it is gone."""
    accounts = {(None, GPU), ("default", GPU)}
    fits = running(gang("r", pod_set(2, 4)), {"a": 1, "b": 1})
    crowded = running(gang("r", pod_set(3, 4)), {"a": 3})
    lost = running(gang("r", pod_set(1, 4)), {"lost": 1})
    for there, found in (
        ([fits], set()),
        ([crowded], accounts),
        ([lost], accounts),
        ([replace(lost, releasing=True, gone_by=130.0)], accounts),
    ):
        assert {a for a in Timeline(here(*there).board, ()).overdrawn if a[1] == GPU} == found
