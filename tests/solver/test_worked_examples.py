"""The three examples of docs/decision.md happen as they are told there, and say the sentences that are printed.

GPUs on nodes in racks, and jobs of whole nodes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Queue
from queuer.domain.reasons import ChangeKind, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.decide import decide
from queuer.solver.job_detail import explain
from queuer.solver.records import Admitted, Budget, Pending, Plan, Snapshot
from tests.solver.make import gang, queue, row, running, snapshot

DOCUMENT = " ".join((Path(__file__).parents[2] / "docs" / "decision.md").read_text().split())
MINUTE = 60.0


def printed(text: str) -> bool:
    """Whether the document has this sentence."""
    return text in DOCUMENT


def job(uid: str, pods: int, gpus: int, *, queue: str = "root.a", **more: Any) -> Workload:
    """A gang named after its uid."""
    main = PodSet(name="main", count=pods, requests={"gpu": gpus, "pods": 1})
    return replace(gang(uid, main, queue=queue, **more), namespace="default")


def cluster(
    nodes: dict[str, str], gpus: int, queues: list[Queue], admitted: list[Admitted], waiting: list[Workload]
) -> Snapshot:
    """Nodes by name with their rack."""
    made = [
        Node(name=name, labels={HOSTNAME: name, "rack": rack}, allocatable={"gpu": gpus, "pods": 110})
        for name, rack in nodes.items()
    ]
    return snapshot(made, queues, admitted=admitted, pending=waiting, topology=Topology(keys=("rack",)))


def plan_of(snap: Snapshot, *, now: float) -> Plan:
    return decide(snap, now=now, seed=0, budget=Budget())


# Borrow and take back


def borrowed(pods: int) -> Snapshot:
    """a runs 40 jobs of 8 on 40 nodes, the later ones for a shorter time; b asks."""
    nodes = {f"n{i:02}": "r" for i in range(40)}
    work = [running(job(f"a{i:02}", 1, 8), {f"n{i:02}": 1}, since=i * MINUTE) for i in range(40)]
    queues = [queue(path, row("gpu", guaranteed=160)) for path in ("root.a", "root.b")]
    return cluster(nodes, 8, queues, work, [job("b1", pods, 8, queue="root.b")])


def test_borrow_and_take_back() -> None:
    now = 60 * MINUTE
    snap = borrowed(10)
    plan = plan_of(snap, now=now)
    youngest = {f"a{i}" for i in range(30, 40)}
    assert {(e.uid, e.beneficiary, str(e.rule)) for e in plan.evictions} == {
        (uid, "b1", "reclaim") for uid in youngest
    }
    reason = plan.explanations["b1"].primary
    assert reason.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert printed(reason.text), reason.text
    # Five have left. A job of a's that comes now gets none of their nodes.
    going = [
        replace(a, releasing=a.workload.uid in youngest)
        for a in snap.admitted
        if a.workload.uid not in {f"a{i}" for i in range(30, 35)}
    ]
    comes = job("a99", 1, 8, submitted=now)
    nodes = {s.node.name: "r" for s in snap.nodes}
    meanwhile = cluster(nodes, 8, list(snap.tree), going, [snap.pending[0].workload, comes])
    after = plan_of(replace(meanwhile, bonds=plan.bonds), now=now + MINUTE)
    assert after.admissions == ()
    told = after.explanations["a99"].primary
    assert printed(told.text), told.text


def test_who_asks_for_more_than_its_guarantee_takes_nothing_back() -> None:
    plan = plan_of(borrowed(21), now=60 * MINUTE)
    assert (plan.admissions, plan.evictions, plan.bonds) == ((), (), ())
    assert printed(plan.explanations["b1"].primary.text), plan.explanations["b1"].primary.text


# A rack, not just GPUs


def test_a_rack_not_just_gpus() -> None:
    nodes = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}
    work = [running(job(uid, 1, 4), {name: 1}, since=0.0) for uid, name in (("x", "n0"), ("y", "n2"))]
    wanted = job("g", 6, 1, required="rack")
    snap = cluster(nodes, 4, [queue("root.a")], work, [wanted])
    found = explain(AfterCycle(snap, plan_of(snap, now=0.0), now=0.0, seed=0), "g")
    assert found is not None
    assert found.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    assert printed(found.primary.text), found.primary.text
    own = [change.text for change in found.would_admit if change.kind is not ChangeKind.END]
    assert own == ["pods anywhere", "at most 4 pods in main"]
    assert all(printed(change) for change in own)
    assert found.detail["excluded"] == {
        "nodes": 2,
        "of": 4,
        "by": [{"why": "Full", "nodes": 2}],
        "domains": {"level": "rack", "short": 2, "of": 2},
    }
    for changed in (replace(wanted, required=None), job("g", 4, 1, required="rack")):
        again = plan_of(replace(snap, pending=(Pending(workload=changed),)), now=0.0)
        assert [a.uid for a in again.admissions] == ["g"]


# Nobody is starved by small jobs


def test_nobody_is_starved_by_small_jobs() -> None:
    nodes = {f"n{i}": "r" for i in range(10)}
    work = [
        running(job(f"s{i}", 1, 1), {f"n{i}": 1}, since=0.0, expected_end=(i + 1) * MINUTE) for i in range(10)
    ]
    large = job("large", 10, 1)
    first = cluster(nodes, 1, [queue("root.a")], work, [large])
    first_plan = plan_of(first, now=0.0)
    assert [(r.uid, r.start) for r in first_plan.reservations] == [("large", 10 * MINUTE)]
    # A minute later one slot is free, and two jobs have come.
    long = job("long", 1, 1, submitted=30.0, estimate=10 * MINUTE)
    short = job("short", 1, 1, submitted=40.0, estimate=MINUTE)
    then = cluster(nodes, 1, [queue("root.a")], work[1:], [large, long, short])
    snap = replace(then, reservations=first_plan.reservations)
    plan = plan_of(snap, now=MINUTE)
    assert [a.uid for a in plan.admissions] == ["short"]
    assert plan.explanations["long"].primary.token is Token.BEHIND_IN_QUEUE
    assert printed(plan.explanations["long"].primary.text), plan.explanations["long"].primary.text
    told = explain(AfterCycle(snap, plan, now=MINUTE, seed=0), "long")
    assert told is not None
    holders = told.detail["holders"]
    assert (holders[0]["reservation"], holders[0]["starts"]) == ("large", 10 * MINUTE)
    assert [(r.uid, r.start) for r in plan.reservations] == [("large", 10 * MINUTE)]
