"""The rule that `bench.preempt` compares with does what it says: a rule that evicts too many would flatter us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from bench.instances import Mix, crowded
from bench.kueue_like import Answer, evictions
from queuer.domain.nodes import Node, Topology
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.problem import Admitted, EvictionRule, NodeState, Pending, Snapshot
from tests.solver.make import GPU, gang, pod_set, running


def answer(
    racks: Mapping[str, str],
    admitted: Sequence[Admitted],
    waiting: Sequence[Workload],
) -> Answer:
    """Nodes of 8 GPUs, each in a rack."""
    used = dict.fromkeys(racks, 0)
    for one in admitted:
        for name, amounts in one.bound.items():
            used[name] += amounts[GPU]
    nodes = [
        NodeState(node=Node(name=name, labels={"rack": rack}, allocatable={GPU: 8}), used={GPU: used[name]})
        for name, rack in racks.items()
    ]
    return evictions(
        Snapshot(
            nodes=tuple(nodes),
            tree=QueueTree.of([Queue(path="root"), Queue(path="root.a")]),
            topology=Topology(keys=("rack",)),
            admitted=tuple(admitted),
            pending=tuple(Pending(workload=w) for w in waiting),
        ),
        resource=GPU,
    )


def one(uid: str, nodes: Mapping[str, int], *, gpus: int = 8, since: float, priority: int = 0) -> Admitted:
    """A gang that runs with `gpus` a pod."""
    sets = pod_set(sum(nodes.values()), gpus)
    return running(gang(uid, sets, priority=priority), nodes, since=since)


def test_lower_priority_goes_first_then_the_newest() -> None:
    admitted = [
        one("old", {"a": 1}, since=1),
        one("new", {"b": 1}, since=3),
        one("newest", {"c": 1}, since=9, priority=1),
    ]
    got = answer(dict.fromkeys("abc", "r"), admitted, [gang("w", pod_set(1, 8))])
    assert got.victims == {"new"}


def test_those_who_went_in_vain_come_back() -> None:
    """b alone is of no use: the rack that is emptied first is the other one."""
    admitted = [
        one("b", {"b": 1}, since=9),
        one("c", {"c": 1}, since=8),
        one("d", {"d": 1}, since=7),
        one("a", {"a": 1}, since=1),
    ]
    racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
    got = answer(racks, admitted, [gang("w", pod_set(2, 8), required="rack")])
    assert got.victims == {"c", "d"}


def test_gangs_take_their_turns_by_priority_and_find_what_is_left() -> None:
    admitted = [one("x", {"a": 1}, since=1), one("y", {"b": 1}, since=2)]
    waiting = [
        gang("low", pod_set(2, 8), priority=1),
        gang("high", pod_set(1, 4), pod_set(2, 2, name="rest"), priority=2, submitted=5),
    ]
    got = answer({"a": "r", "b": "r"}, admitted, waiting)
    assert got == Answer(placed=frozenset({"high"}), victims=frozenset({"y"}))


def test_a_gang_that_does_not_fit_evicts_nobody_and_free_room_is_taken_first() -> None:
    admitted = [one("x", {"a": 1}, gpus=4, since=1)]
    assert answer({"a": "r"}, admitted, [gang("w", pod_set(1, 4))]).victims == frozenset()
    assert answer({"a": "r"}, admitted, [gang("w", pod_set(2, 8))]) == Answer(
        placed=frozenset(), victims=frozenset()
    )


@pytest.mark.parametrize(("gangs", "fit"), [(6, True), (7, False)])
def test_no_more_gangs_are_blocked_than_fit(gangs: int, fit: bool) -> None:
    """16 nodes, three quarters of whose GPUs are 6 times 16."""
    made = partial(crowded, nodes=16, gangs=gangs, mix=Mix.MIXED, rule=EvictionRule.PREEMPT, seed=1)
    if fit:
        assert len(made().pending) == gangs
    else:
        with pytest.raises(ValueError, match="gangs: 7 are too many for 16 nodes, which bear at most 6"):
            made()
