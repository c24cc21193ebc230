"""A gang that could evict somebody but for `minRuntime` is told how much of whom, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.queue import Policy, Queue
from queuer.domain.reasons import Protected, Reason, Token
from queuer.solver.decide import decide
from queuer.solver.explain import sentences
from queuer.solver.explain.young import Young
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal
from queuer.solver.problem import Admitted, Budget, Plan, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot

NOW = 1_000.0
OVER = Policy(min_runtime=600.0)
QUEUES = (queue("root.a", row(guaranteed=16)), queue("root.b", policy=OVER), queue("root.c", policy=OVER))
LATER = "may not be evicted for it yet, as minRuntime is not over; the first may be from 1970-01-01"


def runs(uid: str, at: str, *, path: str = "root.b", since: float = 700.0, **fields: Any) -> Admitted:
    """A job of 8 GPUs on one node."""
    return running(gang(uid, pod_set(1, 8), queue=path, **fields), {at: 1}, since=since)


def asks(pods: int = 2, **fields: Any) -> Snapshot:
    """Two nodes of 8 GPUs, and a gang of so many times 8."""
    return snapshot([node("n0"), node("n1")], QUEUES, pending=[gang("g", pod_set(pods, 8), **fields)])


def decided(snap: Snapshot, *admitted: Admitted, now: float = NOW, queues: Sequence[Queue] = QUEUES) -> Plan:
    used = {name: amounts for one in admitted for name, amounts in one.bound.items()}
    nodes = tuple(replace(s, used=used.get(s.node.name, {})) for s in snap.nodes)
    tree = snapshot([], queues).tree
    return decide(replace(snap, nodes=nodes, tree=tree, admitted=admitted), now=now, seed=0, budget=Budget())


def protected(plan: Plan, uid: str = "g") -> list[Reason]:
    return [r for r in plan.explanations[uid].others if "protected" in r.params]


def test_what_is_out_of_reach_is_told_with_amounts_and_the_earliest_end() -> None:
    borrowers = runs("old", "n0", since=650.0), runs("new", "n1", path="root.c")
    plan = decided(asks(), *borrowers)
    (reason,) = protected(plan)
    assert (
        reason.text == f"2 workloads hold 16 {GPU} (8 in root.b, 8 in root.c) that {LATER} 00:20:50 UTC on."
    )
    assert reason.params == {
        "resource": GPU,
        "protected": "16",
        "from": [{"queue": "root.b", "amount": "8"}, {"queue": "root.c", "amount": "8"}],
        "until": 1250.0,
    }
    assert plan.explanations["g"].primary.token is reason.token is Token.WAITING_FOR_QUOTA
    before = decided(asks(), *borrowers, now=1299.0)
    assert before.evictions == ()
    assert [r.params["protected"] for r in protected(before)] == ["8"]
    assert {e.uid for e in decided(asks(), *borrowers, now=1300.0).evictions} == {"old", "new"}


def test_it_is_told_of_nodes_too() -> None:
    """There is quota for it, and nodes of its own are taken."""
    only = replace(pod_set(1, 8), terms=SchedulingTerms(node_selector={"rack": "r"}))
    nodes = [node("n0", labels={"rack": "r"}), node("n1")]
    snap = snapshot(nodes, QUEUES, pending=[gang("g", only)])
    plan = decided(snap, runs("new", "n0"))
    (reason,) = protected(plan)
    assert reason.text == f"1 workload holds 8 {GPU} (8 in root.b) that {LATER} 00:21:40 UTC on."
    assert reason.token is plan.explanations["g"].primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    (beside,) = protected(decided(snap, runs("new", "n0"), runs("other", "n1")))
    assert beside.params == reason.params


@pytest.mark.parametrize(
    ("pods", "fields", "admitted", "queues"),
    [
        pytest.param(2, {}, [{}, {"preemptible": False}], QUEUES, id="the other one stays"),
        pytest.param(2, {"preemptible": False, "queue": "root.c"}, [{}, {}], QUEUES, id="it may not borrow"),
        pytest.param(2, {"queue": "root.c"}, [{}, {}], QUEUES, id="no right to them"),
        pytest.param(3, {}, [{}, {}], QUEUES, id="too large"),
        pytest.param(1, {}, [{"path": "root.a"}, {"path": "root.a"}], QUEUES, id="its own queue"),
        pytest.param(2, {}, [{}, {"since": 0.0, "path": "root.a"}], QUEUES, id="not enough even so"),
    ],
)
def test_nobody_is_named_who_would_not_help(
    pods: int, fields: dict[str, Any], admitted: Sequence[dict[str, Any]], queues: Sequence[Queue]
) -> None:
    held = [runs(f"v{n}", f"n{n}", **one) for n, one in enumerate(admitted)]
    plan = decided(asks(pods, **fields), *held, queues=queues)
    assert plan.evictions == ()
    assert protected(plan) == []


def test_only_what_is_above_the_guarantee_is_counted() -> None:
    """The second of them would no longer borrow."""
    queues = (queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=8), policy=OVER))
    plan = decided(asks(1), runs("v0", "n0"), runs("v1", "n1"), queues=queues)
    assert [r.params["protected"] for r in protected(plan)] == ["8"]


def test_lower_work_of_its_own_queue_is_told() -> None:
    queues = (queue("root.a", policy=OVER),)
    held = [runs(f"v{n}", f"n{n}", path="root.a") for n in range(2)]
    (reason,) = protected(decided(asks(1, priority=5), *held, queues=queues))
    assert reason.params["from"] == [{"queue": "root.a", "amount": "16"}]
    assert protected(decided(asks(1), *held, queues=queues)) == []


@pytest.mark.parametrize("preemptible", [True, False])
def test_who_may_not_be_evicted_does_not_learn_of_work_below_it(preemptible: bool) -> None:
    """Protects: it starts only inside its guarantee, which all that runs in its queue counts against."""
    queues = (queue("root.a", row(guaranteed=8, limit=8), policy=OVER),)
    plan = decided(
        asks(1, priority=5, preemptible=preemptible), runs("v", "n0", path="root.a"), queues=queues
    )
    assert len(protected(plan)) == preemptible


@pytest.mark.parametrize(("stays", "told"), [("n1", ["4"]), ("n0", [])])
def test_nobody_is_named_whose_nodes_would_not_do(stays: str, told: list[str]) -> None:
    """Protects: sums alone do not open a place. Its node is full, too, with work that stays."""
    only = replace(pod_set(1, 8), terms=SchedulingTerms(node_selector={"rack": "r"}))
    snap = snapshot([node("n0", labels={"rack": "r"}), node("n1")], QUEUES, pending=[gang("g", only)])
    young = running(gang("young", pod_set(1, 4), queue="root.b"), {"n0": 1}, since=700.0)
    firm = running(gang("firm", pod_set(1, 4), queue="root.c", preemptible=False), {stays: 1}, since=700.0)
    nodes = [
        replace(s, used={GPU: 4 * n, "pods": n})
        for s, n in zip(snap.nodes, (2, 0) if stays == "n0" else (1, 1), strict=True)
    ]
    plan = decide(replace(snap, nodes=tuple(nodes), admitted=(young, firm)), now=NOW, seed=0, budget=Budget())
    assert [r.params["protected"] for r in protected(plan)] == told


def test_only_who_lacks_quota_or_nodes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects: that others leave earlier helps nobody whom something else keeps from starting."""
    find, told = Young.find, set[Block]()

    def each(self: Young, gang: Gang, refusal: Refusal) -> Protected | None:
        told.update(b for b in Block if find(self, gang, replace(refusal, block=b)) is not None)
        return find(self, gang, refusal)

    monkeypatch.setattr(Young, "find", each)
    decided(asks(), runs("v0", "n0"), runs("v1", "n1"))
    assert told == {Block.QUOTA, Block.PLACE}


@pytest.mark.parametrize(("steps", "told"), [(0, []), (1, ["g0"]), (532, ["g0"]), (533, ["g0", "g1"])])
def test_from_some_number_of_steps_on_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch, steps: int, told: list[str]
) -> None:
    """Protects: the work is bounded. 10 for rights, 502 to look at two nodes, 20 to think two gone, that once for all
    with the same rights.
    """
    monkeypatch.setattr("queuer.solver.explain.young.STEPS", steps)
    waiting = [gang(f"g{i}", pod_set(2, 8), priority=-i) for i in range(2)]
    snap = replace(asks(), pending=snapshot([], QUEUES, pending=waiting).pending)
    plan = decided(snap, runs("v0", "n0"), runs("v1", "n1"))
    assert [uid for uid in ("g0", "g1") if protected(plan, uid)] == told


def test_of_many_kinds_of_gangs_only_the_first_are_told() -> None:
    """Protects: the bound is one that a cycle can afford."""
    waiting = [gang(f"g{i}", pod_set(2, 8), priority=-i) for i in range(220)]
    snap = replace(asks(), pending=snapshot([], QUEUES, pending=waiting).pending)
    plan = decided(snap, runs("v0", "n0"), runs("v1", "n1"))
    told = [bool(protected(plan, workload.uid)) for workload in waiting]
    assert 100 < sum(told) < len(told)
    assert told == sorted(told, reverse=True)


@pytest.mark.parametrize(
    ("until", "moment"),
    [
        (1250.0, "1970-01-01 00:20:50 UTC"),
        (1250.2, "1970-01-01 00:20:51 UTC"),
        (0.0, "1970-01-01 00:00:00 UTC"),
        (-1.0, "-1 s"),
        (253_402_300_799.0, "9999-12-31 23:59:59 UTC"),
        (253_402_300_799.5, "253402300800 s"),
        (1e15, "1000000000000000 s"),
    ],
)
def test_the_moment_is_never_told_too_early_and_calendars_need_not_have_it(until: float, moment: str) -> None:
    """Protects: at the moment told it may go; one beyond calendars is no error."""
    reason = sentences.protected(Token.WAITING_FOR_QUOTA, Protected((None, GPU), 1, (("root.b", 8),), until))
    assert reason.text.endswith(f"; the first may be from {moment} on.")
    assert reason.params["until"] == until
