"""Who can never start, or waits behind such a one, is told so, with the cause in each flavor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import Order, Policy, QuotaRow
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.problem import Budget
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.told import Recount, told

GREEDY = Budget(deterministic=0.0)
FLAVORS = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
RACKS = Topology(keys=("rack",))


def test_who_is_held_up_in_a_strict_queue_is_told_of_the_head_that_holds_it_up() -> None:
    """`none` may use no flavor, so nobody waits behind it, `other` another one than most. Who waits behind several is
    told of one that can never start.
    """
    fpga = PodSet(name="second", count=400, requests={"fpga": 1})
    heads = [
        gang("none", PodSet(name="main", count=1, requests={GPU: 1, "fpga": 1})),
        gang("other", fpga, submitted=1.0),
        gang("first", pod_set(1, 4), submitted=2.0),
    ]
    behind = [
        gang("next", pod_set(1, 2), submitted=3.0),
        gang("both", pod_set(1, 2), replace(fpga, count=1), submitted=4.0),
    ]
    has_one = replace(node("y0", labels={"f": "y"}), allocatable={"fpga": 1, "pods": 20})
    snap = snapshot(
        [node("x0", gpu=4, labels={"f": "x"}), has_one],
        [queue("root.a", row(flavor="x"), row("fpga", flavor="y"), policy=Policy(order=Order.STRICT))],
        flavors=FLAVORS,
        admitted=[running(gang("r", pod_set(1, 1)), {"x0": 1}, flavor="x")],
        pending=[*heads, *behind],
    )
    why = decide(snap, now=0.0, seed=0, budget=GREEDY).explanations
    assert {uid for uid, one in why.items() if one.primary.token is Token.BEHIND_IN_QUEUE} == {
        "next",
        "both",
    }
    assert (
        why["next"].primary.text == "test/first is ahead of it in root.a, whose order is strict, and waits."
    )
    assert [why[uid].verdict for uid in ("next", "both")] == [Verdict.WAIT, Verdict.CHANGE]
    assert [why[uid].primary.params["owner"] for uid in ("next", "both")] == ["first", "other"]


def test_who_may_not_borrow_waits_for_the_flavor_whose_guarantee_it_fits() -> None:
    """Told of the first it would have to be changed, though it starts as soon as the other is free."""
    rows = [row(flavor="x", guaranteed=1), row(flavor="y", guaranteed=2)]
    snap = snapshot(
        [node("x0", labels={"f": "x"}), node("y0", labels={"f": "y"})],
        [queue("root.a", *rows)],
        admitted=[running(gang("r", pod_set(1, 2)), {"y0": 1}, flavor="y")],
        flavors=FLAVORS,
        pending=[gang("g", pod_set(1, 2), preemptible=False)],
    )
    why = told(snap)
    assert why.verdict is Verdict.WAIT
    assert f"uses 2 of its guaranteed 2 {GPU} on y" in why.primary.text


@pytest.mark.parametrize(
    ("rows", "sets", "preemptible", "causes"),
    [
        pytest.param(
            (row(flavor="x", limit=0), row(flavor="y")),
            (pod_set(2, 8),),
            True,
            {
                "x": f"Asks 16 {GPU} on x; root.a may never use more than 0.",
                "y": f"main needs room for 2 pods of 8 {GPU} in one rack; even with every node idle 1 would fit in the "
                "best rack, r0, 1 would be missing.",
            },
            id="a limit here, no rack there",
        ),
        pytest.param(
            (row(flavor="x", limit=0), row(flavor="y", guaranteed=4)),
            (pod_set(1, 6),),
            False,
            {
                "x": f"Asks 6 {GPU} on x; root.a may never use more than 0.",
                "y": f"Work that is not preemptible does not borrow: root.a uses 0 of its guaranteed 4 {GPU} on y; "
                "this job asks 6.",
            },
            id="a limit here, a guarantee there",
        ),
        pytest.param(
            (row(flavor="y", limit=4), row(flavor="x", limit=4)),
            (pod_set(1, 2), pod_set(1, 5, name="second")),
            True,
            {
                "y": f"Asks 7 {GPU} on y; root.a may never use more than 4.",
                "y (main), x (second)": f"Asks 5 {GPU} on x; root.a may never use more than 4.",
                "x (main), y (second)": f"Asks 5 {GPU} on y; root.a may never use more than 4.",
                "x": f"Asks 7 {GPU} on x; root.a may never use more than 4.",
            },
            id="by pod set",
        ),
    ],
)
def test_who_can_start_on_none_of_its_flavors_is_told_why_of_each(
    rows: tuple[QuotaRow, ...], sets: tuple[PodSet, ...], preemptible: bool, causes: dict[str, str]
) -> None:
    """In the order of its flavors, whatever runs on them."""
    full = running(gang("r", pod_set(2, 8), queue="root.b"), {"y0": 1, "y1": 1}, flavor="y")
    nodes = [node(f"{f}{i}", labels={"f": f, "rack": f"r{i}"}) for f in "xy" for i in (1, 0)]
    snap = snapshot(
        nodes,
        [queue("root.a", *rows), queue("root.b")],
        admitted=[full],
        flavors=FLAVORS,
        topology=RACKS,
        pending=[gang("g", *sets, required="rack", preemptible=preemptible)],
    )
    plan = decide(snap, now=0.0, seed=0, budget=GREEDY)
    reason = plan.explanations["g"].primary
    assert (reason.verdict, plan.explanations["g"].others) == (Verdict.CHANGE, ())
    assert {cause["on"]: cause["text"] for cause in reason.params["causes"]} == causes
    assert reason.token == reason.params["causes"][0]["token"]
    assert reason.text == " ".join(
        [
            "It can start on none of the flavors that it may use.",
            *(f"On {on}: {text}" for on, text in causes.items()),
        ]
    )
    assert list(Recount(snap, plan, 0.0).faults()) == []


def test_what_its_own_queue_does_not_lend_is_not_kept_from_it() -> None:
    """a may use the 4 that it does not lend; only b's 3 are kept from it."""
    queues = [queue("root.a", row(guaranteed=4, lend=0)), queue("root.b", row(guaranteed=3, lend=0))]
    runs, waits = running(gang("r", pod_set(1, 1)), {"n0": 1}), gang("g", pod_set(5, 1))
    reason = told(snapshot([node("n0")], queues, admitted=[runs], pending=[waits])).primary
    assert reason.text == (
        f"root uses 1 of 8 {GPU} (the live capacity), 3 are kept for queues that do not lend them; this job asks 5."
    )


@pytest.mark.parametrize(
    ("where", "asks", "text"),
    [
        ("root.p.a", 6, "5 of the 10 of root.p (the limit)"),
        ("root.q", 12, "11 of the 16 of root (the live capacity)"),
    ],
)
def test_who_can_never_start_beside_what_others_do_not_lend_is_told_to_change(
    where: str, asks: int, text: str
) -> None:
    """At whichever level it is too much even when nothing runs; with one less it starts."""
    rows = {
        "root.p.b": row(guaranteed=4, lend=1),
        "root.p.c": row(guaranteed=2, lend=0),
        "root.p": row(limit=10),
    }
    queues = [*(queue(path, one) for path, one in rows.items()), queue("root.p.a"), queue("root.q")]
    snap = snapshot([node("n0"), node("n1")], queues, pending=[gang("g", pod_set(asks, 1), queue=where)])
    reason = told(snap).primary
    assert (reason.token, reason.verdict) == (Token.EXCEEDS_MAX_QUOTA, Verdict.CHANGE)
    assert reason.text == (
        f"Asks {asks} {GPU}; even when nothing runs {text} are left, as 5 are not lent, 3 of these by root.p.b."
        f" It could start if 1 more were lent, or if it asked for {asks - 1} at most."
    )
    fewer = replace(snap.pending[0], workload=gang("g", pod_set(asks - 1, 1), queue=where))
    assert decide(replace(snap, pending=(fewer,)), now=0.0, seed=0, budget=GREEDY).admissions
