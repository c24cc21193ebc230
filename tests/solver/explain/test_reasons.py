"""Each cause has a world that earns its token; the sentence names queue, domain or job, and the amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms, Taint, TaintEffect
from queuer.domain.queue import Order, Policy, Queue, QueueState
from queuer.domain.reasons import Explanation, Reason, Token, Verdict
from queuer.domain.workload import Workload
from queuer.solver.explain.reasons import reasons
from queuer.solver.records import Admitted, Pending, Snapshot
from queuer.solver.refusal import Block, Refusal
from tests.solver import make
from tests.solver.make import decided, gang, node, pod_set, queue, row, running, snapshot, started

TWO = (queue("root.a"), queue("root.b"))
FLAVORS = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
SOFT = Taint(key="soft", effect=TaintEffect.PREFER_NO_SCHEDULE)
SSD = SchedulingTerms(node_selector={"disk": "ssd"})
OWED = "Work that is not preemptible does not borrow: root.a uses 2 of its guaranteed"
ONE = gang("g", pod_set(1, 1), submitted=1.0)


def cluster(
    *waiting: Workload | Pending,
    queues: Sequence[Queue] = TWO,
    admitted: Sequence[Admitted] = (),
    cordoned: bool = False,
) -> Snapshot:
    """Four nodes of four GPUs in two racks."""
    racks = [{"block": "b", "rack": f"r{i // 2}"} for i in range(4)]
    nodes = [node(f"n{i}", gpu=4, labels=rack, unschedulable=cordoned) for i, rack in enumerate(racks)]
    return snapshot(nodes, queues, admitted=admitted, pending=waiting)


def there(pods: int, path: str = "root.a", *nodes: str) -> Admitted:
    """A job of pods of one GPU that runs in a queue, four on a node."""
    spread = dict.fromkeys(nodes, 4) or {"n0": pods}
    return running(gang(f"w{path[-1]}{''.join(nodes)}", pod_set(pods, 1), queue=path), spread)


def told(snap: Snapshot, uid: str = "g") -> Reason:
    """Why the gang waits, which has one reason like everybody else."""
    plan = decided(snap)
    assert plan.explanations.keys() == {p.workload.uid for p in snap.pending} - started(plan)
    assert all(why == Explanation(primary=why.primary) for why in plan.explanations.values())
    return plan.explanations[uid].primary


def asks(count: int, path: str = "root.a", **more: Any) -> Workload:
    """A gang of pods of one GPU."""
    return gang("g", pod_set(count, 1), queue=path, **more)


def limits(x: int, p: int, root: int) -> list[Queue]:
    """Of three queues, each above the other."""
    return [queue(path, row(limit=n)) for path, n in (("root", root), ("root.p", p), ("root.p.x", x))]


SMALL = [queue("root.a", row(limit=8)), queue("root.b", row(guaranteed=3, lend=0)), queue("root.c")]
KEEPS = [queue("root.p", row(limit=8)), queue("root.p.y"),
         queue("root.p.x", row(guaranteed=8, lend=2), policy=Policy(reclaim=False))]  # fmt: skip
WAIT, CHANGE, ESCALATE = Verdict.WAIT, Verdict.CHANGE, Verdict.ESCALATE


@pytest.mark.parametrize(
    ("snap", "verdict", "token", "text"),
    [
        # own limit, parent's, root's: each names its queue
        (cluster(asks(3, "root.p.x"), queues=limits(4, 9, 9), admitted=[there(2, "root.p.x")]), WAIT,
         Token.WAITING_FOR_QUOTA, "root.p.x uses 2 of 4 gpu (the limit); this job asks 3."),
        (cluster(asks(3, "root.p.x"), queues=limits(9, 4, 9), admitted=[there(2, "root.p.x")]), WAIT,
         Token.WAITING_FOR_QUOTA, "root.p uses 2 of 4 gpu (the limit); this job asks 3."),
        (cluster(asks(3, "root.p.x"), queues=limits(9, 9, 4), admitted=[there(2, "root.p.x")]), WAIT,
         Token.WAITING_FOR_QUOTA, "root uses 2 of 4 gpu (the limit); this job asks 3."),
        # a limit that is written comes before the live capacity
        (cluster(asks(9), queues=[queue("root", row(limit=12)), *TWO],
                 admitted=[there(8, "root.a", "n0", "n1"), there(4, "root.b", "n2")]), WAIT,
         Token.WAITING_FOR_QUOTA, "root uses 12 of 12 gpu (the limit); this job asks 9."),
        (cluster(asks(3), queues=[queue("root.a", row(guaranteed=2, limit=4))], admitted=[there(2)]), WAIT,
         Token.BORROWING_LIMIT_REACHED, "root.a uses 2 of 4 gpu (the limit); this job asks 3."),
        # what its own path does not lend is its to use, and not told as kept from it
        (cluster(asks(5, "root.p.x"), queues=KEEPS, admitted=[there(2, "root.p.x"), there(2, "root.p.y")]), WAIT,
         Token.WAITING_FOR_QUOTA, "root.p uses 4 of 8 gpu (the limit); this job asks 5."),
        # more than there can ever be
        (cluster(asks(9), queues=SMALL), CHANGE,
         Token.EXCEEDS_MAX_QUOTA, "Asks 9 gpu; root.a may never use more than 8."),
        (cluster(asks(17, "root.c"), queues=SMALL), CHANGE,
         Token.EXCEEDS_MAX_QUOTA, "Asks 17 gpu; the cluster has 16."),
        (cluster(asks(14, "root.c"), queues=SMALL), CHANGE, Token.EXCEEDS_MAX_QUOTA,
         "Asks 14 gpu; even when nothing runs 13 of the 16 of root (the live capacity) are left, as 3 are not lent. "
         "It could start if 1 more were lent, or if it asked for 13 at most."),
        # work that may not borrow; what can never start is told so however full the cluster is
        (cluster(asks(3, preemptible=False), queues=[queue("root.a", row(guaranteed=4))], admitted=[there(2)]), WAIT,
         Token.WAITING_FOR_QUOTA, f"{OWED} 4 gpu; this job asks 3."),
        (cluster(asks(3, preemptible=False), queues=[queue("root.a", row(guaranteed=2))],
                 admitted=[there(2), there(12, "root.b", "n1", "n2", "n3")]), CHANGE,
         Token.EXCEEDS_MAX_QUOTA,
         "Work that is not preemptible does not borrow: root.a is guaranteed 2 gpu; this job asks 3."),
        (cluster(asks(3, preemptible=False)), CHANGE, Token.EXCEEDS_MAX_QUOTA,
         "Work that is not preemptible starts only inside a guarantee: this job asks 3 gpu; root.a is guaranteed "
         "none of that."),
        # figures are those of the smallest size
        (snapshot([node("n0")], [queue("root.a", row(limit=8))],
                  admitted=[running(gang("r", pod_set(1, 8)), {"n0": 1})],
                  pending=[gang("g", pod_set(4, 1, min_count=2))]), WAIT,
         Token.WAITING_FOR_QUOTA, "root.a uses 8 of 8 gpu (the limit); this job asks at least 2."),
        # no rack has room, though the amount is free; no idle cluster would have
        (cluster(gang("g", pod_set(6, 1), required="rack"),
                 admitted=[there(4, "root.b", "n0"), there(4, "root.b", "n2")]), WAIT, Token.TOPOLOGY_PLACEMENT_FAILED,
         "main needs room for 6 pods of 1 gpu in one rack; 4 fit in the best rack, r0, 2 are missing."),
        (cluster(gang("g", pod_set(3, 3), required="rack")), CHANGE, Token.TOPOLOGY_PLACEMENT_FAILED,
         "main needs room for 3 pods of 3 gpu in one rack; even with every node idle 2 would fit in the best rack, "
         "r0, 1 would be missing."),
        (cluster(gang("g", pod_set(1, 3), pod_set(1, 2, name="b"), required="host")), CHANGE,
         Token.TOPOLOGY_PLACEMENT_FAILED,
         "main needs room for 1 pod of 3 gpu; b needs room for 1 pod of 2 gpu; all of these in one host: there is "
         "room for each alone, not for all together, not even with every node idle."),
        # quota that is short today hides neither: nor does it for work that may not borrow
        (cluster(gang("g", pod_set(9, 1), required="rack"), queues=[queue("root.a", row(limit=10))],
                 admitted=[there(4)]), CHANGE, Token.TOPOLOGY_PLACEMENT_FAILED,
         "main needs room for 9 pods of 1 gpu in one rack; even with every node idle 8 would fit in the best rack, "
         "r0, 1 would be missing."),
        (cluster(gang("g", pod_set(9, 1), required="rack", preemptible=False),
                 queues=[queue("root.a", row(guaranteed=9))], admitted=[there(4)]), CHANGE,
         Token.TOPOLOGY_PLACEMENT_FAILED,
         "main needs room for 9 pods of 1 gpu in one rack; even with every node idle 8 would fit in the best rack, "
         "r0, 1 would be missing."),
        # a selector is the job's fault; cordons and a cluster without nodes are the operator's
        (cluster(gang("g", pod_set(1, 1, terms=SSD))), CHANGE, Token.NO_MATCHING_FLAVOR,
         "None of the 4 nodes accepts the selectors and tolerations of main: none has the label disk=ssd."),
        (snapshot([node("n1", taints=(Taint(key="spot"), SOFT))], TWO, pending=[ONE]), CHANGE, Token.NO_MATCHING_FLAVOR,
         "The only node does not accept the selectors and tolerations of main: it does not tolerate spot."),
        (cluster(ONE, cordoned=True), ESCALATE,
         Token.NODES_UNAVAILABLE, "None of the 4 nodes for main can be used: 4 cordoned."),
        (cluster(Pending(workload=ONE, avoid=frozenset({"n0", "n1", "n2", "n3"}))), ESCALATE, Token.NODES_UNAVAILABLE,
         "None of the 4 nodes for main can be used: 4 avoided after a failed landing."),
        (snapshot([], TWO, pending=[ONE]), ESCALATE, Token.NODES_UNAVAILABLE, "The cluster has no nodes."),
        (cluster(gang("g", pod_set(1, 1), required="zone")), CHANGE,
         Token.MISCONFIGURED, "There is no topology level zone; levels: block, rack, host."),
    ],
)  # fmt: skip
def test_one_reason_with_its_numbers(snap: Snapshot, verdict: Verdict, token: Token, text: str) -> None:
    reason = told(snap)
    assert (reason.text, reason.token, reason.verdict) == (text, token, verdict)


@pytest.mark.parametrize("busy", [4, 6])
def test_the_flavor_is_told_on_which_it_could_start_one_day(busy: int) -> None:
    """Of x the only node is cordoned, or a limit is too low for ever; of y too little is free."""
    nodes = [node("n0", labels={"f": "x"}, unschedulable=busy == 4), node("n1", labels={"f": "y"})]
    rows = (row(flavor="x", limit=8 if busy == 4 else 2), row(flavor="y", limit=8))
    reason = told(
        snapshot(
            nodes,
            [queue("root.a", *rows), queue("root.b", row(flavor="y"))],
            flavors=FLAVORS,
            admitted=[running(gang("r", pod_set(1, busy), queue="root.b"), {"n1": 1}, flavor="y")],
            pending=[gang("g", pod_set(1, 5))],
        )
    )
    assert (reason.token, reason.params["flavor"]) == (Token.WAITING_FOR_QUOTA, "y")
    assert reason.text == f"root uses {busy} of 8 gpu on y (the live capacity); this job asks 5."


# Other jobs


def test_behind_the_head_of_a_strict_queue() -> None:
    """The cause is told if the head can never start."""
    strict = (queue("root.a", row(limit=4), policy=Policy(order=Order.STRICT)), queue("root.b"))
    behind = told(cluster(gang("head", pod_set(4, 1)), ONE, queues=strict, admitted=[there(1)]))
    assert (behind.token, behind.verdict) == (Token.BEHIND_IN_QUEUE, Verdict.WAIT)
    assert behind.params["owner"] == "head"
    never = told(cluster(gang("head", pod_set(5, 1)), ONE, queues=strict, admitted=[there(1)]))
    assert never.verdict is Verdict.CHANGE
    assert never.text.endswith("delete it: Asks 5 gpu; root.a may never use more than 4.")


def test_what_can_never_start_is_told_so_behind_a_strict_head() -> None:
    """Too large, in no domain, on no node; what is alike but fits waits."""
    strict = (queue("root.a", row(limit=10), policy=Policy(order=Order.STRICT)), queue("root.b"))
    later = [
        gang("quota", pod_set(11, 1), submitted=1.0),
        gang("rack", pod_set(9, 1), submitted=2.0, required="rack"),
        gang("node", pod_set(1, 1, terms=SSD), submitted=3.0),
        gang("fits", pod_set(8, 1), submitted=4.0, required="rack"),
    ]
    plan = decided(cluster(gang("head", pod_set(8, 1)), *later, queues=strict, admitted=[there(4)]))
    assert {uid: (why.verdict, why.primary.token) for uid, why in plan.explanations.items()} == {
        "head": (WAIT, Token.WAITING_FOR_QUOTA),
        "quota": (CHANGE, Token.EXCEEDS_MAX_QUOTA),
        "rack": (CHANGE, Token.TOPOLOGY_PLACEMENT_FAILED),
        "node": (CHANGE, Token.NO_MATCHING_FLAVOR),
        "fits": (WAIT, Token.BEHIND_IN_QUEUE),
    }


def test_a_flavor_on_which_it_can_never_start_is_not_told_while_another_is_full() -> None:
    """Of x no rack is large enough, though its quota is short too; of y it is the quota alone."""
    racks = {"block": "b", "rack": "r"}
    nodes = [
        node("n0", labels={"f": "x", **racks}),
        node("n1", labels={"f": "y", **racks}),
        node("n2", labels={"f": "y", **racks}),
    ]
    rows = (row(flavor="x", limit=16), row(flavor="y", limit=16))
    snap = snapshot(
        [*nodes, node("n3", labels={"f": "x", "block": "b", "rack": "s"})],
        [queue("root.a", *rows)],
        flavors=FLAVORS,
        admitted=[
            running(gang("r", pod_set(1, 8)), {"n3": 1}, flavor="x"),
            running(gang("s", pod_set(1, 8)), {"n1": 1}, flavor="y"),
        ],
        pending=[gang("g", pod_set(2, 8), required="rack")],
    )
    reason = told(snap)
    assert (reason.token, reason.params["flavor"]) == (Token.WAITING_FOR_QUOTA, "y")


def test_behind_a_reservation() -> None:
    ending = replace(there(12, "root.a", "n0", "n1", "n2"), expected_end=600.0)
    snap = cluster(gang("big", pod_set(16, 1)), admitted=(ending,))
    waits = (*snap.pending, Pending(workload=ONE))
    reason = told(replace(snap, pending=waits, reservations=decided(snap).reservations))
    assert (reason.token, reason.params["owner"]) == (Token.BEHIND_IN_QUEUE, "big")
    assert reason.text == "test/big holds a reservation of 4 nodes that this job would break."


def test_behind_pods_that_are_still_landing() -> None:
    """Those of `l` may take any two of three hosts."""
    comes = make.landing("l", 2, 2, "n0", "n1", "n2")
    reason = told(cluster(gang("g", pod_set(6, 2)), admitted=(comes,)))
    assert (reason.token, reason.params["owner"]) == (Token.BEHIND_IN_QUEUE, "l")
    assert reason.text == (
        "It fits but for pods of test/l that are still landing on n1; it is tried again when they are bound."
    )


def test_bound_gangs_wait_for_their_victims() -> None:
    queues = (queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=8)))
    snap = cluster(asks(4), queues=queues, admitted=[there(4, "root.b", f"n{i}") for i in range(4)])
    reason, (eviction,) = told(snap), decided(snap).evictions
    assert reason.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert (reason.params["victims"], reason.params["left"]) == (1, 1)
    assert reason.text == (
        f"1 node is held for it; it starts when the pods of test/{eviction.uid} have left. Evictions for it lose 4,000 "
        "gpu-seconds of work: the best found in the time there was; the next best set looked at would lose 4,000 "
        "gpu-seconds."
    )


def test_who_takes_no_part() -> None:
    """On hold; queue held; unknown queue. A hold hides nothing that its owner has to change."""
    queues = (queue("root.a"), queue("root.b", state=QueueState.HELD))
    waiting = [
        gang("h", pod_set(1, 1), hold=True),
        gang("b", pod_set(1, 1), queue="root.b"),
        gang("never", pod_set(99, 1), queue="root.b"),
        asks(1, "root.aa"),
    ]
    plan = decided(cluster(*waiting, queues=queues))
    tokens = {uid: why.primary.token for uid, why in plan.explanations.items()}
    assert tokens == {
        "h": Token.ON_HOLD,
        "b": Token.SUSPENDED,
        "never": Token.EXCEEDS_MAX_QUOTA,
        "g": Token.MISCONFIGURED,
    }
    assert [other.token for other in plan.explanations["never"].others] == [Token.SUSPENDED]
    assert plan.explanations["never"].verdict is Verdict.CHANGE


# One record


def test_gangs_that_are_alike_share_one_explanation() -> None:
    """Ten thousand of them cost as much as one. Work of their shape that may not borrow is told so."""
    jobs = [gang(f"g{i}", pod_set(9, 8), submitted=float(i)) for i in range(5)]
    other = gang("g", pod_set(9, 8), preemptible=False)
    why = decided(snapshot([node("n1")], TWO, pending=[*jobs, other])).explanations
    assert len({id(why[job.uid]) for job in jobs}) == 1
    assert "asked" in why["g"].primary.params


def test_what_has_been_given_back_and_who_had_no_turn() -> None:
    """An obstacle at a turn is there at the end: the next cycle decides. Nobody is left without a reason."""
    state = make.state_of(cluster(*(gang(uid, pod_set(1, 1)) for uid in "qpn")))
    variant, charge = state.arrays.waiting.gangs["q"].shape.least[0]
    blocks = {"q": Block.QUOTA, "p": Block.PLACE}
    refusals = {uid: Refusal(block=b, variant=variant, charge=charge) for uid, b in blocks.items()}
    found = reasons(state, refusals=refusals, held_up={}, bonds={}, aside={}, order="qpn")
    assert {uid: (why.primary.token, dict(why.primary.params)) for uid, why in found.items()} == {
        "q": (Token.PENDING_EVALUATION, {"freed": "quota"}),
        "p": (Token.PENDING_EVALUATION, {"freed": "room"}),
        "n": (Token.SOLVER_DEFERRED, {"cause": "Plan"}),
    }


@pytest.mark.parametrize(("pods", "each", "largest"), [(1, 17, {make.GPU: 4}), (5, 4, None)])
def test_what_is_too_large_is_told_the_largest_node_where_a_pod_is(
    pods: int, each: int, largest: dict[str, int] | None
) -> None:
    reason = told(cluster(gang("g", pod_set(pods, each))))
    assert (reason.token, reason.params.get("largest")) == (Token.EXCEEDS_MAX_QUOTA, largest)
