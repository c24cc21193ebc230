"""A gang inside its guarantee that cannot get enough back is told what its guarantee leaves it, what may be reclaimed
from whom, and what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Node, SchedulingTerms
from queuer.domain.queue import Policy, Preempt, Queue
from queuer.domain.reasons import Explanation, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Pending, Plan
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot

NOW = 0.0
ENTITLED = (queue("root.a", row(guaranteed=32)), queue("root.b"))


def crowded(
    waiting: Workload, loose: Mapping[int, int], *queues: Queue, nodes: int = 8, owner: str = "root.b"
) -> Explanation:
    """Nodes of 8 full of one-GPU jobs of another queue, of which some may be evicted: how many by node."""
    admitted = [
        running(
            gang(f"j{n}-{i}", pod_set(1, 1), queue=owner, preemptible=i < loose.get(n, 0)),
            {f"n{n}": 1},
            since=-100.0 - n - i,
        )
        for n in range(nodes)
        for i in range(8)
    ]
    snap = snapshot([node(f"n{n}") for n in range(nodes)], queues, admitted=admitted, pending=[waiting])
    return decide(snap, now=NOW, seed=0, budget=Budget(deterministic=2.0)).explanations[waiting.uid]


def asks(count: int, gpu: int = 8, **more: Any) -> Workload:
    """A gang of queue a."""
    return gang("g", pod_set(count, gpu), queue="root.a", **more)


def test_what_can_be_reclaimed_is_too_little() -> None:
    """31 of 32: one GPU is missing, and that is said instead of how full the cluster is."""
    told = crowded(asks(4), {0: 8, 1: 8, 2: 8, 3: 7}, *ENTITLED)
    assert told.primary.token is Token.WAITING_FOR_QUOTA
    assert told.primary.text == (
        "root.a uses 0 of its guaranteed 32 example.com/gpu and may claim 32 more. "
        "This job asks 32: 0 are free, 31 of the 64 that others borrow may be reclaimed (31 from root.b), "
        "1 is missing."
    )
    params = told.primary.params
    assert (params["left"], params["reclaimable"], params["missing"]) == ("32", "31", "1")
    assert params["from"] == [{"queue": "root.b", "amount": "31"}]
    assert [r.params["queue"] for r in told.others] == ["root"]


def test_sums_suffice_but_too_few_nodes_can_be_emptied() -> None:
    told = crowded(asks(4), {0: 8, 1: 8, 2: 8, 3: 7, 4: 7, 5: 7}, *ENTITLED)
    assert told.primary.text.endswith(
        "0 are free, 45 of the 64 that others borrow may be reclaimed (45 from root.b). "
        "With all of these gone, main needs room for "
        "4 pods of 8 example.com/gpu; 3 fit on all usable nodes together, 1 is missing."
    )


def test_nobody_gives_back_of_its_own_guarantee() -> None:
    """b is guaranteed 40 of the 64 it uses, so 24 may go; the last victim may not cross the line further."""
    queues = (queue("root.a", row(guaranteed=32)), queue("root.b", row(guaranteed=40)))
    told = crowded(asks(4), dict.fromkeys(range(8), 8), *queues)
    assert told.primary.params["reclaimable"] == "24"
    assert told.primary.params["missing"] == "8"


def test_guarantees_of_inner_queues_count_too() -> None:
    """root.p is guaranteed 50 for root.p.b, which itself is guaranteed nothing."""
    queues = (queue("root.a", row(guaranteed=14)), queue("root.p", row(guaranteed=50)), queue("root.p.b"))
    told = crowded(asks(2, 7), dict.fromkeys(range(8), 6), *queues, owner="root.p.b")
    assert told.primary.params["from"] == [{"queue": "root.p", "amount": "14"}]


@pytest.mark.parametrize(
    "queues",
    [
        pytest.param((queue("root.a", row(guaranteed=16)), queue("root.b")), id="outside its guarantee"),
        pytest.param(
            (queue("root.a", row(guaranteed=32), policy=Policy(reclaim=False)), queue("root.b")),
            id="reclaim is off",
        ),
        pytest.param(
            (queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY)), queue("root.a"), queue("root.b")),
            id="by priority",
        ),
    ],
)
def test_others_are_told_the_row(queues: tuple[Queue, ...]) -> None:
    told = crowded(asks(4), {0: 8, 1: 8, 2: 8, 3: 7}, *queues)
    assert told.primary.text == "root uses 64 of 64 example.com/gpu (the live capacity); this job asks 32."


@pytest.mark.parametrize(
    ("cpus", "told"), [(100, "root.a uses 0 of its guaranteed 8"), (1, "root uses 8 of 8")]
)
def test_who_may_take_more_by_priority_is_told_the_row(cpus: int, told: str) -> None:
    """Beyond the 4 GPUs that `b` borrows its work may go by priority where it uses more CPUs than its guarantee."""
    both = PodSet(name="main", count=1, requests={GPU: 2, "cpu": 2, "pods": 1})
    jobs = [gang(f"j{n}", both, queue="root.b", preemptible=n > 0) for n in range(4)]
    waits = gang("g", replace(both, requests={GPU: 8, "cpu": 1, "pods": 1}), priority=1)
    snap = snapshot(
        [Node(name="n0", labels={}, allocatable={GPU: 8, "cpu": 100, "pods": 20})],
        [
            queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY)),
            queue("root.a", row(guaranteed=8)),
            queue("root.b", row(guaranteed=4), row("cpu", guaranteed=cpus)),
        ],
        admitted=[running(job, {"n0": 1}) for job in jobs],
        pending=[waits],
    )
    found = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=2.0)).explanations["g"]
    assert found.primary.text.startswith(told)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_place_that_reclaim_cannot_make(leaves: bool) -> None:
    """Quota is free, but no node is; what would be left with all borrowers gone is told, and with who leaves anyway."""
    nodes = [*(node(f"n{n}") for n in range(4)), node("n4", gpu=5)]
    ends: dict[str, Any] = {"releasing": True, "gone_by": 30.0} if leaves else {}
    fixed = [
        running(gang(f"f{n}", pod_set(1, 5), queue="root.b", preemptible=False), {f"n{n}": 1})
        for n in range(3)
    ]
    loose = running(gang("v", pod_set(1, 2), queue="root.b"), {"n3": 1})
    snap = snapshot(
        nodes,
        (queue("root.a", row(guaranteed=16)), queue("root.b"), queue("root.c", row(guaranteed=5))),
        admitted=[*fixed, loose, running(gang("c", pod_set(1, 5), queue="root.c"), {"n4": 1}, **ends)],
        pending=[asks(2, 6)],
    )
    told = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=2.0)).explanations["g"]
    assert told.primary.token is Token.TOPOLOGY_PLACEMENT_FAILED
    assert told.primary.text == (
        "root.a uses 0 of its guaranteed 16 example.com/gpu and may claim 16 more. "
        "This job asks 12: 2 of the 17 that others borrow may be reclaimed (2 from root.b). "
        f"With all of these{' and those that are leaving' if leaves else ''} gone, main needs room for "
        "2 pods of 6 example.com/gpu; 1 fits on all usable nodes together, 1 is missing."
    )


def test_own_lower_work_is_counted_beside() -> None:
    nodes = [node(f"n{n}") for n in range(2)]
    own = running(gang("own", pod_set(1, 8), queue="root.a", priority=-1), {"n0": 1})
    other = running(gang("b", pod_set(1, 8), queue="root.b", preemptible=False), {"n1": 1})
    queues = (queue("root.a", row(guaranteed=32)), queue("root.b"))
    snap = snapshot(nodes, queues, admitted=[own, other], pending=[asks(2)])
    told = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=2.0)).explanations["g"]
    assert told.primary.text.endswith(
        "This job asks 16: 0 are free, 0 of the 8 that others borrow may be reclaimed, "
        "8 of lower priority may be preempted, 8 are missing."
    )


def test_what_is_borrowed_only_since_its_turn_is_for_the_next_cycle() -> None:
    """Nobody borrows at its turn; then `late` starts, so that `full` might be evicted, which nobody has looked at."""
    nodes = [node("n0"), node("n1", gpu=4), node("n2", gpu=4)]
    queues = [queue(path, row(guaranteed=8)) for path in ("root.a", "root.b")]
    full = running(gang("full", pod_set(1, 8), queue="root.b"), {"n0": 1}, since=-100.0)
    late = gang("late", pod_set(1, 4), queue="root.b", submitted=1.0)
    snap = snapshot(nodes, queues, admitted=[full], pending=[asks(1), late])
    told = decide(snap, now=NOW, seed=0, budget=Budget()).explanations["g"]
    assert told.primary.token is Token.PENDING_EVALUATION
    assert told.primary.text == (
        "Jobs that started after its turn borrow, so more may be reclaimed (8 from root.b); the next cycle decides."
    )
    borrows = running(late, {"n1": 1}, since=-10.0)
    then = snapshot(nodes, queues, admitted=[full, borrows], pending=[asks(1)])
    assert [e.uid for e in decide(then, now=NOW, seed=0, budget=Budget()).evictions] == ["full"]


@pytest.mark.parametrize("through", [False, True], ids=["directly", "through another"])
def test_who_spares_somebody_is_told_whom(through: bool) -> None:
    """Its guarantee is used by a borrower that it may not evict, as it was itself evicted for that one; another one of
    its shape, for which nobody ever came, is told of nobody and evicts.
    """
    nodes, queues = [node(f"n{n}") for n in range(4)], [queue("root.a", row(guaranteed=16)), queue("root.b")]
    borrower = running(gang("b", pod_set(4, 8), queue="root.b"), {f"n{n}": 1 for n in range(4)}, since=-100.0)
    other = Pending(workload=gang("c", pod_set(9, 8), queue="root.b"), displaced_by=frozenset({"b"}))
    spares = Pending(workload=asks(2), displaced_by=frozenset({"c" if through else "b"}))
    snap = snapshot(nodes, queues, admitted=[borrower])

    def told(*waiting: Pending) -> Plan:
        return decide(replace(snap, pending=waiting), now=NOW, seed=0, budget=Budget())

    plan = told(spares, other)
    assert (plan.evictions, plan.explanations["c"].primary.token) == ((), Token.EXCEEDS_MAX_QUOTA)
    assert plan.explanations["g"].primary.text.endswith(
        "this job asks 16. It spares test/b, as it was itself evicted for that, directly or by way of others."
    )
    assert plan.explanations["g"].primary.params["spares"] == ["test/b"]
    alike = Pending(workload=replace(asks(2), uid="late", name="late", submitted=1.0))
    assert [(e.uid, e.beneficiary) for e in told(spares, other, alike).evictions] == [("b", "late")]


LIMITED = {"limit": 8, "owner": "root.a"}


@pytest.mark.parametrize(
    ("spares", "more"),
    [
        pytest.param(["near"], {}, id="nodes"),
        pytest.param(["far", "near"], LIMITED, id="quota beside nodes"),
        pytest.param([], {**LIMITED, "stays": "near"}, id="quota beside nodes that stay full"),
        pytest.param([], {**LIMITED, "stays": "far"}, id="quota that stays used"),
        pytest.param(["far"], {**LIMITED, "gpus": 16}, id="quota"),
        pytest.param([], {**LIMITED, "gpus": 16, "preemptible": False}, id="quota that it may not borrow"),
        pytest.param(
            ["near"], {**LIMITED, "limit": 16, "stays": "far", "late": 4}, id="quota is taken since"
        ),
    ],
)
def test_who_holds_what_a_gang_lacks_is_said_to_be_spared(
    spares: Sequence[str], more: Mapping[str, Any]
) -> None:
    """The gang may use `n0` alone, where `near` lies; `far` lies elsewhere. Whom it is said to spare it would evict,
    had it not gone for them.
    """
    nodes = [
        node("n0", gpu=more.get("gpus", 8), labels={"rack": "r"}),
        node("n1", gpu=8 + more.get("late", 0)),
    ]
    runs = [
        running(gang(uid, pod_set(1, 8), queue=path, preemptible=uid != more.get("stays")), {at: 1})
        for uid, path, at in (("near", "root.b", "n0"), ("far", more.get("owner", "root.b"), "n1"))
    ]
    only = replace(pod_set(1, 8), terms=SchedulingTerms(node_selector={"rack": "r"}))
    asking = gang("g", only, priority=1, preemptible=more.get("preemptible", True))
    late = [gang("late", pod_set(1, more["late"]), submitted=1.0)] if "late" in more else []
    policy = Policy(preempt=Preempt.LOWER_PRIORITY)
    queues = [
        queue("root", policy=policy),
        queue("root.a", row(limit=more.get("limit"))),
        queue("root.b"),
    ]

    def planned(*before: str) -> Plan:
        waits = Pending(workload=asking, displaced_by=frozenset(before))
        snap = snapshot(nodes, queues, admitted=runs, pending=[waits, *late])
        return decide(snap, now=NOW, seed=0, budget=Budget())

    told = planned("near", "far").explanations["g"].primary
    assert told.params.get("spares", []) == [f"test/{uid}" for uid in spares]
    assert sorted(e.uid for e in planned().evictions) == spares
