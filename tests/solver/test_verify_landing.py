"""The verifier finds each gang that another one could rob of its place while both land."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Node
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.problem import (
    Assignment,
    Budget,
    Unbound,
)
from queuer.solver.verify import Rule, verify
from queuer.solver.verify.landing import Group, certain_slots
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot
from tests.solver.plans import at, plan, rules


def test_gangs_on_shared_hosts_need_a_later_wave() -> None:
    """Free 5 and 4: a pod of 1 may land where the two pods of 4 need both hosts."""
    nodes = [node("n1", gpu=5), node("n2", gpu=4)]
    jobs = [gang("big", pod_set(2, 4)), gang("tiny", pod_set(1, 1), submitted=1.0)]
    snap = snapshot(nodes, [queue("root.a")], pending=jobs)
    both = ("n1", "n2")
    big = Assignment(pod_set="main", flavor="default", nodes={"n1": 1, "n2": 1}, hosts=both)
    tiny = Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=both)
    starts = {"big": (big,), "tiny": (tiny,)}
    assert rules(snap, plan(snap, starts)) == {Rule.LANDING}
    assert rules(snap, plan(snap, starts, waves={"tiny": 1})) == set()
    assert rules(snap, plan(snap, starts, waves={"big": 1})) == {Rule.LANDING}
    assert rules(snap, plan(snap, {"big": (big,), "tiny": (replace(tiny, hosts=("n1",)),)})) == set()


def test_room_that_gets_free_meanwhile_is_no_way_to_rob_another_gang() -> None:
    """With who runs on n1 gone, both pods of 4 may come there before the one that is pinned to it."""
    nodes = [node("n1", gpu=8), node("n2", gpu=4)]
    jobs = [gang("big", pod_set(2, 4)), gang("tiny", pod_set(1, 1), submitted=1.0)]
    runs = running(gang("runs", pod_set(1, 3)), {"n1": 1})
    snap = snapshot(nodes, [queue("root.a")], admitted=[runs], pending=jobs)
    big = replace(at({"n1": 1, "n2": 1}), hosts=("n1", "n2"))
    starts = {"big": (big,), "tiny": (replace(at({"n1": 1}), hosts=("n1",)),)}
    assert rules(snap, plan(snap, starts)) == {Rule.LANDING}
    assert rules(snap, plan(snap, starts, waves={"big": 1})) == set()
    waves = {one.uid: one.wave for one in decide(snap, now=0.0, seed=0, budget=Budget()).admissions}
    assert waves == {"big": 1, "tiny": 0}


def test_pods_that_others_might_rob_if_room_got_free_keep_the_room_that_is_free() -> None:
    """K might come to n2 if what runs there ended. That is no reason to bring others there, too."""
    free = {"n0": 2, "n1": 6, "n2": 2, "n3": 5}
    landing = [
        replace(
            running(gang(uid, pod_set(1, size)), {hosts[0]: 1}),
            bound={},
            unbound=(Unbound(pod_set="main", count=1, hosts=hosts),),
        )
        for uid, size, hosts in (("K", 4, ("n1", "n2", "n3")), ("L", 1, ("n2",)))
    ]
    snap = snapshot(
        [node(name, gpu=8) for name in free],
        [queue("root.a")],
        admitted=landing,
        pending=[gang("new", pod_set(3, 1))],
        foreign={name: {GPU: 8 - gpu} for name, gpu in free.items()},
    )
    new = replace(at({"n1": 1, "n2": 1, "n3": 1}), hosts=("n1", "n2", "n3"))
    assert rules(snap, plan(snap, {"new": (new,)})) == {Rule.LANDING}
    assert rules(snap, plan(snap, {"new": (new,)}, waves={"new": 1})) == set()
    (made,) = decide(snap, now=0.0, seed=0, budget=Budget()).admissions
    assert (made.assignments[0].nodes, made.wave) == ({"n1": 1, "n2": 1, "n3": 1}, 1)


def test_sets_of_one_gang_are_not_judged_by_room_that_may_get_free() -> None:
    """Waves do not help there: the gang would wait as long as others run on its hosts."""
    runs = running(gang("runs", pod_set(1, 3)), {"n1": 1})
    sets = (pod_set(2, 4, name="worker"), pod_set(1, 1, name="leader"))
    nodes = [node("n1", gpu=8), node("n2", gpu=4)]
    snap = snapshot(nodes, [queue("root.a")], admitted=[runs], pending=[gang("g", *sets)])
    rows = (
        Assignment(pod_set="worker", flavor="default", nodes={"n1": 1, "n2": 1}, hosts=("n1", "n2")),
        Assignment(pod_set="leader", flavor="default", nodes={"n1": 1}, hosts=("n1",)),
    )
    assert rules(snap, plan(snap, {"g": rows})) == set()
    assert [a.uid for a in decide(snap, now=0.0, seed=0, budget=Budget()).admissions] == ["g"]


def test_sets_of_gangs_that_are_alike_are_judged_as_their_own() -> None:
    """With room that gets free both workers may come to n1, where the leaders are; its own would harm neither."""
    runs = running(gang("runs", pod_set(1, 6)), {"n1": 1})
    sets = (pod_set(1, 4, name="worker"), pod_set(1, 1, name="leader"))
    nodes = [node("n1", gpu=12), node("n2", gpu=4)]
    snap = snapshot(nodes, [queue("root.a")], admitted=[runs], pending=[gang("g", *sets), gang("h", *sets)])

    def lying(worker: str) -> tuple[Assignment, ...]:
        return (
            Assignment(pod_set="worker", flavor="default", nodes={worker: 1}, hosts=("n1", "n2")),
            Assignment(pod_set="leader", flavor="default", nodes={"n1": 1}, hosts=("n1",)),
        )

    assert rules(snap, plan(snap, {"g": lying("n1")})) == set()
    assert rules(snap, plan(snap, {"g": lying("n1"), "h": lying("n2")})) == {Rule.LANDING}


def test_who_came_before_may_have_ended_when_the_last_come() -> None:
    """With f gone both pods of r may come to h1, and leave g one place of two."""
    both = ("h1", "h2")

    def uses(count: int, **requests: int) -> PodSet:
        return PodSet(name="main", count=count, requests=requests)

    nodes = [
        Node(name="h1", labels={}, allocatable={"gpu": 2, "cpu": 15, "mem": 9}),
        Node(name="h2", labels={}, allocatable={"gpu": 1, "cpu": 11, "mem": 1}),
    ]
    jobs = [
        gang("f", uses(1, gpu=1, cpu=4, mem=1)),
        gang("r", uses(2, gpu=1, cpu=7), submitted=1.0),
        gang("g", uses(2, cpu=4, mem=1), submitted=2.0),
    ]
    snap = snapshot(nodes, [queue("root.a")], pending=jobs)
    wide = (replace(at({"h1": 1, "h2": 1}), hosts=both),)
    starts = {"f": (replace(at({"h1": 1}), hosts=("h1",)),), "r": wide, "g": wide}
    assert rules(snap, plan(snap, starts, waves={"r": 1, "g": 2})) == {Rule.LANDING}
    made = decide(snap, now=0.0, seed=0, budget=Budget())
    assert verify(snap, made, now=0.0) == ()
    assert len(made.admissions) == 2


def test_two_that_each_count_on_the_other_are_not_safe() -> None:
    """Beside the other each of the two that are pinned to n1 leaves room for one pod of 4 there; two such pods may come
    before both.
    """
    nodes = [node("n1", gpu=8), node("n2", gpu=8)]
    jobs = [gang(uid, pod_set(count, gpu)) for uid, count, gpu in (("s", 1, 1), ("t", 1, 3), ("a", 2, 4))]
    snap = snapshot(nodes, [queue("root.a")], pending=jobs)
    only = replace(at({"n1": 1}), hosts=("n1",))
    wide = Assignment(pod_set="main", flavor="default", nodes={"n2": 2}, hosts=("n1", "n2"))
    starts = {"s": (only,), "t": (only,), "a": (wide,)}
    assert rules(snap, plan(snap, starts)) == {Rule.LANDING}
    assert rules(snap, plan(snap, starts, waves={"a": 1})) == set()


def test_a_gang_that_starts_at_once_may_come_before_pods_of_an_earlier_cycle() -> None:
    """Beside `t`, which has still to land, one worker has room on n1; before it both may come there and rob the leader,
    too. In a later wave they find it there.
    """
    only = Unbound(pod_set="main", count=1, hosts=("n1",))
    t = replace(running(gang("t", pod_set(1, 3)), {"n1": 1}), bound={}, unbound=(only,))
    sets = (pod_set(2, 4, name="worker"), pod_set(1, 1, name="leader"))
    nodes = [node("n1"), node("n2")]
    snap = snapshot(nodes, [queue("root.a")], admitted=[t], pending=[gang("g", *sets)])
    worker = Assignment(pod_set="worker", flavor="default", nodes={"n2": 2}, hosts=("n1", "n2"))
    starts = {"g": (worker, at({"n1": 1}, pod_set="leader"))}
    wrong = verify(snap, plan(snap, starts), now=0.0)
    assert [(v.rule, v.uid) for v in wrong] == [(Rule.LANDING, "g"), (Rule.LANDING, "t")]
    assert rules(snap, plan(snap, starts, waves={"g": 1})) == set()


def test_pods_still_landing_are_not_robbed() -> None:
    nodes = [node("n1", gpu=8), node("n2", gpu=8)]
    loose = Unbound(pod_set="main", count=1, hosts=("n1", "n2"))
    landing = replace(running(gang("l", pod_set(1, 8)), {"n1": 1}), bound={}, unbound=(loose,))
    snap = snapshot(nodes, [queue("root.a")], admitted=[landing], pending=[gang("g", pod_set(1, 8))])
    assert rules(snap, plan(snap, {"g": (at({"n1": 1}),)})) == {Rule.LANDING}
    pinned = replace(landing, unbound=(replace(loose, hosts=("n2",)),))
    snap = replace(snap, admitted=(pinned,))
    assert rules(snap, plan(snap, {"g": (at({"n1": 1}),)})) == set()


def group(uid: str, count: int, gpu: int, hosts: str, **more: Any) -> Group:
    return Group(
        uid=uid, pod_set="main", count=count, requests={GPU: gpu}, hosts=frozenset(hosts.split()), **more
    )


@pytest.mark.parametrize(
    ("own", "rivals", "free", "left"),
    [
        (group("g", 2, 8, "a b c"), [], [8, 8, 7], 2),
        (group("g", 9, 1, "a b c"), [], [8, 8, 7], 23),
        (group("g", 2, 4, "a b"), [group("r", 1, 1, "a b")], [5, 4], 1),
        (group("g", 1, 4, "a b"), [group("r", 2, 4, "a b")], [8, 4], 1),
        (group("g", 3, 4, "a b c"), [group("r", 1, 8, "a b c")], [8, 8, 8], 4),
        (group("g", 3, 8, "a b c"), [group("r", 2, 1, "a")], [10, 8, 8], 3),
        (group("g", 3, 8, "a b c"), [group("r", 2, 1, "a"), group("s", 1, 1, "a b")], [10, 8, 8], 2),
        (group("g", 2, 2, "a b c", exclusive=True), [group("r", 1, 8, "a b c")], [8, 8, 8], 2),
        (group("g", 1, 4, "a"), [group("r", 2, 4, "a", exclusive=True)], [8], 1),
    ],
)
def test_worst_choice_of_rivals(own: Group, rivals: list[Group], free: list[int], left: int) -> None:
    by_host = {name: {GPU: n} for name, n in zip("abc", free, strict=False)}
    got = certain_slots(own, rivals, by_host)
    assert min(got, own.count) == min(left, own.count)
