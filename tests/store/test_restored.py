"""A database that knows nothing of what runs: all of it is charged before the first decision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.intake.restored import SLICE
from queuer.controller.leadership import load
from queuer.controller.memory.live import JobView
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import Unavailable
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.workloads import NamespaceFacts
from queuer.store.engine import begin
from tests.store.support import NOW, start, take_step, workload
from tests.store.terms import looping
from tests.unit.make import job_view

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
    loop = looping(engine, state, jobs, epoch=epoch, clock=lambda: NOW + 60)
    state.node_changed(Node(name="n1", labels={}, allocatable={"cpu": 64_000, "pods": 110}))
    for number in range(COUNT):
        runs = job_view(f"w{number}", namespace="team-a", suspended=False, admission="later")
        state.job_changed(runs)
    async with begin(engine) as connection:
        await start(connection, epoch, workload("w0"))
        await take_step(connection, epoch, "w0", State.RUNNING)
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
