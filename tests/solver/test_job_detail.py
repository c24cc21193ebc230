"""Everything beyond the one reason, worked out on a stored cycle: each figure is one that a reader can check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.estimates import LEAST
from queuer.domain.nodes import Flavor, SchedulingTerms, Taint
from queuer.domain.outside import Outside
from queuer.domain.queue import Policy
from queuer.domain.reasons import Explanation, Token, Verdict
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.job_detail import explain
from queuer.solver.records import Budget, Pending, Snapshot
from queuer.solver.stored import StoredCycle, decode, encode
from queuer.store.codec import explanation_json, explanation_of
from tests.solver.make import GPU, decided, gang, node, pod_set, queue, row, running, snapshot

TWO = [queue("root.a"), queue("root.b")]


def told(snap: Snapshot, uid: str = "g", *, now: float = 0.0) -> Explanation:
    """All that is said of the gang; its primary reason is the one that the cycle gave."""
    plan = decided(snap, now=now)
    found = explain(AfterCycle(snap, plan, now=now, seed=0), uid)
    assert found is not None
    assert found.primary == plan.explanations[uid].primary
    return found


def holders(found: Explanation, *names: str) -> list[tuple[Any, ...]]:
    """These fields of each holder."""
    return [tuple(row.get(name) for name in names) for row in found.detail["holders"]]


def test_nodes_that_do_not_count_are_counted_by_cause() -> None:
    """One node of each cause; two have room, which is too little for three pods."""
    fast, ssd = {"kind": "fast"}, {"kind": "fast", "disk": "ssd"}
    nodes = [
        node("other", labels={"kind": "slow"}),
        node("selector", labels=fast),
        node("taint", labels=ssd, taints=(Taint(key="mine"),)),
        node("cordoned", labels=ssd, unschedulable=True),
        node("unready", labels=ssd, ready=False),
        *(node(name, labels=ssd) for name in ("avoided", "full", "free0", "free1")),
    ]
    terms = SchedulingTerms(node_selector={"disk": "ssd"})
    wanted = Pending(workload=gang("g", pod_set(3, 8, terms=terms)), avoid=frozenset({"avoided"}))
    snap = snapshot(
        nodes,
        [queue("root.a", row(flavor="fast", guaranteed=8))],
        admitted=[running(gang("r", pod_set(1, 8)), {"full": 1}, flavor="fast")],
        pending=[wanted],
        flavors=(Flavor(name="fast", node_labels=fast), Flavor(name="slow", node_labels={"kind": "slow"})),
    )
    found = told(snap)
    assert found.primary.text == (
        "main needs room for 3 pods of 8 gpu; 2 fit on all usable nodes together, 1 is missing."
    )
    causes = ("Flavor", "Selector", "Taint", "Cordoned", "NotReady", "Avoided", "Full")
    by = [{"why": why, "nodes": 1} for why in causes]
    assert found.detail["excluded"] == {"nodes": 7, "of": 9, "by": by}


def test_a_pod_that_no_node_could_hold_is_told_what_the_largest_has() -> None:
    """Such nodes are not full. With too much in all, both are told."""
    nodes = [node("n0"), node("n1"), node("busy")]
    used = [running(gang("r", pod_set(1, 8)), {"busy": 1})]
    for count, texts in (
        (1, []),
        (3, ["Asks 27 gpu; the cluster has 24."]),
    ):
        found = told(snapshot(nodes, TWO, admitted=used, pending=[gang("g", pod_set(count, 9))]))
        assert found.detail["excluded"]["by"] == [{"why": "TooSmall", "nodes": 3, "largest": {GPU: "8"}}]
        reasons = [each.text for each in (found.primary, *found.others)]
        assert reasons[:-1] == texts
        assert reasons[-1].endswith(
            "even with every node idle none would fit on any node; the largest has 8 gpu."
        )


def test_a_resource_that_no_node_has_is_told_with_the_one_that_was_meant() -> None:
    each = PodSet(name="main", count=1, requests={f"{GPU}s": 8, "pods": 1})
    found = told(snapshot([node("n0")], TWO, pending=[gang("g", each)]))
    assert found.primary.text == f"Asks 8 gpus; no node has {GPU}s; did you mean {GPU}?"
    other = replace(each, requests={"other.org/chip": 1, "pods": 1})
    found = told(snapshot([node("n0")], TWO, pending=[gang("g", other)]))
    assert found.primary.text == "Asks 1 chip; no node has other.org/chip."


def test_domains_that_are_too_small_and_who_holds_the_best() -> None:
    """r0 comes closest with one free node of two; what runs there is named, the largest first."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(5)]
    jobs = [
        running(gang("small", pod_set(1, 2)), {"n0": 1}, expected_end=300.0),
        running(gang("large", pod_set(1, 6)), {"n0": 1}),
        running(gang("far", pod_set(2, 8)), {"n2": 1, "n3": 1}),
    ]
    snap = snapshot(nodes, TWO, admitted=jobs, pending=[gang("g", pod_set(2, 8), required="rack")])
    found = told(snap)
    assert found.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    need = {"podSet": "main", "count": 2, "per": {GPU: "8", "pods": "1"}, "level": "rack"}
    assert found.detail["need"] == [need]
    assert found.detail["excluded"]["domains"] == {"level": "rack", "short": 3, "of": 3}
    assert holders(found, "workload", "amount", "ends") == [("large", "6", None), ("small", "2", 300.0)]


def outside(name: str, nodes: Mapping[str, int], *, namespace: str = "ml") -> Outside:
    """A pod of 1 GPU each for each GPU on these nodes."""
    by_node = {host: {GPU: gpus, "pods": gpus} for host, gpus in nodes.items()}
    amounts = {GPU: sum(nodes.values()), "pods": sum(nodes.values())}
    return Outside(namespace=namespace, kind="Job", name=name, amounts=amounts, nodes=by_node)


def test_pods_that_no_queue_pays_for_hold_the_room() -> None:
    """Guards against "no room" with nobody who has it, and against amounts of other domains."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    strangers = (outside("big", {"n0": 8, "n1": 2, "n2": 8, "n3": 8}), outside("small", {"n1": 1}))
    foreign = {f"n{i}": {GPU: used, "pods": used} for i, used in enumerate((8, 3, 8, 8))}
    more: dict[str, Any] = {"foreign": foreign, "outside": strangers}
    for level, names in (
        ("rack", [("big", "10", 10), ("small", "1", 1)]),
        (None, [("big", "26", 26), ("small", "1", 1)]),
    ):
        snap = snapshot(nodes, TWO, pending=[gang("g", pod_set(2, 8), required=level)], **more)
        found = told(snap)
        assert found.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
        assert holders(found, "name", "amount", "pods") == names
        assert holders(found, "outside", "namespace", "kind") == [(True, "ml", "Job")] * 2


def test_nodes_kept_by_a_reservation_and_ones_own() -> None:
    busy = running(gang("long", pod_set(1, 8)), {"n1": 1}, expected_end=600.0)
    big, waits = gang("big", pod_set(2, 8)), gang("g", pod_set(1, 8), submitted=1.0)
    first = snapshot([node("n1"), node("n2")], TWO, admitted=[busy], pending=[big])
    own = {"start": 600.0, "expires": 1200.0, "hosts": ["n1", "n2"]}
    assert told(first, "big").detail["reservation"] == own
    pending = (Pending(workload=big), Pending(workload=waits))
    found = told(replace(first, pending=pending, reservations=decided(first).reservations))
    assert found.primary.token is Token.BEHIND_IN_QUEUE
    assert found.detail["excluded"]["by"] == [{"why": "Full", "nodes": 1}, {"why": "Reserved", "nodes": 1}]
    assert holders(found, "reservation", "namespace", "starts")[0] == ("big", "test", 600.0)


@pytest.mark.parametrize(("runs", "start"), [(LEAST - 1, None), (LEAST, 60.0)])
def test_a_reservation_starts_no_earlier_than_the_end_that_is_told_of_a_holder(
    runs: int, start: float | None
) -> None:
    """Guards against "ends in 4m" beside "from 1m from now" of the same job, whose learned end is not sound."""
    job = replace(gang("busy", pod_set(1, 8)), max_runtime=240.0, estimate=60.0, estimate_runs=runs)
    busy = running(job, {"n1": 1}, since=0.0, expected_end=60.0)
    found = told(snapshot([node("n1")], TWO, admitted=[busy], pending=[gang("g", pod_set(1, 8))]))
    assert holders(found, "workload", "ends") == [("busy", start or 240.0)]
    assert found.detail["reservation"]["start"] == start


def test_what_is_free_and_the_room_at_each_level() -> None:
    """16 GPUs, one node cordoned; a may use 3 more of its 5, its parent 1 more of 4, root 13 by live capacity."""
    queues = [queue("root.p", row(limit=4)), queue("root.p.a", row(limit=5)), queue("root.p.b")]
    used = [
        running(gang("r", pod_set(1, 2), queue="root.p.a"), {"n1": 1}),
        running(gang("s", pod_set(1, 1), queue="root.p.b"), {"n1": 1}),
    ]
    nodes = [node("n1"), node("n2", unschedulable=True)]
    found = told(snapshot(nodes, queues, admitted=used, pending=[gang("g", pod_set(2, 1), queue="root.p.a")]))
    left = (("root.p.a", "3"), ("root.p", "1"), ("root", "13"))
    rooms = [{"queue": path, "room": {GPU: amount}} for path, amount in left]
    assert found.detail["available"] == [{"flavor": "default", "free": {GPU: "5"}, "headroom": rooms}]


def test_who_uses_the_quota_that_is_missing() -> None:
    """Other queues by their name, of its own branch the workloads, those that have just started too."""
    used = [
        running(gang("r1", pod_set(1, 2)), {"n1": 1}, expected_end=60.0),
        running(gang("r2", pod_set(1, 3)), {"n1": 1}),
        running(gang("r3", pod_set(1, 1), queue="root.b"), {"n2": 1}),
    ]
    nodes, job = [node("n1"), node("n2")], gang("g", pod_set(2, 1))
    capped = [queue("root.a", row(limit=6)), queue("root.b")]
    found = told(snapshot(nodes, capped, admitted=used, pending=[job]))
    assert holders(found, "workload", "amount", "ends") == [("r2", "3", None), ("r1", "2", 60.0)]
    above = [queue("root", row(limit=7)), *TWO]
    found = told(snapshot(nodes, above, admitted=used, pending=[job]))
    assert holders(found, "queue", "amount", "workload") == [
        ("root.a", "3", "r2"),
        ("root.a", "2", "r1"),
        ("root.b", "1", None),
    ]
    first = gang("first", pod_set(1, 1), submitted=-1.0, estimate=60.0)
    found = told(snapshot(nodes, capped, admitted=used, pending=[first, job]))
    assert ("first", "1", 60.0, True) in holders(found, "workload", "amount", "ends", "starting")


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
        "root uses 8 of 16 gpu (the live capacity), 3 of these are leaving, 8 more are held for jobs that start "
        "when others have left; this job asks 4."
    )
    assert holders(found, "workload", "held", "amount")[0] == ("a", True, "8")
    assert found.detail["available"][0]["free"] == {GPU: "3"}


def test_all_other_reasons_that_hold() -> None:
    """Further rows, other flavors; each once, and not the primary one again."""
    queues = [queue("root", row(limit=9)), queue("root.a", row(limit=4)), queue("root.b")]
    used = [
        running(gang("r", pod_set(1, 3)), {"n1": 1}),
        running(gang("s", pod_set(1, 5), queue="root.b"), {"n2": 1}),
    ]
    nodes = [node("n1"), node("n2")]
    found = told(snapshot(nodes, queues, admitted=used, pending=[gang("g", pod_set(1, 4), required="host")]))
    assert found.primary.params["queue"] == "root.a"
    assert [reason.params.get("queue") for reason in found.others] == ["root"]


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (-1000.0, "4 may be evicted for it (4 from root.b)"),
        (-10.0, "0 may be evicted for it, 4 more when their minRuntime is over, the first in 50 s"),
    ],
)
def test_what_may_be_evicted_for_it_and_when(age: float, text: str) -> None:
    """One of four jobs is preemptible, which is too little."""
    queues = [
        queue("root.a", row(guaranteed=8)),
        queue("root.b", row(guaranteed=4), policy=Policy(min_runtime=60.0)),
    ]
    theirs = [gang(f"w{i}", pod_set(1, 4), queue="root.b", preemptible=i == 0) for i in range(4)]
    used = [running(job, {f"n{i}": 1}, since=age) for i, job in enumerate(theirs)]
    nodes = [node(f"n{i}", gpu=4) for i in range(4)]
    (reason,) = told(snapshot(nodes, queues, admitted=used, pending=[gang("g", pod_set(8, 1))])).others
    assert reason.text == (
        f"root.a uses 0 of its guaranteed 8 gpu and may claim 8 more. This job asks 8: 0 are left by quota, {text}."
    )


def test_a_gang_whose_starts_fail_is_told_that_it_evicts_nobody() -> None:
    """It would preempt the job of lower priority otherwise."""
    low = running(gang("low", pod_set(1, 8)), {"n": 1})
    waits = Pending(workload=gang("g", pod_set(1, 8), priority=1), failed=True)
    found = told(snapshot([node("n")], TWO, admitted=[low], pending=[waits]))
    (other,) = (reason for reason in found.others if reason.token is Token.ADMITTED_NOT_PLACED)
    assert "it evicts nobody until a start succeeds, the job is edited, or held and released" in other.text


def test_a_place_that_is_protected_for_some_time_yet_is_told_so() -> None:
    """All of a's guarantee is left, quota has room, and others may be evicted soon: the racks are short."""
    resting = Policy(min_runtime=60.0)
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    theirs = [gang("near", pod_set(1, 8), queue="root.b"), gang("far", pod_set(1, 8), queue="root.b")]
    snap = snapshot(
        nodes,
        [queue("root.a", row(guaranteed=16)), queue("root.b", row(guaranteed=8), policy=resting)],
        admitted=[running(job, {f"n{i}": 1}, since=-10.0) for i, job in zip((0, 2), theirs, strict=True)],
        pending=[gang("g", pod_set(2, 8), required="rack")],
    )
    found = told(snap)
    (also,) = found.others
    assert (found.primary.token, also.token) == (Token.TOPOLOGY_PLACEMENT_FAILED,) * 2
    assert also.text == (
        "root.a uses 0 of its guaranteed 16 gpu and may claim 16 more. This job asks 16: 16 are left by quota, "
        "0 may be evicted for it, 8 more when their minRuntime is over, the first in 50 s."
    )
    assert holders(found, "workload") == [("near",)]


def test_pod_sets_that_lack_room_together_on_several_flavors_are_told_once() -> None:
    """The sentence names no flavor, so that twice it would be the same."""
    kinds = [{"f": name} for name in "xxxyy"]
    snap = snapshot(
        [node(f"n{i}", labels=labels) for i, labels in enumerate(kinds)],
        [queue("root.a", row(flavor="x", limit=8), row(flavor="y"))],
        admitted=[
            running(gang("r", pod_set(1, 8)), {"n0": 1}, flavor="x"),
            running(gang("q", pod_set(1, 1)), {"n3": 1}, flavor="y"),
        ],
        pending=[gang("g", pod_set(1, 8, name="master"), pod_set(2, 8, name="worker"))],
        flavors=tuple(Flavor(name=name, node_labels={"f": name}) for name in "xy"),
    )
    texts = [other.text for other in told(snap).others]
    assert [text.partition(":")[0] for text in texts if "for each alone" in text] == [
        "master needs room for 1 pod of 8 gpu; worker needs room for 2 pods of 8 gpu"
    ]


@pytest.mark.parametrize("job", [gang("g", pod_set(9, 1)), gang("g", pod_set(3, 8), required="rack")])
def test_nobody_holds_what_there_never_is(job: Workload) -> None:
    """By a limit, and by the racks; quota that is short beside is another reason."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    limit = 8 if job.required is None else 24
    used = [running(gang("r", pod_set(1, 4)), {"n0": 1})]
    found = told(snapshot(nodes, [queue("root.a", row(limit=limit))], admitted=used, pending=[job]))
    assert (found.verdict, found.detail["holders"]) == (Verdict.CHANGE, [])
    assert [other.token for other in found.others] == [Token.WAITING_FOR_QUOTA][: job.required is not None]


def test_it_is_the_same_on_a_cycle_that_was_stored_and_can_be_stored_itself() -> None:
    """A gang that takes no part is told only the cycle's reason; a gang that does not wait is told
    nothing.
    """
    jobs = [gang("g", pod_set(9, 1)), gang("h", pod_set(1, 1), hold=True), gang("s", pod_set(1, 1))]
    snap = snapshot([node("n1")], TWO, pending=jobs)
    plan = decided(snap)
    body = encode(StoredCycle(snapshot=snap, now=0.0, seed=0, budget=Budget(deterministic=0.0), plan=plan))
    cycle = decode(body)
    here, there = AfterCycle(snap, plan, now=0.0, seed=0), AfterCycle.of(cycle)
    for uid in ("g", "h"):
        found = explain(here, uid)
        assert found is not None
        assert explain(there, uid) == found
        again = explanation_of(json.loads(json.dumps(explanation_json(found))))
        assert again == replace(found, would_admit=(), detail=dict(found.detail))
    assert explain(here, "h") == plan.explanations["h"]
    assert explain(here, "s") is None
