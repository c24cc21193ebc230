"""Each token has a case that earns it, with a sentence that names the queue or the domain and the amounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import HOSTNAME, Node, SchedulingTerms, Topology
from queuer.domain.queue import Order, Policy, Queue, QueueState, QueueTree, QuotaRow
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.explain import sentences
from queuer.solver.problem import Admitted, Assignment, Bond, Budget, NodeState, Pending, Plan, Snapshot

NOW = 1_000.0


def job(uid: str, count: int = 1, gpu: int = 1, *, queue: str = "root.a", **fields: Any) -> Workload:
    """A gang of pods that ask for GPUs."""
    terms = fields.pop("terms", SchedulingTerms())
    pod_set = PodSet(name="main", count=count, requests={"gpu": gpu, "pods": 1}, terms=terms)
    made = Workload(
        uid=uid,
        kind="Job",
        namespace="d",
        name=uid,
        queue=queue,
        pod_sets=(pod_set,),
        submitted=float(uid[1:]),
    )
    return replace(made, **fields)


def running(workload: Workload, **nodes: int) -> Admitted:
    """The workload runs on these nodes."""
    per_pod = workload.pod_sets[0].requests
    return Admitted(
        workload=workload,
        counts={"main": sum(nodes.values())},
        flavors={"main": "default"},
        since=0.0,
        bound={name: {r: a * n for r, a in per_pod.items()} for name, n in nodes.items()},
    )


def explain(
    *waiting: Workload,
    queues: tuple[Queue, ...] = (Queue(path="root.a"), Queue(path="root.b")),
    admitted: tuple[Admitted, ...] = (),
    cordoned: bool = False,
) -> Plan:
    """Four nodes of four GPUs in two racks."""
    used: dict[str, dict[str, int]] = {f"n{i}": {} for i in range(4)}
    for one in admitted:
        for name, amounts in one.bound.items():
            used[name] = {r: used[name].get(r, 0) + amounts.get(r, 0) for r in ("gpu", "pods")}
    nodes = tuple(
        NodeState(
            node=Node(
                name=name,
                labels={HOSTNAME: name, "rack": f"r{i // 2}"},
                allocatable={"gpu": 4, "pods": 10},
                unschedulable=cordoned,
            ),
            used=used[name],
        )
        for i, name in enumerate(used)
    )
    return decide(
        Snapshot(
            nodes=nodes,
            tree=QueueTree.of(queues),
            topology=Topology(keys=("rack",)),
            flavors=(),
            admitted=admitted,
            pending=tuple(Pending(workload=w) for w in waiting),
        ),
        now=NOW,
        seed=0,
        budget=Budget(deterministic=0.0),
    )


def limited(path: str, *, guaranteed: int | None = None, limit: int | None = None, **fields: Any) -> Queue:
    """A queue with one GPU row."""
    return Queue(path=path, quota=(QuotaRow(resource="gpu", guaranteed=guaranteed, limit=limit),), **fields)


def test_three_limits_three_reasons() -> None:
    """Own, parent's, root's: each names its queue and its amounts."""
    base = running(job("w0", 2, queue="root.p.x"), n0=2)
    for path, own, parents, roots in (("root.p.x", 4, 9, 9), ("root.p", 9, 4, 9), ("root", 9, 9, 4)):
        queues = (
            limited("root", limit=roots),
            limited("root.p", limit=parents),
            limited("root.p.x", limit=own),
        )
        plan = explain(job("w1", 3, queue="root.p.x"), queues=queues, admitted=(base,))
        reason = plan.explanations["w1"].primary
        assert reason.token is Token.WAITING_FOR_QUOTA
        assert reason.text == f"{path} uses 2 of 4 gpu (the limit); this job asks 3."
        assert reason.params["queue"] == path


def test_borrowing_limit() -> None:
    """Above its guarantee and stopped by its limit."""
    queues = (limited("root.a", guaranteed=2, limit=4), limited("root.b", guaranteed=2))
    plan = explain(job("w1", 3), queues=queues, admitted=(running(job("w0", 2), n0=2),))
    reason = plan.explanations["w1"].primary
    assert reason.token is Token.BORROWING_LIMIT_REACHED
    assert (reason.params["used"], reason.params["limit"], reason.params["guaranteed"]) == ("2", "4", "2")


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (job("w1", 9), "Asks 9 gpu; root.a may never use more than 8."),
        (job("w1", 17, queue="root.b"), "Asks 17 gpu; the cluster has 16."),
    ],
)
def test_larger_than_any_limit(workload: Workload, text: str) -> None:
    """Told to change, not to wait."""
    plan = explain(workload, queues=(limited("root.a", limit=8), Queue(path="root.b")))
    explanation = plan.explanations["w1"]
    assert (explanation.primary.token, explanation.verdict) == (Token.EXCEEDS_MAX_QUOTA, Verdict.CHANGE)
    assert explanation.primary.text == text


def test_no_rack_has_room_though_the_gpus_are_free() -> None:
    """The best rack and what it lacks are named, and what would help was tried."""
    full = (running(job("w0", 4), n0=4), running(job("w2", 4), n2=4))
    plan = explain(job("w1", 6, required="rack"), admitted=full)
    explanation = plan.explanations["w1"]
    assert explanation.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    assert explanation.primary.text == (
        "main needs room for 6 pods of 1 gpu in one rack; 4 fit in the best rack, r0, 2 are missing."
    )
    assert {a["change"] for a in explanation.would_admit} == {"topology=any", "main.count<=4"}
    assert explanation.detail["need"][0]["level"] == "rack"


def test_flavor_selector_and_cordons() -> None:
    """No node of the right kind is a fault of the job; cordoned ones are one of the cluster."""
    terms = SchedulingTerms(node_selector={"gpu": "none-such"})
    assert explain(job("w1", terms=terms)).explanations["w1"].primary.token is Token.NO_MATCHING_FLAVOR
    shut = explain(job("w1"), cordoned=True).explanations["w1"]
    assert (shut.primary.token, shut.verdict) == (Token.NODES_UNAVAILABLE, Verdict.ESCALATE)


def test_holds_and_closed_queues() -> None:
    """On hold; queue held; unknown queue with the nearest name; level that does not exist."""
    queues = (Queue(path="root.a"), Queue(path="root.b", state=QueueState.HELD))
    plan = explain(
        job("w1", hold=True),
        job("w2", queue="root.b"),
        job("w3", queue="root.aa"),
        job("w4", required="zone"),
        queues=queues,
    )
    tokens = {uid: e.primary.token for uid, e in plan.explanations.items()}
    assert tokens == {
        "w1": Token.ON_HOLD,
        "w2": Token.SUSPENDED,
        "w3": Token.MISCONFIGURED,
        "w4": Token.MISCONFIGURED,
    }
    assert "root.a" in plan.explanations["w3"].primary.text
    assert "rack, host" in plan.explanations["w4"].primary.text


def test_behind_a_strict_head_and_behind_a_reservation() -> None:
    """Both name who goes first."""
    strict = (limited("root.a", limit=4, policy=Policy(order=Order.STRICT)),)
    plan = explain(job("w1", 4), job("w2"), queues=strict, admitted=(running(job("w0"), n0=1),))
    behind = plan.explanations["w2"].primary
    assert (behind.token, behind.verdict, behind.params["owner"]) == (
        Token.BEHIND_IN_QUEUE,
        Verdict.WAIT,
        "w1",
    )
    never = explain(job("w1", 5), job("w2"), queues=strict).explanations["w2"]
    assert (never.primary.token, never.verdict) == (Token.BEHIND_IN_QUEUE, Verdict.CHANGE)
    assert never.primary.text == (
        "d/w1 is ahead of it in root.a, whose order is strict, and can never start; change, hold or delete it: "
        "Asks 5 gpu; root.a may never use more than 4."
    )
    ending = replace(running(job("w0", 12), n0=4, n1=4, n2=4), expected_end=NOW + 600)
    reserved = explain(job("w1", 16), job("w2"), job("w3", estimate=60.0), admitted=(ending,))
    assert {a.uid for a in reserved.admissions} == {"w3"}
    assert reserved.reservations[0].start == NOW + 600
    behind = reserved.explanations["w2"].primary
    assert (behind.token, behind.params["owner"]) == (Token.BEHIND_IN_QUEUE, "w1")


def test_who_can_never_start_by_itself_is_told_so_behind_a_strict_head() -> None:
    """Not only when it is its turn: for a limit, for want of any host, for being outside its guarantee."""
    strict = (limited("root.a", limit=8, policy=Policy(order=Order.STRICT)),)
    nevers = (job("w2", 9), job("w3", 6, required="host"), job("w4", 2, preemptible=False))
    plan = explain(job("w1", 8), *nevers, job("w5"), queues=strict, admitted=(running(job("w0", 4), n0=4),))
    text = "d/w1 is ahead of it in root.a, whose order is strict, and waits."
    told = {
        uid: (one.verdict, *(reason.text for reason in one.others)) for uid, one in plan.explanations.items()
    }
    assert told == {
        "w1": (Verdict.WAIT,),
        **{one.uid: (Verdict.CHANGE, text) for one in nevers},
        "w5": (Verdict.WAIT,),
    }
    assert [plan.explanations[uid].primary.text for uid in ("w2", "w3", "w4", "w5")] == [
        "Asks 9 gpu; root.a may never use more than 8.",
        "main needs room for 6 pods of 1 gpu in one host; even with every node idle 4 would fit in the best host, n0, "
        "2 would be missing.",
        "Work that is not preemptible starts only inside a guarantee: this job asks 2 gpu; root.a is guaranteed none "
        "of that.",
        text,
    ]
    assert plan.explanations["w3"].detail["need"][0]["count"] == 6


def test_bound_gangs_wait_for_their_victims() -> None:
    """Reclaim: the eviction names rule and beneficiary, the reason its victims."""
    queues = (limited("root.a", guaranteed=8), limited("root.b", guaranteed=8))
    borrower = tuple(running(job(f"w{i}", 4, queue="root.b"), **{f"n{i}": 4}) for i in range(4))
    plan = explain(job("w9", 4), queues=queues, admitted=borrower)
    reason = plan.explanations["w9"].primary
    assert reason.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert [(e.beneficiary, str(e.rule)) for e in plan.evictions] == [("w9", "reclaim")]
    assert reason.params["victims"] == [plan.evictions[0].uid]


@pytest.mark.parametrize(
    ("hosts", "victims", "left", "text"),
    [
        (1, 0, 0, "1 node is held for it; it starts in room that workloads evicted for other jobs leave."),
        (2, 2, 1, "2 nodes are held for it; it starts when the pods of d/w0 have left."),
        (1, 3, 3, "1 node is held for it; it starts when the pods of 3 workloads have left."),
    ],
)
def test_bound_gangs_say_whose_room_they_wait_for(hosts: int, victims: int, left: int, text: str) -> None:
    """Without victims of its own a gang waits for those of others. Who has gone is waited for no more."""
    place = Assignment(pod_set="main", flavor="default", nodes={f"n{i}": 1 for i in range(hosts)})
    gone = tuple(f"w{i}" for i in range(victims))
    bond = Bond(uid="w9", assignments=(place,), victims=gone, deadline=NOW)
    named = {one.uid: one for one in (job("w0", 1),)}
    assert sentences.bound(bond, gone[:left], named.get).primary.text == text


def test_not_preemptible_work_outside_its_guarantee() -> None:
    """It would have to borrow, which it may not."""
    queues = (limited("root.a", guaranteed=4),)
    plan = explain(job("w1", 3, preemptible=False), queues=queues, admitted=(running(job("w0", 2), n0=2),))
    reason = plan.explanations["w1"].primary
    assert reason.token is Token.WAITING_FOR_QUOTA
    assert "guaranteed 4 gpu" in reason.text
