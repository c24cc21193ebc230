"""A database that knows nothing of what runs: all of it is charged before the first decision."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.intake.restored import SLICE
from queuer.controller.leadership import load
from queuer.controller.loop import Loop
from queuer.controller.memory.live import JobView
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.errors import Unavailable
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.workloads import NamespaceFacts
from queuer.store import workloads
from queuer.store.engine import begin
from tests.store.support import NOW, Step, admission, commit_cycle, cycle, intake_of, take_steps, workload

COUNT = 2 * SLICE + 20


async def test_all_that_runs_is_charged_before_anything_is_decided(engine: AsyncEngine, epoch: int) -> None:
    """More than one transaction takes, one that is stored otherwise among them. An answer that fails is asked again."""
    state = ClusterState()
    asked = list[str]()

    async def read(uid: str) -> JobView:
        asked.append(uid)
        if len(asked) == 1:
            raise Unavailable("the API server is away")
        return state.jobs[uid]

    jobs: Any = SimpleNamespace(
        reading=lambda job: (workload(job.uid), ()),
        facts=lambda job: NamespaceFacts(),
        adopt=lambda live, placement: {},
        read=read,
    )
    loop = Loop(
        state=state, jobs=jobs, engine=engine, decider=cast(Any, None), health=Health(stalled=30.0),
        settings=Settings(database_url=""), metrics=Metrics(), epoch=epoch, last_cycle=1, wake=asyncio.Event(),
        clock=lambda: NOW + 60,
    )  # fmt: skip
    state.node_changed(Node(name="n1", labels={}, allocatable={"cpu": 64_000, "pods": 110}))
    for number in range(COUNT):
        uid = f"w{number}"
        state.job_changed(
            JobView(
                uid=uid, kind="Job", namespace="team-a", name=uid, resource_version="1", suspended=False,
                admission="later",
            )
        )  # fmt: skip
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [intake_of(workload("w0"))], at=NOW)
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(workload("w0"))])
        await take_steps(connection, epoch, [Step(uid="w0", state=State.RUNNING, at=NOW)])
        await load(connection, state, now=NOW + 60)
    state.configure(Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("team-a",))]), revision=1))

    await loop.recognise()

    assert asked == ["w0", "w0"]
    async with begin(engine) as connection:
        open_rows = text("SELECT count(*), count(DISTINCT uid) FROM ledger WHERE closed IS NULL")
        assert tuple((await connection.execute(open_rows)).one()) == (COUNT, COUNT)
        states = text("SELECT state, attempt, count(*) FROM workload GROUP BY 1, 2 ORDER BY 2")
        found = [tuple(row) for row in await connection.execute(states)]
    assert found == [("Admitted", 1, COUNT - 1), ("Admitted", 2, 1)]
    assert not any(live.state.waiting for live in state.live.values())
