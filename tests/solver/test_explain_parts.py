"""The parts of an explanation beside its reasons: what is free, which nodes do not count, who holds what it waits for.
Each figure is one that a reader can check.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuer.domain.nodes import Flavor, Node, SchedulingTerms, Taint
from queuer.domain.queue import Policy, Preempt, QueueTree
from queuer.domain.quota import QuotaBook
from queuer.domain.reasons import Explanation, Token, Verdict
from queuer.domain.usage import Usage
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, NodeState, Pending
from tests.solver.cases import seeded
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.told import told

NOW = 0.0
GREEDY = Budget(deterministic=0.0)


def by(explanation: Explanation) -> dict[str, int]:
    """Excluded nodes by cause."""
    return {row["why"]: row["nodes"] for row in explanation.detail["excluded"]["by"]}


def in_rack(name: str, rack: str, **more: Any) -> Node:
    return node(name, labels={"rack": rack, **more.pop("labels", {})}, **more)


def test_nodes_that_do_not_count_are_counted_by_cause() -> None:
    """One node of each cause; two have room, which is too little for three pods."""
    fast, slow = {"kind": "fast"}, {"kind": "slow"}
    nodes = [
        node("other", labels=slow),
        node("selector", labels=fast),
        node("taint", labels={**fast, "disk": "ssd"}, taints=(Taint(key="mine"),)),
        node("cordoned", labels={**fast, "disk": "ssd"}, unschedulable=True),
        node("unready", labels={**fast, "disk": "ssd"}, ready=False),
        node("avoided", labels={**fast, "disk": "ssd"}),
        node("full", labels={**fast, "disk": "ssd"}),
        *(node(f"free{i}", labels={**fast, "disk": "ssd"}) for i in range(2)),
    ]
    terms = SchedulingTerms(node_selector={"disk": "ssd"})
    wanted = Pending(workload=gang("g", pod_set(3, 8, terms=terms)), avoid=frozenset({"avoided"}))
    flavors = (Flavor(name="fast", node_labels=fast), Flavor(name="slow", node_labels=slow))
    snap = snapshot(
        nodes,
        [queue("root.a", row(flavor="fast", guaranteed=8))],
        admitted=[running(gang("r", pod_set(1, 8)), {"full": 1}, flavor="fast")],
        pending=[wanted],
        flavors=flavors,
    )
    found = told(snap)
    assert (
        found.primary.text
        == "main needs room for 3 pods of 8 example.com/gpu; 2 fit on all usable nodes together, 1 is missing."
    )
    causes = ("Flavor", "Selector", "Taint", "Cordoned", "NotReady", "Avoided", "Full")
    assert by(found) == dict.fromkeys(causes, 1)
    assert (found.detail["excluded"]["nodes"], found.detail["excluded"]["of"]) == (7, 9)


def test_domains_that_are_too_small_and_who_holds_the_best() -> None:
    """r1 has one free node of two, r2 none: r1 comes closest, and what runs there is named, the largest first."""
    nodes = [in_rack("n1", "r1"), in_rack("n2", "r1"), in_rack("n3", "r2"), in_rack("n4", "r2")]
    jobs = [
        running(gang("small", pod_set(1, 2)), {"n1": 1}, expected_end=300.0),
        running(gang("large", pod_set(1, 6)), {"n1": 1}),
        running(gang("far", pod_set(2, 8)), {"n3": 1, "n4": 1}),
    ]
    snap = snapshot(
        nodes, [queue("root.a")], admitted=jobs, pending=[gang("g", pod_set(2, 8), required="rack")]
    )
    found = told(replace(snap, nodes=(*snap.nodes, NodeState(node=in_rack("n5", "r3")))))
    assert found.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    assert found.detail["excluded"]["domains"] == {"level": "rack", "short": 3, "of": 3}
    assert [(h["workload"], h["amount"], h.get("ends")) for h in found.detail["holders"]] == [
        ("large", "6", None),
        ("small", "2", 300.0),
    ]


def test_nodes_kept_by_a_reservation() -> None:
    """big holds all from the end of long on; g would outlast it."""
    busy = running(gang("long", pod_set(1, 8)), {"n1": 1}, expected_end=600.0)
    waiting = [gang("big", pod_set(2, 8)), gang("g", pod_set(1, 8), submitted=1.0)]
    found = told(snapshot([node("n1"), node("n2")], [queue("root.a")], admitted=[busy], pending=waiting))
    assert found.primary.token is Token.BEHIND_IN_QUEUE
    assert by(found) == {"Full": 1, "Reserved": 1}
    big = {"reservation": "big", "name": "big", "namespace": "test", "starts": 600.0}
    assert found.detail["holders"][0] == big


def test_what_is_free_and_the_room_at_each_level() -> None:
    """16 GPUs, one node cordoned; a may use 3 more of its 5, its parent 1 more of 4, root 13 by live capacity."""
    queues = [queue("root.p", row(limit=4)), queue("root.p.a", row(limit=5)), queue("root.p.b")]
    used = [
        running(gang("r", pod_set(1, 2), queue="root.p.a"), {"n1": 1}),
        running(gang("s", pod_set(1, 1), queue="root.p.b"), {"n1": 1}),
    ]
    nodes = [node("n1"), node("n2", unschedulable=True)]
    found = told(snapshot(nodes, queues, admitted=used, pending=[gang("g", pod_set(2, 1), queue="root.p.a")]))
    assert found.detail["available"] == [
        {
            "flavor": "default",
            "free": {GPU: "5"},
            "headroom": [
                {"queue": "root.p.a", GPU: "3"},
                {"queue": "root.p", GPU: "1"},
                {"queue": "root", GPU: "13"},
            ],
        }
    ]


def test_who_uses_the_quota_that_is_missing() -> None:
    """At a parent its children are named, at a leaf its workloads; the largest first."""
    used = [
        running(gang("r1", pod_set(1, 2), queue="root.a"), {"n1": 1}, expected_end=60.0),
        running(gang("r2", pod_set(1, 3), queue="root.a"), {"n1": 1}),
        running(gang("r3", pod_set(1, 1), queue="root.b"), {"n2": 1}),
    ]
    nodes, job = [node("n1"), node("n2")], gang("g", pod_set(2, 1), queue="root.a")
    capped = snapshot(nodes, [queue("root.a", row(limit=6)), queue("root.b")], admitted=used, pending=[job])
    assert [(h["workload"], h["amount"]) for h in told(capped).detail["holders"]] == [
        ("r2", "3"),
        ("r1", "2"),
    ]
    above = [queue("root", row(limit=7)), queue("root.a"), queue("root.b")]
    assert told(snapshot(nodes, above, admitted=used, pending=[job])).detail["holders"] == [
        {"queue": "root.a", "resource": GPU, "amount": "5"},
        {"queue": "root.b", "resource": GPU, "amount": "1"},
    ]


def test_what_is_held_is_told_apart_from_what_is_used() -> None:
    """c's 3 leave for a, whose 8 are held beside b's 5: 13 of 16, and nobody else is promised more than the other 3."""
    used = [
        running(gang("b", pod_set(1, 5), queue="root.b"), {"n1": 1}),
        running(gang("c", pod_set(1, 3), queue="root.c"), {"n2": 1}),
    ]
    queues = [queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=5)), queue("root.c")]
    waits = [gang("a", pod_set(1, 8)), gang("g", pod_set(4, 1), queue="root.c", submitted=1.0)]
    found = told(snapshot([node("n1"), node("n2")], queues, admitted=used, pending=waits))
    assert found.primary.text == (
        f"root uses 8 of 16 {GPU} (the live capacity), 3 of these are leaving, 8 more are held for jobs that start "
        "when others have left; this job asks 4."
    )
    assert found.detail["holders"] == [
        {
            "workload": "a",
            "name": "a",
            "namespace": "test",
            "queue": "root.a",
            "resource": GPU,
            "amount": "8",
            "held": True,
        },
        {"queue": "root.b", "resource": GPU, "amount": "5"},
    ]
    assert found.detail["available"][0]["free"] == {GPU: "3"}


def test_a_lower_limit_on_root_is_named_before_the_live_capacity() -> None:
    """Both are exceeded; raising the capacity would not help."""
    queues = [queue("root", row(limit=10)), queue("root.a")]
    full = running(gang("r", pod_set(2, 5)), {"n1": 1, "n2": 1})
    waits = told(
        snapshot([node("n1"), node("n2")], queues, admitted=[full], pending=[gang("g", pod_set(7, 1))])
    )
    assert waits.primary.text == f"root uses 10 of 10 {GPU} (the limit); this job asks 7."
    never = told(snapshot([node("n1"), node("n2")], queues, pending=[gang("g", pod_set(17, 1))]))
    assert never.primary.text == f"Asks 17 {GPU}; root may never use more than 10."


def test_gangs_that_are_alike_share_one_explanation() -> None:
    """Ten thousand of them cost as much as one."""
    jobs = [gang(f"g{i}", pod_set(9, 8), submitted=float(i)) for i in range(5)]
    snap = snapshot([node("n1")], [queue("root.a")], pending=jobs)
    plan = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert len({id(e) for e in plan.explanations.values()}) == 1


# Room at each level


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """root.p.a beside root.p.b, with any guarantees, limits and lending."""

    def rows(least: int) -> tuple[Any, ...]:
        guaranteed = least + draw(st.integers(0, 3))
        limit = draw(st.none() | st.integers(guaranteed, 12))
        return (row(guaranteed=guaranteed, limit=limit, lend=draw(st.none() | st.integers(0, guaranteed))),)

    kids = [rows(0), rows(0)]
    parent = rows(sum(kid[0].guaranteed for kid in kids))
    return QueueTree.of(
        [
            queue("root", row(limit=draw(st.none() | st.integers(0, 14))), policy=Policy()),
            queue("root.p", *parent),
            queue("root.p.a", *kids[0]),
            queue("root.p.b", *kids[1]),
        ]
    )


@settings(max_examples=200, deadline=None)
@given(tree=trees(), used=st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_room_is_what_quota_lets_pass(tree: QueueTree, used: tuple[int, int]) -> None:
    account = (None, GPU)
    usage = Usage(QuotaBook(tree, {"default": {GPU: 13}}))
    for path, amount in zip(("root.p.a", "root.p.b"), used, strict=True):
        usage.add(path, {account: amount})
    rooms = dict(usage.rooms("root.p.a", account))
    for asks in range(1, 16):
        short = {s.queue for s in usage.shortfalls("root.p.a", {account: asks})}
        assert short == {path for path, room in rooms.items() if asks > room}, (asks, rooms)


def test_parts_are_json_and_their_sums_are_right() -> None:
    """What is stored and read again equals what was told, or a restart would write all of it once more."""
    told_on_nodes = 0
    for seed in range(150):
        plan = decide(seeded(seed), now=NOW, seed=0, budget=GREEDY)
        for explanation in plan.explanations.values():
            detail = dict(explanation.detail)
            assert json.loads(json.dumps(detail)) == detail
            assert len([h for h in detail.get("holders", ()) if "reservation" not in h]) <= 3
            if excluded := detail.get("excluded"):
                told_on_nodes += 1
                assert sum(cause["nodes"] for cause in excluded["by"]) == excluded["nodes"] <= excluded["of"]
    assert told_on_nodes >= 10


def test_what_can_never_start_is_not_told_to_wait_for_others() -> None:
    """More than its queue is guaranteed, whatever others use: that comes first, what is full today behind it."""
    never = gang("g", pod_set(6, 1), preemptible=False)
    queues = [queue("root"), queue("root.a", row(guaranteed=4)), queue("root.b")]
    busy = [running(gang(f"r{i}", pod_set(1, 4), queue="root.b"), {f"n{i}": 1}) for i in range(2)]
    full = running(gang("r", pod_set(1, 4), queue="root.b"), {"n1": 1})
    nodes = [node("n0"), node("n1")]
    for others, also in ((busy, []), ([*busy, full], [Token.WAITING_FOR_QUOTA])):
        why = told(snapshot(nodes, queues, admitted=others, pending=[never]))
        assert why.primary.token is Token.EXCEEDS_MAX_QUOTA
        assert why.primary.params["guaranteed"] == "4"
        assert [reason.token for reason in why.others] == also


def test_the_flavor_that_could_ever_hold_it_is_the_one_explained() -> None:
    """`job` can never have 8 of the 4 that x allows; it waits for y, which others have."""
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    nodes = [node("n0", labels={"f": "x"}), node("n1", labels={"f": "y"})]
    theirs = running(gang("theirs", pod_set(1, 8), queue="root.b"), {"n1": 1}, flavor="y")
    queues = [queue("root"), queue("root.a", row(flavor="x", limit=4), row(flavor="y", limit=8))]
    snap = snapshot(
        nodes,
        [*queues, queue("root.b", row(flavor="y", limit=8))],
        flavors=flavors,
        admitted=[theirs],
        pending=[gang("job", pod_set(1, 8))],
    )
    told = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0)).explanations["job"]
    assert told.primary.params["flavor"] == "y"
    assert told.primary.params["queue"] == "root"


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_flavor_that_cannot_be_used_is_not_told_while_another_is_busy(nodes: int) -> None:
    """The only node of x is cordoned or not ready. All of y are half full: one bears no more by quota, two do."""
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    busy = [running(gang(f"r{i}", pod_set(1, 4)), {f"n{i}": 1}, flavor="y") for i in range(nodes)]
    there = [node(f"n{i}", labels={"f": "y"}) for i in range(nodes)]
    for cordoned in (False, True):
        shut = [*there, node("n9", labels={"f": "x"}, unschedulable=cordoned, ready=cordoned)]
        snap = snapshot(
            shut, [queue("root.a")], flavors=flavors, admitted=busy, pending=[gang("g", pod_set(1, 8))]
        )
        why = told(snap)
        expected = Token.WAITING_FOR_QUOTA if nodes == 1 else Token.TOPOLOGY_PLACEMENT_FAILED
        assert (why.primary.token, why.verdict) == (expected, Verdict.WAIT)
    every = [replace(one, unschedulable=True) for one in (*there, node("n9", labels={"f": "x"}))]
    snap = snapshot(
        every, [queue("root.a")], flavors=flavors, admitted=busy, pending=[gang("g", pod_set(1, 4))]
    )
    assert (told(snap).primary.token, told(snap).verdict) == (Token.NODES_UNAVAILABLE, Verdict.ESCALATE)


def test_room_that_is_kept_is_told_before_flavors_without_any() -> None:
    """Of x no node has room; of y one is free, and kept for `big`."""
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    only_y = SchedulingTerms(node_selector={"f": "y"})
    taken = {"n0": ("x", 3), "n1": ("x", 3), "n3": ("y", 4)}
    snap = snapshot(
        [node(f"n{i}", gpu=4, labels={"f": "x" if i < 2 else "y"}) for i in range(4)],
        [queue("root", policy=Policy(preempt=Preempt.NEVER, reservations=1)), queue("root.a")],
        flavors=flavors,
        admitted=[
            running(gang(f"r{on}", pod_set(1, gpus)), {on: 1}, flavor=flavor, expected_end=900.0)
            for on, (flavor, gpus) in taken.items()
        ],
        pending=[gang("big", pod_set(2, 4, terms=only_y), priority=5), gang("g", pod_set(1, 2))],
    )
    why = told(snap)
    assert (why.primary.token, why.primary.params["owner"]) == (Token.BEHIND_IN_QUEUE, "big")
    assert by(why)["Reserved"] == 1
