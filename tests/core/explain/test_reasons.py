"""Each cause has a world that earns its token; the sentence names queue, domain or job, and the amounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.core.explain.reasons import reasons
from queuer.core.records import Admitted, Bond, Pending, Snapshot
from queuer.core.refusal import Block, Refusal
from queuer.domain.nodes import Flavor, SchedulingTerms
from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueState
from queuer.domain.reasons import Explanation, Reason, Token, Verdict
from queuer.domain.workload import Workload
from tests.core.make import (
    GPU,
    decided,
    gang,
    landing,
    node,
    pod_set,
    queue,
    row,
    running,
    snapshot,
    started,
    state_of,
)

QUIET = Policy(preempt=Preempt.NEVER)
FLAVORS = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
TWO = (queue("root.a"), queue("root.b"))


def cluster(
    *waiting: Workload | Pending,
    queues: tuple[Queue, ...] = TWO,
    admitted: tuple[Admitted, ...] = (),
    cordoned: bool = False,
    **more: Any,
) -> Snapshot:
    """Four nodes of four GPUs in two racks."""
    nodes = [
        node(f"n{i}", gpu=4, labels={"block": "b", "rack": f"r{i // 2}"}, unschedulable=cordoned)
        for i in range(4)
    ]
    return snapshot(nodes, queues, admitted=admitted, pending=waiting, **more)


def told(snap: Snapshot, uid: str = "g") -> Reason:
    """Why the gang waits, which has one reason like everybody else."""
    plan = decided(snap)
    assert plan.explanations.keys() == {p.workload.uid for p in snap.pending} - started(plan)
    assert all(why == Explanation(primary=why.primary) for why in plan.explanations.values())
    return plan.explanations[uid].primary


# Quota


def test_three_limits_three_reasons() -> None:
    """Own, parent's, root's: each names its queue and its amounts."""
    runs = running(gang("w", pod_set(2, 1), queue="root.p.x"), {"n0": 2})
    for path, own, above, top in (("root.p.x", 4, 9, 9), ("root.p", 9, 4, 9), ("root", 9, 9, 4)):
        limits = {"root": top, "root.p": above, "root.p.x": own}
        queues = tuple(queue(name, row(limit=limit)) for name, limit in limits.items())
        reason = told(cluster(gang("g", pod_set(3, 1), queue="root.p.x"), queues=queues, admitted=(runs,)))
        assert reason.token is Token.WAITING_FOR_QUOTA
        assert reason.text == f"{path} uses 2 of 4 {GPU} (the limit); this job asks 3."


@pytest.mark.parametrize(
    ("asks", "guaranteed", "token"),
    [(3, 2, Token.BORROWING_LIMIT_REACHED), (3, 6, Token.WAITING_FOR_QUOTA), (9, 2, Token.EXCEEDS_MAX_QUOTA)],
)
def test_above_its_guarantee_it_may_not_borrow_more(asks: int, guaranteed: int, token: Token) -> None:
    queues = (queue("root.p", row(limit=4)), queue("root.p.a", row(guaranteed=guaranteed, limit=8)))
    queues = queues if guaranteed < 5 else (queue("root.p.a", row(guaranteed=6, limit=8)), queues[0])
    mine = gang("w", pod_set(2, 1), queue="root.p.a")
    snap = cluster(
        gang("g", pod_set(asks, 1), queue="root.p.a"), queues=queues, admitted=(running(mine, {"n0": 2}),)
    )
    assert told(snap).token is token


@pytest.mark.parametrize(
    ("count", "where", "text"),
    [
        (9, "root.a", f"Asks 9 {GPU}; root.a may never use more than 8."),
        (17, "root.b", f"Asks 17 {GPU}; the cluster has 16."),
        (
            14,
            "root.c",
            f"Asks 14 {GPU}; even when nothing runs 13 of the 16 of root (the live capacity) are left, as 3 are not "
            "lent. It could start if 1 more were lent, or if it asked for 13 at most.",
        ),
    ],
)
def test_more_than_there_can_ever_be_is_told_to_change(count: int, where: str, text: str) -> None:
    queues = (queue("root.a", row(limit=8)), queue("root.b", row(guaranteed=3, lend=0)), queue("root.c"))
    reason = told(cluster(gang("g", pod_set(count, 1), queue=where), queues=queues))
    assert (reason.token, reason.verdict, reason.text) == (Token.EXCEEDS_MAX_QUOTA, Verdict.CHANGE, text)


def test_a_limit_that_is_written_comes_before_the_live_capacity() -> None:
    full = running(gang("r", pod_set(10, 1)), {"n0": 4, "n1": 4, "n2": 2})
    snap = cluster(
        gang("g", pod_set(7, 1)), queues=(queue("root", row(limit=10)), queue("root.a")), admitted=(full,)
    )
    assert told(snap).text == f"root uses 10 of 10 {GPU} (the limit); this job asks 7."


@pytest.mark.parametrize(
    ("guaranteed", "token", "text"),
    [
        (4, Token.WAITING_FOR_QUOTA, "root.a uses 2 of its guaranteed 4 example.com/gpu; this job asks 3."),
        (2, Token.EXCEEDS_MAX_QUOTA, "root.a uses 2 of its guaranteed 2 example.com/gpu; this job asks 3."),
        (
            None,
            Token.EXCEEDS_MAX_QUOTA,
            "this job asks 3 example.com/gpu; root.a is guaranteed none of that.",
        ),
    ],
)
def test_work_that_is_not_preemptible_does_not_borrow(
    guaranteed: int | None, token: Token, text: str
) -> None:
    """What can never start is told so first, however full the cluster is."""
    runs = running(gang("w", pod_set(2, 1)), {"n0": 2})
    queues = (queue("root.a", row(guaranteed=guaranteed)), queue("root.b"))
    waits = gang("g", pod_set(3, 1), preemptible=False)
    reason = told(cluster(waits, queues=queues, admitted=(runs,)))
    assert (reason.token, reason.text.endswith(text)) == (token, True)
    if token is Token.EXCEEDS_MAX_QUOTA:
        full = running(gang("f", pod_set(14, 1), queue="root.b"), {"n0": 2, "n1": 4, "n2": 4, "n3": 4})
        assert told(cluster(waits, queues=queues, admitted=(runs, full))).token is token


def test_figures_of_a_gang_with_a_size_range_are_those_of_its_smallest() -> None:
    full = running(gang("r", pod_set(1, 8)), {"n0": 1})
    nodes, limited = [node("n0")], queue("root.a", row(limit=8))
    snap = snapshot(nodes, [limited], admitted=[full], pending=[gang("g", pod_set(4, 1, min_count=2))])
    assert told(snap).text == f"root.a uses 8 of 8 {GPU} (the limit); this job asks at least 2."


# Nodes


def test_no_rack_has_room_though_the_amount_is_free() -> None:
    full = tuple(running(gang(f"w{i}", pod_set(4, 1), queue="root.b"), {f"n{i}": 4}) for i in (0, 2))
    reason = told(cluster(gang("g", pod_set(6, 1), required="rack"), admitted=full))
    assert (reason.token, reason.verdict) == (Token.TOPOLOGY_PLACEMENT_FAILED, Verdict.WAIT)
    assert reason.text == (
        f"main needs room for 6 pods of 1 {GPU} in one rack; 4 fit in the best rack, r0, 2 are missing."
    )


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (
            gang("g", pod_set(3, 3), required="rack"),
            f"main needs room for 3 pods of 3 {GPU} in one rack; even with every node idle 2 would fit in the best "
            "rack, r0, 1 would be missing.",
        ),
        (
            gang("g", pod_set(1, 3), pod_set(1, 2, name="second"), required="host"),
            f"main needs room for 1 pod of 3 {GPU}; second needs room for 1 pod of 2 {GPU}; all of these in one host: "
            "there is room for each alone, not for all together, not even with every node idle.",
        ),
    ],
)
def test_what_no_idle_cluster_could_hold_is_told_to_change(asks: Workload, text: str) -> None:
    reason = told(cluster(asks))
    assert (reason.verdict, reason.text) == (Verdict.CHANGE, text)


def test_what_keeps_every_node_from_a_job() -> None:
    """A selector is the job's fault; cordons and a cluster without nodes are the operator's; a level is nobody's."""
    picky = gang("g", pod_set(1, 1, terms=SchedulingTerms(node_selector={"disk": "ssd"})))
    avoids = Pending(workload=gang("g", pod_set(1, 1)), avoid=frozenset({"n0", "n1", "n2", "n3"}))
    found = {
        "None of the 4 nodes accepts the selectors and tolerations of main.": cluster(picky),
        "None of the 4 nodes for main can be used: 4 cordoned.": cluster(
            gang("g", pod_set(1, 1)), cordoned=True
        ),
        "None of the 4 nodes for main can be used: 4 avoided after a failed landing.": cluster(avoids),
        "The cluster has no nodes.": snapshot([], TWO, pending=[gang("g", pod_set(1, 1))]),
        "There is no topology level zone; levels: block, rack, host.": cluster(
            gang("g", pod_set(1, 1), required="zone")
        ),
    }
    told_of = {text: told(snap) for text, snap in found.items()}
    assert [reason.text for reason in told_of.values()] == list(found)
    tokens = [Token.NO_MATCHING_FLAVOR, *[Token.NODES_UNAVAILABLE] * 3, Token.MISCONFIGURED]
    assert [reason.token for reason in told_of.values()] == tokens


@pytest.mark.parametrize("busy", [4, 6])
def test_the_flavor_is_told_on_which_it_could_start_one_day(busy: int) -> None:
    """Of x the only node is cordoned, or a limit is too low for ever; of y too little is free."""
    nodes = [node("n0", labels={"f": "x"}, unschedulable=busy == 4), node("n1", labels={"f": "y"})]
    rows = (row(flavor="x", limit=8 if busy == 4 else 2), row(flavor="y", limit=8))
    runs = running(gang("r", pod_set(1, busy), queue="root.b"), {"n1": 1}, flavor="y")
    snap = snapshot(
        nodes,
        [queue("root.a", *rows), queue("root.b", row(flavor="y"))],
        flavors=FLAVORS,
        admitted=[runs],
        pending=[gang("g", pod_set(1, 5))],
    )
    reason = told(snap)
    assert (reason.token, reason.params["flavor"]) == (Token.WAITING_FOR_QUOTA, "y")
    assert reason.text == f"root uses {busy} of 8 {GPU} on y (the live capacity); this job asks 5."


# Other jobs


def test_behind_the_head_of_a_strict_queue() -> None:
    """What keeps it there is told, where the head can never start."""
    strict = (queue("root.a", row(limit=4), policy=Policy(order=Order.STRICT)), queue("root.b"))
    runs, waits = running(gang("w", pod_set(1, 1)), {"n0": 1}), gang("g", pod_set(1, 1), submitted=1.0)
    behind = told(cluster(gang("head", pod_set(4, 1)), waits, queues=strict, admitted=(runs,)))
    assert (behind.token, behind.verdict, behind.params["owner"]) == (
        Token.BEHIND_IN_QUEUE,
        Verdict.WAIT,
        "head",
    )
    never = told(cluster(gang("head", pod_set(5, 1)), waits, queues=strict, admitted=(runs,)))
    assert never.verdict is Verdict.CHANGE
    assert never.text.endswith(f"delete it: Asks 5 {GPU}; root.a may never use more than 4.")


def test_behind_a_reservation() -> None:
    ending = running(gang("w", pod_set(12, 1)), {"n0": 4, "n1": 4, "n2": 4}, expected_end=600.0)
    snap = cluster(gang("big", pod_set(16, 1)), admitted=(ending,))
    waits = Pending(workload=gang("g", pod_set(1, 1), submitted=1.0))
    snap = replace(snap, pending=(*snap.pending, waits), reservations=decided(snap).reservations)
    reason = told(snap)
    assert (reason.token, reason.params["owner"]) == (Token.BEHIND_IN_QUEUE, "big")
    assert reason.text == "test/big holds a reservation of 4 nodes that this job would break."


def test_behind_pods_that_are_still_landing() -> None:
    """Those of `l` may take any two of three hosts."""
    comes = landing("l", 2, 2, "n0", "n1", "n2")
    reason = told(cluster(gang("g", pod_set(6, 2)), admitted=(comes,)))
    assert (reason.token, reason.params["owner"], reason.params["landing"]) == (
        Token.BEHIND_IN_QUEUE,
        "l",
        True,
    )
    assert reason.text == (
        "It fits but for pods of test/l that are still landing on n1; it is tried again when they are bound."
    )


def test_bound_gangs_wait_for_their_victims() -> None:
    queues = (queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=8)))
    borrowers = tuple(running(gang(f"w{i}", pod_set(1, 4), queue="root.b"), {f"n{i}": 1}) for i in range(4))
    snap = cluster(gang("g", pod_set(4, 1)), queues=queues, admitted=borrowers)
    reason, (eviction,) = told(snap), decided(snap).evictions
    assert reason.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert (reason.params["victims"], reason.params["left"]) == ([eviction.uid], 1)
    assert reason.text == f"1 node is held for it; it starts when the pods of test/{eviction.uid} have left."


def test_who_takes_no_part() -> None:
    """On hold; queue held; unknown queue with the nearest name."""
    queues = (queue("root.a"), queue("root.b", state=QueueState.HELD))
    sets = pod_set(1, 1)
    waiting = (
        gang("h", sets, hold=True),
        gang("b", sets, queue="root.b"),
        gang("g", sets, queue="root.aa"),
    )
    plan = decided(cluster(*waiting, queues=queues))
    tokens = {uid: why.primary.token for uid, why in plan.explanations.items()}
    assert tokens == {"h": Token.ON_HOLD, "b": Token.SUSPENDED, "g": Token.MISCONFIGURED}
    assert plan.explanations["g"].primary.params["nearest"][0] == "root.a"


# One record


def test_gangs_that_are_alike_share_one_explanation() -> None:
    """Ten thousand of them cost as much as one. Work of their shape that may not borrow is told so."""
    jobs = [gang(f"g{i}", pod_set(9, 8), submitted=float(i)) for i in range(5)]
    other = gang("g", pod_set(9, 8), preemptible=False)
    why = decided(snapshot([node("n1")], TWO, pending=[*jobs, other])).explanations
    assert len({id(why[job.uid]) for job in jobs}) == 1
    assert "asked" in why["g"].primary.params


def test_what_has_been_given_back_and_who_had_no_turn() -> None:
    """What was in the way at a turn is there at the end: the next cycle decides. Nobody is left without a reason."""
    state = state_of(cluster(gang("q", pod_set(1, 1)), gang("p", pod_set(1, 1)), gang("n", pod_set(1, 1))))
    variant, charge = state.arrays.lines.gangs["q"].shape.least[0]
    found = reasons(
        state,
        refusals={
            "q": Refusal(block=Block.QUOTA, variant=variant, charge=charge),
            "p": Refusal(block=Block.PLACE, variant=variant, charge=charge),
        },
        held_up={},
        bonds=dict[str, Bond](),
        aside={},
        order=("q", "p", "n"),
    )
    told_of = {uid: (why.primary.token, dict(why.primary.params)) for uid, why in found.items()}
    assert told_of == {
        "q": (Token.PENDING_EVALUATION, {"freed": "quota"}),
        "p": (Token.PENDING_EVALUATION, {"freed": "room"}),
        "n": (Token.SOLVER_DEFERRED, {"cause": "Plan"}),
    }
