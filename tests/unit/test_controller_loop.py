"""A plan that cannot be used costs its cycle, not the leadership."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuer.controller.live import JobView, Live
from queuer.controller.loop import Loop
from queuer.controller.metrics import Metrics
from queuer.controller.namespace_quota import Reckoning
from queuer.controller.settings import Settings
from queuer.controller.state import ClusterState
from queuer.domain.workload import PodSet, State, Workload
from queuer.core.records import Admission, Assignment, CycleStats, Plan, SolveStatus

NOBODY = cast(Any, None)
"""Stands for what is never asked where nothing is committed."""
WORKLOAD = Workload(
    uid="a", kind="Job", namespace="ns", name="a", queue="root.a", submitted=0.0,
    pod_sets=(PodSet(name="main", count=1, requests={"pods": 1}),),
)  # fmt: skip
PLAN = Plan(
    admissions=(), evictions=(), bonds=(), reservations=(), explanations={}, order=("a",),
    stats=CycleStats(status=SolveStatus.GREEDY),
)  # fmt: skip
STRANGE = Admission(uid="a", assignments=(Assignment(pod_set="strange", flavor="default", nodes={"n1": 1}),))


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, stats=replace(PLAN.stats, solver_time=-5.0)),
        replace(PLAN, admissions=(STRANGE,)),
    ],
)
async def test_a_plan_that_cannot_be_used_is_refused_and_the_next_is_asked_for(plan: Plan) -> None:
    state, metrics, asked, wake = ClusterState(), Metrics(), list[float](), asyncio.Event()
    state.put(Live(workload=WORKLOAD, state=State.QUEUED))
    job = JobView(uid="a", kind="Job", namespace="ns", name="a", resource_version="1", suspended=True)
    state.job_changed(job)
    state.take_new(), state.take_touched()

    class Mad:
        async def decide(self, *_: object, now: float, **__: object) -> Plan:
            asked.append(now)
            return plan

    async def nobody(*_: object, **__: object) -> frozenset[str]:
        return frozenset()

    jobs = SimpleNamespace(reckoning=lambda: Reckoning(state, ()), with_pods_left=nobody)
    clock = [100.0]
    loop = Loop(
        state=state, jobs=cast(Any, jobs), engine=NOBODY, decider=Mad(), settings=Settings(database_url=""),
        metrics=metrics, health=NOBODY, epoch=1, last_cycle=0, wake=wake, clock=lambda: clock[0],
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        for at in (100.0, 200.0, 300.0):
            clock[0] = at
            wake.clear()
            await loop.round(group)
            await wake.wait()
    await loop.round(cast(Any, SimpleNamespace(create_task=pytest.fail)))
    assert asked == [100.0, 200.0, 300.0]
    assert "queuer_plans_refused_total 3.0" in metrics.text(()).decode()
