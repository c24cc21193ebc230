"""`max-runtime` is a promise: who breaks it makes room for the gang that a reservation was placed for on its word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.cycle.judge import LATE, DecisionRequest, overrun
from queuer.controller.cycle.snapshot import take
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Reservation
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State, Workload
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Pending, Snapshot
from tests.solver.make import plan_of
from tests.unit.controller.test_judge import committed
from tests.unit.make import assigned, gang, job_view, placed, pod_view, sure

GPU = "nvidia.com/gpu"
POD = {"pods": 1, GPU: 8}
PLACE = assigned({"n1": 1})
RESERVED = Reservation(uid="waits", assignments=(PLACE,), start=3000.0, expires=9000.0)
GRACE = 30.0
DUE = 100.0 + 3600.0 + LATE + GRACE
"""When `runs` has to go: it started at 100 and is to last an hour."""


def workload(uid: str, **facts: Any) -> Workload:
    return gang(uid, requests=POD, **facts)


def world(*, node: str = "n1", used: int = 8, **facts: Any) -> ClusterState:
    """`waits` has a reservation on n1, where (or elsewhere) `runs` takes so many GPUs."""
    state = ClusterState()
    for name in ("n1", "n2"):
        state.node_changed(Node(name=name, labels={}, allocatable={"pods": 10, GPU: 8}))
    placement = placed({node: 1}, at=90.0, patched=95.0)
    runs = Live(workload=workload("runs", **{"max_runtime": 3600.0, **facts}), state=State.RUNNING)
    state.put(replace(runs, placement=placement, landed=99.0, running=100.0))
    state.put(Live(workload=workload("waits"), state=State.QUEUED))
    state.pod_changed(
        pod_view(node=node, owner="runs", running=True, requests={"pods": 1, GPU: used}, grace=GRACE)
    )
    return state


@pytest.mark.parametrize("preemptible", [True, False])
def test_who_is_past_its_bound_and_grace_goes_for_whom_the_place_is_reserved(preemptible: bool) -> None:
    state = world(preemptible=preemptible)
    assert overrun(state, [RESERVED], now=DUE - 1.0) == {}
    assert overrun(state, [RESERVED], now=DUE) == {"runs": "waits"}


@pytest.mark.parametrize(
    "stays",
    [
        {"max_runtime": None},
        {"max_runtime": 7200.0},
        {"node": "n2"},
        {"used": 0},
    ],
    ids=["it declared nothing", "its bound is later", "it is elsewhere", "it holds nothing that is short"],
)
def test_nobody_else_goes(stays: dict[str, Any]) -> None:
    assert overrun(world(**stays), [RESERVED], now=DUE) == {}


def test_a_reservation_for_later_makes_nobody_go() -> None:
    assert overrun(world(), [replace(RESERVED, start=DUE + 1.0)], now=DUE) == {}


def test_a_reservation_that_has_its_room_makes_nobody_go() -> None:
    """Beside its own work there may be room enough."""
    state = world(used=4)
    small = replace(state.live["waits"].workload.pod_sets[0], requests={"pods": 1, GPU: 4})
    state.put(replace(state.live["waits"], workload=replace(workload("waits"), pod_sets=(small,))))
    assert overrun(state, [RESERVED], now=DUE) == {}


def test_a_reservation_stands_until_who_overruns_goes() -> None:
    """Guards the rule against the decision itself, which gives work that outlives its end more and more time."""
    state = world()
    state.node_gone("n2")
    state.configure(Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",))]), revision=1))
    for uid in ("runs", "waits"):
        state.job_changed(job_view(uid))
    state.take_unread(99)
    gone: list[float] = []
    for now in range(1000, 5000, 20):
        at = float(now)
        snapshot = take(state, now=at)
        plan = decide(snapshot, now=at, seed=0, budget=Budget(deterministic=0.0))
        asked = DecisionRequest(snapshot=snapshot, cycle=now, at=at, trigger="time")
        found = committed(state, asked, plan, now=at)
        state.reservations = found.reservations or ()
        gone += [at for e in found.values() if e.evicts and (e.uid, e.cause) == ("runs", "max-runtime")]
        if gone:
            break
    assert DUE <= gone[0] <= DUE + 20.0


def test_it_is_evicted_with_the_plan_and_told_for_whom() -> None:
    state = world()
    for uid in ("runs", "waits"):
        state.job_changed(job_view(uid))
    state.take_unread(99)
    snapshot = Snapshot(nodes=(), tree=state.rules.tree, pending=(Pending(workload=workload("waits")),))
    plan = plan_of(reservations=(RESERVED,))
    asked = DecisionRequest(snapshot=snapshot, cycle=2, at=DUE, trigger="time")
    [change] = committed(state, asked, plan, now=DUE).values()
    assert change.evicts
    assert (change.uid, change.cause, change.beneficiary) == ("runs", "max-runtime", "waits")
    after = sure(change.after)
    assert (after.state, after.displaced_by) == (State.EVICTING, frozenset({"waits"}))
