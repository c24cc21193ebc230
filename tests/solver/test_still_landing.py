"""Nobody is evicted, and nobody is told that there is no room, where room is left once pods of earlier cycles lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, Plan, Snapshot, SolveStatus, Unbound
from queuer.solver.verify import verify
from tests.solver.cases import NOW
from tests.solver.cases_landing import landings, unlanded
from tests.solver.make import TOPOLOGY, gang, node, pod_set, queue, row, running, snapshot

NODES = [node(f"n{i}", labels={"block": "b0", "rack": "r0"}) for i in range(4)]
HOSTS = tuple(n.name for n in NODES)
ALONE = Budget(deterministic=0.0)
QUEUES = [queue("root"), queue("root.a", row(guaranteed=32)), queue("root.b")]


def landing(pods: int, gpu: int, *, hosts: tuple[str, ...] = HOSTS) -> Admitted:
    """A borrower that has just started, none of its pods is bound yet."""
    work = gang("l", pod_set(pods, gpu), queue="root.b", required="rack")
    whole = running(work, {hosts[0]: pods}, since=-1.0)
    return replace(whole, bound={}, unbound=(Unbound(pod_set="main", count=pods, hosts=hosts),))


def decided(*waiting: Workload, there: tuple[Admitted, ...]) -> tuple[Snapshot, Plan]:
    snap = snapshot(NODES, QUEUES, admitted=there, pending=waiting, topology=TOPOLOGY)
    plan = decide(snap, now=0.0, seed=0, budget=Budget())
    assert verify(snap, plan, now=0.0) == ()
    return snap, plan


@pytest.mark.parametrize("asks", [(4, 1), (12, 1), (1, 8), (2, 4)])
@pytest.mark.parametrize("lands", [(2, 5), (9, 1), (4, 4)])
def test_who_fits_once_they_have_landed_evicts_nobody(lands: tuple[int, int], asks: tuple[int, int]) -> None:
    """16 to 23 of 32 GPUs are free, inside a guarantee of 32."""
    _, plan = decided(gang("g", pod_set(*asks)), there=(landing(*lands),))
    assert plan.evictions == ()
    if not plan.admissions:
        assert plan.explanations["g"].primary.token is Token.PENDING_EVALUATION
        assert plan.stats.status is not SolveStatus.OPTIMAL


def test_room_that_is_left_is_kept_for_the_first() -> None:
    """Whoever comes later would take what it starts on in a second."""
    first, later = gang("g", pod_set(2, 8)), gang("h", pod_set(8, 1), queue="root.b", submitted=1)
    _, plan = decided(first, later, there=(landing(2, 4),))
    assert not plan.admissions
    assert plan.evictions == ()


def test_who_has_no_room_even_then_evicts() -> None:
    _, plan = decided(gang("g", pod_set(4, 8)), there=(landing(2, 5),))
    assert [e.uid for e in plan.evictions] == ["l"]


def test_who_waits_for_them_takes_the_room_next_time() -> None:
    """The scheduler has packed them tightly."""
    bound = running(gang("l", pod_set(2, 4), queue="root.b", required="rack"), {"n0": 2}, since=-1.0)
    _, plan = decided(gang("g", pod_set(3, 8)), there=(bound,))
    assert [a.uid for a in plan.admissions] == ["g"]


def test_whoever_starts_however_they_land_waits_for_that_alone() -> None:
    """Every way in which they can land is looked up, for the gang that has the first turn."""
    asked = 0
    for snap in filter(None, map(unlanded, range(100))):
        plan = decide(snap, now=NOW, seed=0, budget=ALONE)
        uid = plan.order[0] if plan.order else ""
        ways = list(islice(landings(snap), 100))
        if not ways or uid in {a.uid for a in plan.admissions} or not all(_starts(w, uid) for w in ways):
            continue
        asked += 1
        assert not [e for e in plan.evictions if e.beneficiary == uid]
        assert plan.explanations[uid].primary.token is Token.PENDING_EVALUATION
    assert asked > 5


def _starts(snap: Snapshot, uid: str) -> bool:
    """Whether it would, with nobody beside it."""
    alone = replace(snap, pending=tuple(p for p in snap.pending if p.workload.uid == uid))
    return bool(decide(alone, now=NOW, seed=0, budget=ALONE).admissions)
