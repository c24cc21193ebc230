"""What cannot be decided on is refused by field, not decided wrongly: in direct calls, and where one snapshot follows
another.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.errors import InvalidInput
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Pending, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot

GREEDY = Budget(deterministic=0.0)
FULL = running(gang("v", pod_set(1, 8)), {"n0": 1})
GOOD = snapshot(
    [node("n0"), node("n1")], [queue("root.a")], admitted=[FULL], pending=[gang("g", pod_set(1, 1))]
)


def waiting(*workloads: Workload) -> Snapshot:
    return replace(GOOD, pending=tuple(Pending(workload=w) for w in workloads))


def sized(*gpus: int) -> Snapshot:
    """Nodes of other sizes."""
    nodes = (
        replace(s, node=replace(s.node, allocatable={GPU: n, "pods": 20}))
        for s, n in zip(GOOD.nodes, gpus, strict=True)
    )
    return replace(GOOD, nodes=tuple(nodes))


TWICE = gang("g", pod_set(1, 1)), gang("g", pod_set(2, 1))


@pytest.mark.parametrize(
    ("snap", "field"),
    [
        (waiting(gang("z", pod_set(0, 1))), "workload z.pod_sets[0].count"),
        (waiting(gang("z", pod_set(2, 1), pod_set(-1, 1, name="b"))), "workload z.pod_sets[1].count"),
        (waiting(gang("z", pod_set(1, 1, min_count=0))), "workload z.pod_sets[0].min_count"),
        (waiting(gang("z")), "workload z.pod_sets"),
        (waiting(gang("z", pod_set(2, 2**62))), f"workload z.pod_sets[0].requests.{GPU}"),
        (waiting(*TWICE), "snapshot: uid"),
        (waiting(gang("v", pod_set(1, 1))), "snapshot: uid"),
        (waiting(*(replace(w, hold=True) for w in TWICE)), "snapshot: uid"),
        (replace(GOOD, admitted=(FULL, FULL)), "snapshot: uid"),
        (sized(2**62, 2**62), f"snapshot.nodes: allocatable.{GPU}"),
        (sized(2**63, 8), f"snapshot.nodes[0].node.allocatable.{GPU}"),
    ],
)
def test_what_would_give_a_wrong_plan_is_refused_by_field(snap: Snapshot, field: str) -> None:
    with pytest.raises(InvalidInput) as first:
        decide(snap, now=0.0, seed=0, budget=GREEDY)
    assert field in [p.field for p in first.value.problems]
    assert all(p.hint for p in first.value.problems)
    with pytest.raises(InvalidInput) as then:
        Arrays.of(GOOD).follow(snap)
    assert then.value.problems == first.value.problems


def test_the_largest_that_can_be_summed_is_decided_on() -> None:
    plan = decide(sized(2**61, 2**61), now=0.0, seed=0, budget=GREEDY)
    assert [a.uid for a in plan.admissions] == ["g"]
