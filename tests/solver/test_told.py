"""What waiting gangs are told is counted again; sentences say what is used, what is held and who has it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms, Topology
from queuer.domain.queue import Policy, Preempt
from queuer.domain.reasons import Deferral, Token, Verdict
from queuer.domain.workload import Workload
from queuer.solver.decide import decide
from queuer.solver.explain import sentences
from queuer.solver.problem import Admitted, Assignment, Bond, Budget, Snapshot
from tests.solver import worlds
from tests.solver.cases import seeded
from tests.solver.cases_reserved import reserving
from tests.solver.cycles import Life
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.told import Recount, told

GREEDY, EXACT = Budget(deterministic=0.0), Budget()
FLAVORS = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
RACKS = Topology(keys=("rack",))


@pytest.mark.parametrize("seed", range(12))
def test_every_figure_of_a_life_is_what_is_counted(seed: int) -> None:
    """With bonds, reservations, late pods and victims on their way out."""
    life = Life(Random(seed), (reserving if seed % 2 else seeded)(seed), expecting=seed % 3 == 2)
    for number in range(8):
        at = life.now
        snap, plan = life.cycle(GREEDY)
        assert list(Recount(snap, plan, at).faults()) == [], (seed, number)


@pytest.mark.parametrize(
    ("seed", "size"), [*((seed, 16) for seed in range(20)), (745, 24), (820, 8), (920, 24)]
)
def test_every_figure_of_a_world_is_what_is_counted(seed: int, size: int) -> None:
    """The last three: the exact solver moves others after the turns, and gangs are put off that had a place."""
    snap = worlds.world(seed, nodes=size, pending=size, running=size)
    if seed == 920:
        snap = worlds.packed(snap, 128)
    plan = decide(snap, now=worlds.NOW, seed=0, budget=EXACT)
    assert list(Recount(snap, plan, worlds.NOW).faults()) == []


# Used and held


def bound(
    waits: Workload,
    *also: Admitted,
    guaranteed: int,
    limit: int | None = None,
    sizes: tuple[int, int, int] = (4, 3, 2),
) -> Snapshot:
    """`early` of queue a is bound to n0, which v of queue b leaves; r of a runs on n1. Nodes of these sizes."""
    leaves = running(gang("v", pod_set(1, 4), queue="root.b"), {"n0": 1}, releasing=True)
    place = Assignment(pod_set="main", flavor="default", nodes={"n0": 1})
    return snapshot(
        [node(f"n{i}", gpu=size) for i, size in enumerate(sizes)],
        [
            queue("root.a", row(guaranteed=guaranteed, limit=limit), policy=Policy(preempt=Preempt.NEVER)),
            queue("root.b"),
        ],
        admitted=[leaves, running(gang("r", pod_set(1, 3)), {"n1": 1}), *also],
        pending=[gang("early", pod_set(1, 4), submitted=-9.0), waits],
        bonds=(Bond(uid="early", assignments=(place,), victims=("v",), deadline=99.0),),
    )


def test_held_is_not_used_where_work_may_not_borrow() -> None:
    """a uses 3 of its 8, and 4 are held for `early`: two more would be one too many."""
    reason = told(bound(gang("g", pod_set(1, 2), preemptible=False), guaranteed=8)).primary
    assert reason.text == (
        f"Work that is not preemptible does not borrow: root.a uses 3 of its guaranteed 8 {GPU}, 4 more are held "
        "for jobs that start when others have left; this job asks 2."
    )
    assert (reason.params["used"], reason.params["held"]) == ("3", "4")


def test_held_is_not_used_where_a_guarantee_is_claimed() -> None:
    other = running(gang("w", pod_set(1, 5), queue="root.b", preemptible=False), {"n1": 1})
    snap = bound(gang("g", pod_set(1, 5)), other, guaranteed=12, sizes=(4, 8, 3))
    reason = told(snap).primary
    assert reason.text.startswith(
        f"root.a uses 3 of its guaranteed 12 {GPU}, 4 more are held for jobs that start when others have "
        "left, and may claim 5 more. This job asks 5: "
    )


def test_held_counts_in_a_limit_beside_what_is_used() -> None:
    reason = told(bound(gang("g", pod_set(1, 2)), guaranteed=4, limit=8)).primary
    assert reason.text == (
        f"root.a uses 3 of 8 {GPU} (the limit), 4 more are held for jobs that start when others have left; "
        "this job asks 2."
    )


def test_what_is_held_for_a_gang_that_is_put_off_counts() -> None:
    """The places of `a`, `b` and `c` are free, but the pods of `a` and `b` could take each other's room there: their
    bonds stay.
    """
    sets = {
        "a": (pod_set(3, 2, exclusive_host=True), pod_set(2, 1, name="second")),
        "b": (pod_set(3, 2), pod_set(1, 1, name="second")),
        "c": (pod_set(2, 2), pod_set(1, 2, name="second")),
    }
    places: dict[str, tuple[dict[str, int], dict[str, int]]] = {
        "a": ({"n0": 1, "n1": 1, "n2": 1}, {"n1": 2}),
        "b": ({"n1": 1, "n2": 2}, {"n2": 1}),
        "c": ({"n0": 2}, {"n0": 1}),
    }
    bonds = tuple(
        Bond(
            uid=uid,
            assignments=tuple(
                Assignment(pod_set=name, flavor="default", nodes=nodes)
                for name, nodes in zip(("main", "second"), spreads, strict=True)
            ),
            victims=(),
            deadline=99.0,
        )
        for uid, spreads in places.items()
    )
    waits = gang("g", pod_set(3, 2, exclusive_host=True), pod_set(2, 3, name="second"), submitted=9.0)
    snap = snapshot(
        [node("n0"), node("n1", gpu=6), node("n2", gpu=7)],
        [queue("root.a")],
        pending=[*(gang(uid, *asked) for uid, asked in sets.items()), waits],
        bonds=bonds,
    )
    plan = decide(snap, now=0.0, seed=0, budget=GREEDY)
    assert {bond.uid for bond in plan.bonds} == {"a", "b"}
    assert plan.explanations["g"].primary.params["held"] == "15"
    assert list(Recount(snap, plan, 0.0).faults()) == []


@pytest.mark.parametrize("leaves", [True, False])
def test_a_bound_gang_is_told_to_wait_for_pods_that_are_still_there(leaves: bool) -> None:
    """Those of v leave n0, or have left it, and pods that are not ours are there."""
    place = Assignment(pod_set="main", flavor="default", nodes={"n0": 1})
    v = running(gang("v", pod_set(1, 4), queue="root.b"), {"n0": 1}, releasing=True)
    snap = snapshot(
        [node("n0", gpu=4)],
        [queue("root.a"), queue("root.b")],
        admitted=[v] if leaves else [],
        pending=[gang("g", pod_set(1, 4))],
        bonds=(Bond(uid="g", assignments=(place,), victims=("v",), deadline=99.0),),
        foreign={} if leaves else {"n0": {GPU: 4, "pods": 1}},
    )
    starts = "it starts when the pods of test/v have left"
    if not leaves:
        starts = (
            "the workloads that it waited for have left, and it starts when nothing else is in the way there"
        )
    assert told(snap).primary.text == f"1 node is held for it; {starts}."


def test_figures_of_a_gang_with_a_size_range_are_those_of_its_smallest() -> None:
    full = running(gang("r", pod_set(1, 8)), {"n0": 1})
    waits = gang("g", pod_set(4, 1, min_count=2))
    limited = snapshot([node("n0")], [queue("root.a", row(limit=8))], admitted=[full], pending=[waits])
    assert told(limited).primary.text == f"root.a uses 8 of 8 {GPU} (the limit); this job asks at least 2."


def test_a_gang_with_a_size_range_is_inside_its_guarantee_if_its_smallest_size_is() -> None:
    full = running(gang("r", pod_set(1, 3), queue="root.p.b", preemptible=False), {"n0": 1})
    queues = [
        queue("root.p", row(guaranteed=4, limit=4)),
        queue("root.p.a", row(guaranteed=2)),
        queue("root.p.b"),
    ]
    for count, token in (
        (4, Token.WAITING_FOR_QUOTA),
        (2, Token.WAITING_FOR_QUOTA),
        (3, Token.BORROWING_LIMIT_REACHED),
    ):
        waits = gang("g", pod_set(count, 1, min_count=2 if count == 4 else None), queue="root.p.a")
        assert told(snapshot([node("n0")], queues, admitted=[full], pending=[waits])).primary.token is token


@pytest.mark.parametrize(
    ("count", "limit", "left"),
    [
        (3, None, "7 are free, 8 more"),
        (3, 28, "root.p has 4 left of its limit of 28, 8 more"),
        (2, 20, "root.p has 0 left of its limit of 20, 4 more"),
        (2, 17, "root.p has 0 left of its limit of 17, 1 more"),
        (1, 15, "root.p is 9 above its limit of 15, 8 fewer"),
    ],
)
def test_room_of_who_is_leaving_is_told_beside_what_is_free(count: int, limit: int | None, left: str) -> None:
    """Two of b run on and one leaves, for which the lower limits have no room."""
    stay = [
        running(gang(f"s{i}", pod_set(1, 8), queue="root.p.b", preemptible=False), {f"n{i}": 1})
        for i in (0, 1)
    ]
    leaves = running(gang("v", pod_set(1, 8), queue="root.p.b"), {"n2": 1}, releasing=True, gone_by=30.0)
    snap = snapshot(
        [*(node(f"n{i}") for i in range(3)), node("n3", gpu=7)],
        [queue("root.p", row(limit=limit)), queue("root.p.a", row(guaranteed=24)), queue("root.p.b")],
        admitted=[*stay, leaves],
        pending=[gang("g", pod_set(count, 8), queue="root.p.a")],
    )
    plan = decide(snap, now=0.0, seed=0, budget=GREEDY)
    reason = plan.explanations["g"].primary
    assert (
        f" This job asks {8 * count}: {left} once others have left, 0 of the 16 that others borrow"
        in reason.text
    )
    assert list(Recount(snap, plan, 0.0).faults()) == []


# Who holds it


def test_who_starts_in_this_cycle_holds_it_from_now_on() -> None:
    """Of a quota, and of a node."""
    first, waits = gang("first", pod_set(1, 6), submitted=-1.0, estimate=60.0), gang("g", pod_set(1, 4))
    row_of = {"workload": "first", "name": "first", "namespace": "test", "queue": "root.a"}
    holder = {**row_of, "resource": GPU, "amount": "6", "ends": 60.0, "starting": True}
    limited = snapshot([node("n0")], [queue("root.a", row(limit=8))], pending=[first, waits])
    assert told(limited).detail["holders"] == [holder]
    full = running(gang("r", pod_set(1, 5), queue="root.b"), {"n1": 1})
    nodes = [node(f"n{i}", labels={"rack": f"r{i}"}) for i in (0, 1)]
    waits = replace(waits, required="rack")
    racks = snapshot(nodes, [queue("root.a"), queue("root.b")], admitted=[full], pending=[first, waits])
    assert told(racks).detail["holders"] == [holder]


@pytest.mark.parametrize("waits_in", ["root.a", "root.a.b"])
def test_who_runs_in_a_queue_that_is_no_more_holds_it(waits_in: str) -> None:
    """Its use counts in the queue above, which is a leaf now, or has others below it."""
    left = running(gang("left", pod_set(1, 3), queue="root.a.gone"), {"n0": 1})
    queues = [queue("root.a", row(limit=4)), *([] if waits_in == "root.a" else [queue(waits_in)])]
    waits = gang("g", pod_set(1, 2), queue=waits_in)
    snap = snapshot([node("n0")], queues, admitted=[left], pending=[waits])
    assert [holder["workload"] for holder in told(snap).detail["holders"]] == ["left"]


def test_who_is_bound_to_a_node_holds_it() -> None:
    """v leaves n0 for `early`."""
    snap = bound(gang("g", pod_set(1, 4), required="host"), guaranteed=12, sizes=(4, 3, 8))
    nodes = tuple(replace(s, node=replace(s.node, unschedulable=s.node.name != "n0")) for s in snap.nodes)
    held = told(replace(snap, nodes=nodes)).detail["holders"]
    assert [(h["workload"], h.get("held"), h.get("leaving")) for h in held] == [
        ("early", True, None),
        ("v", None, True),
    ]


# Words


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (gang("g", pod_set(1, 5)), "main needs room for 1 pod of 5 {}; none fits on any usable node."),
        (
            gang("g", pod_set(1, 5), required="rack"),
            "main needs room for 1 pod of 5 {} in one rack; none fits in any rack.",
        ),
        (
            gang("g", pod_set(3, 7), required="rack"),
            "main needs room for 3 pods of 7 {} in one rack; even with every node idle 2 would fit in the best rack, "
            "r0, 1 would be missing.",
        ),
        (
            gang("g", pod_set(1, 3), pod_set(1, 2, name="second"), required="host"),
            "main needs room for 1 pod of 3 {0}; second needs room for 1 pod of 2 {0}; all of these in one host: "
            "there is room for each alone, not for all together.",
        ),
        (
            gang("g", pod_set(2, 2, required="host"), pod_set(5, 1, name="second"), required="rack"),
            "main needs room for 2 pods of 2 {0} in one host; second needs room for 5 pods of 1 {0}; all of these in "
            "one rack: there is room for each alone, not for all together.",
        ),
        (
            gang("g", pod_set(4, 1), pod_set(3, 4, name="second", required="host")),
            "second needs room for 3 pods of 4 {} in one host; even with every node idle 2 would fit in the best host, "
            "n0, 1 would be missing.",
        ),
    ],
)
def test_what_nodes_lack(asks: Workload, text: str) -> None:
    """Four nodes of 8 in two racks, 4 free on each. What no end of others' work would help is told as such, also of one
    of several sets.
    """
    nodes = [node(f"n{i}", labels={"rack": f"r{i // 2}"}) for i in range(4)]
    used = [running(gang(f"u{i}", pod_set(1, 4), queue="root.b"), {f"n{i}": 1}) for i in range(4)]
    snap = snapshot(nodes, [queue("root.a"), queue("root.b")], admitted=used, pending=[asks], topology=RACKS)
    assert told(snap).primary.text == text.format(GPU)


@pytest.mark.parametrize(
    ("of_all", "own", "level"), [("rack", "host", "host"), ("host", "rack", "host"), ("rack", None, "rack")]
)
def test_the_narrower_level_is_needed(of_all: str, own: str | None, level: str) -> None:
    asks = gang("g", pod_set(1, 9, required=own), required=of_all)
    snap = snapshot([node("n0", labels={"rack": "r0"})], [queue("root.a")], pending=[asks], topology=RACKS)
    assert told(snap).detail["need"][0]["level"] == level


def test_a_cluster_without_nodes_is_a_matter_for_its_operator() -> None:
    reason = told(snapshot([], [queue("root.a")], pending=[gang("g", pod_set(1, 1))])).primary
    assert (reason.token, reason.verdict) == (Token.NODES_UNAVAILABLE, Verdict.ESCALATE)
    assert reason.text == "The cluster has no nodes."


def test_flavors_without_nodes_and_nodes_that_do_not_accept() -> None:
    """The first is no fault of the job, the second is."""
    only_y = [queue("root.a", row(flavor="y", limit=8))]
    there = [node("n0", labels={"f": "x"}), node("n1", labels={"f": "x"})]
    none = snapshot(there, only_y, flavors=FLAVORS, pending=[gang("g", pod_set(1, 1))])
    assert told(none).primary.token is Token.NODES_UNAVAILABLE
    assert told(none).primary.text == "The cluster has no node of the flavors that root.a allows: y."
    picky = gang("g", pod_set(1, 1, terms=SchedulingTerms(node_selector={"disk": "ssd"})))
    refused = snapshot(there, [queue("root.a")], flavors=FLAVORS, pending=[picky])
    assert (told(refused).primary.token, told(refused).verdict) == (Token.NO_MATCHING_FLAVOR, Verdict.CHANGE)
    assert (
        told(refused).primary.text
        == "None of the 2 nodes of x, y accepts the selectors and tolerations of main."
    )


def test_every_cause_of_a_deferral_has_words_of_its_own() -> None:
    """For programs, and for people."""
    told = [sentences.deferred(cause, others=others) for cause in Deferral for others in (False, True)]
    assert [Deferral(reason.params["cause"]) for reason in told[::2]] == list(Deferral)
    assert len({reason.text for reason in told}) == 2 * len(Deferral) - 1  # a whole plan is nobody's question
    assert all(reason.text.endswith("; the next one tries again.") for reason in told)


def test_nodes_that_cannot_be_used_are_counted() -> None:
    nodes = [node("n0", unschedulable=True), node("n1", ready=False), node("n2", ready=False)]
    reason = told(snapshot(nodes, [queue("root.a")], pending=[gang("g", pod_set(1, 1))])).primary
    assert reason.text == "None of the 3 nodes for main can be used: 1 cordoned, 2 not ready."


def test_figures_of_one_resource_are_not_mixed_with_those_of_another() -> None:
    """a may claim GPUs; what it lacks is CPU, which nobody has to give back."""
    sets = replace(pod_set(1, 1), requests={GPU: 1, "cpu": 4000, "pods": 1})
    nodes = [replace(node("n0"), allocatable={GPU: 8, "cpu": 8000, "pods": 20})]
    taken = running(
        gang("r", replace(pod_set(1, 0), requests={"cpu": 6000, "pods": 1}), queue="root.b"), {"n0": 1}
    )
    snap = snapshot(
        nodes,
        [queue("root.a", row(guaranteed=4)), queue("root.b")],
        admitted=[taken],
        pending=[gang("g", sets)],
    )
    assert told(snap).primary.text == "root uses 6 of 8 cpu (the live capacity); this job asks 4."
