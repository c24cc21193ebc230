"""A row that somebody has edited, or that a newer version wrote, costs its own workload, and neither the others nor the
term.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.config import follow_revision
from queuer.controller.health.metrics import Metrics
from queuer.controller.landing.steps import CORRECT
from queuer.controller.leadership import inherit, load
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.domain.nodes import Node
from queuer.domain.workload import State
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.decide import decide
from queuer.solver.records import Plan, Snapshot
from queuer.store import ledger
from queuer.store.config import ConfigUnreadable
from queuer.store.engine import begin
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.store.support import GPU, NOW, start, workload
from tests.store.terms import auditing, looping
from tests.unit.make import job_view, pod_view, sure
from tests.waiting import PATIENCE

SPOILT = {
    "empty": "'[{}]'",
    "no list": """'{"podSet": "main"}'""",
    "none": "'[]'",
    "another pod set": """jsonb_set(assignments, '{0,podSet}', '"other"')""",
    "nodes": "jsonb_set(assignments, '{0,nodes}', '7')",
    "less than no pod": """jsonb_set(assignments, '{0,nodes}', '{"n1": -1}')""",
    "selector": "jsonb_set(assignments, '{0,selector}', '[7]')",
}
"""What is made of the assignments of `a`, as SQL."""
ROWS = {
    "pod sets": "pod_sets = '[{}]'",
    "too many pods": "pod_sets = jsonb_set(pod_sets, '{0,count}', '-1')",
    "too large": "pod_sets = jsonb_set(pod_sets, '{0,requests,cpu}', '9223372036854775808')",
    "override": """override = '{"hold": "newer"}'""",
    "avoid": """avoid = '{"n1": "tomorrow"}'""",
}
"""What becomes of the row of `a`, as SQL."""


class Scene:
    """Two gangs, `a` and `b`, that are admitted by an earlier leader, and who leads next."""

    def __init__(self, engine: AsyncEngine, epoch: int) -> None:
        self.engine, self.epoch, self.now = engine, epoch, NOW + 60
        self.state, self.metrics = ClusterState(), Metrics()
        jobs: Any = SimpleNamespace(
            workload=lambda job: workload(job.uid),
            reading=lambda job: (workload(job.uid), ()),
            facts=lambda job: NamespaceFacts(),
            as_decided=lambda job: True,
            withdraw=lambda live: {},
            resource_quotas=lambda: (),
            known=Facts,
        )
        self.loop = looping(
            engine, self.state, jobs, epoch=epoch, clock=lambda: self.now, decider=self, metrics=self.metrics
        )
        self.auditor = auditing(
            engine, self.state, self.metrics, epoch=epoch, quarantine=self.loop.term.quarantine
        )

    async def decide(self, snapshot: Snapshot, **given: Any) -> Plan:
        """Decides, without a process of its own."""
        return decide(snapshot, **given)

    async def begin(self, spoilt: str) -> None:
        made = [workload(uid) for uid in ("a", "b")]
        async with begin(self.engine) as connection:
            await start(connection, self.epoch, *made)
        await self.execute(f"UPDATE admission SET assignments = {spoilt} WHERE uid = 'a'")
        self.state.node_changed(Node(name="n1", labels={}, allocatable={"cpu": 64_000, "pods": 110}))
        for uid in ("a", "b"):
            self.state.job_changed(job_view(uid, namespace="team-a"))

    async def load(self, state: ClusterState | None = None) -> list[Entry]:
        """The next leader takes over; answers the entries that were still to be sent."""
        async with begin(self.engine) as connection:
            return await load(connection, self.state if state is None else state, now=self.now)

    async def look(self) -> None:
        """The auditor has seen the same fault often enough."""
        for _ in range(3):
            await self.auditor.look()

    async def execute(self, statement: str) -> list[Any]:
        async with begin(self.engine) as connection:
            found = await connection.execute(text(statement))
            return [row[0] for row in found] if found.returns_rows else []

    async def round(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self.loop.round(group)


@pytest.fixture
def scene(engine: AsyncEngine, epoch: int) -> Scene:
    return Scene(engine, epoch)


@pytest.mark.parametrize("how", SPOILT)
async def test_an_admission_that_cannot_be_judged_is_taken_back(scene: Scene, how: str) -> None:
    """It goes back to its queue, and its capacity with it; what else the earlier leader left is finished."""
    await scene.begin(SPOILT[how])
    left = await scene.load()
    async with begin(scene.engine) as connection:
        entries = await inherit(connection, left, scene.loop.term)
    sent = {entry.uid: entry for entry in entries}
    assert {uid: entry.kind for uid, entry in sent.items()} == {"a": EntryKind.WITHDRAW, "b": EntryKind.ADMIT}
    for entry in entries:
        scene.loop.term.results.append(Result(entry=entry, outcome=EntryOutcome.APPLIED))
    scene.now += 10.0
    scene.state.take_unread(99)
    await scene.round()
    states = await scene.execute("SELECT state FROM workload ORDER BY uid")
    assert states == [State.QUEUED, State.PLACING]
    assert await scene.execute("SELECT uid FROM ledger WHERE closed IS NULL") == ["b"]


@pytest.mark.parametrize("how", SPOILT)
async def test_a_running_gang_whose_admission_cannot_be_judged_ends_no_term(scene: Scene, how: str) -> None:
    """Its pods request something else than was charged, so that its charge is worked out again."""
    await scene.begin(SPOILT[how])
    await scene.execute(f"UPDATE workload SET state = 'Running', landed_at = to_timestamp({NOW})")
    await scene.load()
    for uid in ("a", "b"):
        live, job = scene.state.live[uid], scene.state.jobs[uid]
        scene.state.job_changed(replace(job, suspended=False, admission=sure(live.placement).id))
        asks = {GPU: 1, "cpu": 6000, "pods": 1}
        pod = pod_view(f"{uid}-0", "n1", namespace="team-a", owner=uid, requests=asks, running=True)
        scene.state.pod_changed(pod)
    scene.state.take_unread(99)
    for _ in range(3):
        await scene.round()
        scene.now += CORRECT
    of_b = "SELECT amounts->'cpu' FROM ledger WHERE uid = 'b' AND closed IS NULL"
    assert await scene.execute(of_b) == [6000]


@pytest.mark.parametrize("how", SPOILT)
async def test_the_auditor_quarantines_what_it_cannot_compare(scene: Scene, how: str) -> None:
    """Nothing of it is repaired, what is wrong with others is."""
    await scene.begin(SPOILT[how])
    await scene.load()
    await scene.execute("DELETE FROM ledger WHERE uid = 'b'")
    await scene.look()
    assert [uid for uid in ("a", "b") if uid in scene.state.quarantine] == ["a"]
    assert await scene.execute("SELECT detail->>'uid' FROM audit") == ["b"]
    async with begin(scene.engine) as connection:
        assert {row.uid for row in await ledger.load_open(connection)} == {"a", "b"}
    assert "queuer_workloads_quarantined_total 1.0" in scene.metrics.text((), scene.state.rules.tree).decode()


async def test_amounts_that_are_no_numbers_are_written_again(scene: Scene) -> None:
    await scene.begin("assignments")
    await scene.load()
    await scene.execute("""UPDATE ledger SET amounts = '{"cpu": "many"}' WHERE uid = 'a'""")
    await scene.look()
    assert await scene.execute("SELECT detail->>'uid' FROM audit") == ["a"]
    assert await scene.execute("SELECT amounts->'cpu' FROM ledger WHERE uid = 'a' AND closed IS NULL") == [
        4000
    ]


@pytest.mark.parametrize("how", ROWS)
async def test_a_row_that_cannot_be_read_sets_its_workload_aside(scene: Scene, how: str) -> None:
    await scene.begin("assignments")
    await scene.execute(f"UPDATE workload SET {ROWS[how]} WHERE uid = 'a'")
    await scene.load()
    assert set(scene.state.live) == {"b"}
    assert "a" in scene.state.quarantine
    await scene.look()
    assert await scene.execute("SELECT uid FROM ledger WHERE closed IS NULL ORDER BY uid") == ["a", "b"]


async def test_a_waiting_job_whose_row_cannot_be_read_is_read_from_its_job_again(scene: Scene) -> None:
    await scene.begin("assignments")
    changes = '{"uid": "c", "state": "Queued", "admission_id": null, "pod_sets": [{}]}'
    row = f"jsonb_populate_record(w, '{changes}')"
    await scene.execute(f"INSERT INTO workload SELECT ({row}).* FROM workload w WHERE uid = 'b'")
    await scene.load()
    assert "c" in scene.state.quarantine
    scene.state.take_unread(99)
    scene.state.job_changed(job_view("c", namespace="team-a"))
    scene.now += 10.0
    await scene.round()
    assert scene.state.live["c"].workload.pod_sets == workload("c").pod_sets


async def test_a_reason_that_cannot_be_read_is_found_again(scene: Scene) -> None:
    """After the return to an older version: it knows none of the newer one's tokens."""
    await scene.begin("assignments")
    why = """'{"primary": {"token": "Newer", "text": "", "params": {}}, "others": [], "detail": {}}'"""
    await scene.execute(f"UPDATE workload SET explanation = {why}, token = 'Newer' WHERE uid = 'a'")
    await scene.load()
    assert scene.state.live["a"].explanation is None


async def test_a_configuration_that_cannot_be_read_leaves_the_last_one(scene: Scene) -> None:
    await scene.begin("assignments")
    await scene.execute("UPDATE configuration SET revision = 1")
    await scene.load()
    last = scene.state.rules
    await scene.execute("""UPDATE queue SET policy = '{"newer": 1}'""")
    await scene.execute("UPDATE configuration SET revision = 2")
    await scene.load()
    assert scene.state.rules is last
    with pytest.raises(ConfigUnreadable, match="newer"):
        await scene.load(ClusterState())
    async with asyncio.TaskGroup() as group:
        follows = group.create_task(follow_revision(scene.engine, scene.state, every=0.01))
        await asyncio.wait([follows], timeout=0.3)
        assert scene.state.rules is last
        await scene.execute("UPDATE queue SET policy = '{}'")
        async with asyncio.timeout(PATIENCE):
            while scene.state.rules is last:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        follows.cancel()
    assert scene.state.rules.revision == 2
