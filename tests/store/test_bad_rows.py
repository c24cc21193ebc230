"""A row that somebody has edited, or that a newer version wrote, costs its own workload, and neither the others nor the
term.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.config import follow_revision
from queuer.controller.failpoints import Failpoints
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.landing.steps import CORRECT
from queuer.controller.leadership import inherit, load
from queuer.controller.ledger.auditor import Auditor
from queuer.controller.loop import Loop
from queuer.controller.memory.live import JobView
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.controller.watch.views import Facts
from queuer.domain.nodes import Node
from queuer.domain.workload import State
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.decide import decide
from queuer.solver.records import Plan, Snapshot
from queuer.store import ledger, workloads
from queuer.store.config import ConfigUnreadable
from queuer.store.engine import begin
from queuer.store.outbox import Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.store.support import NOW, admission, commit_cycle, cycle, intake_of, workload
from tests.unit.make import sure
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
        self.loop = Loop(
            state=self.state, jobs=jobs, engine=engine, decider=cast(Any, self), health=Health(stalled=30.0),
            settings=Settings(database_url=""), metrics=self.metrics, epoch=epoch, last_cycle=1, wake=asyncio.Event(),
            clock=lambda: self.now,
        )  # fmt: skip
        self.auditor = Auditor(
            engine, self.state, self.metrics, epoch=epoch, actor="me", lost_node=300.0, every=60.0,
            failpoints=Failpoints(), quarantine=self.loop.term.quarantine, clock=lambda: self.now,
        )  # fmt: skip

    async def decide(self, snapshot: Snapshot, **given: Any) -> Plan:
        """Decides, without a process of its own."""
        return decide(snapshot, **given)

    async def begin(self, spoilt: str) -> None:
        made = [workload(uid) for uid in ("a", "b")]
        async with begin(self.engine) as connection:
            await workloads.intake(connection, self.epoch, [intake_of(one) for one in made], at=NOW)
            admissions = [admission(one) for one in made]
            await commit_cycle(connection, epoch=self.epoch, record=cycle(1), admissions=admissions)
        await self.execute(f"UPDATE admission SET assignments = {spoilt} WHERE uid = 'a'")
        self.state.node_changed(Node(name="n1", labels={}, allocatable={"cpu": 64_000, "pods": 110}))
        for uid in ("a", "b"):
            view = JobView(
                uid=uid, kind="Job", namespace="team-a", name=uid, resource_version="1", suspended=True
            )
            self.state.job_changed(view)

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
    async with begin(scene.engine) as connection:
        left = await load(connection, scene.state, now=scene.now)
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
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    for uid in ("a", "b"):
        live, job = scene.state.live[uid], scene.state.jobs[uid]
        scene.state.job_changed(replace(job, suspended=False, admission=sure(live.placement).id))
        scene.state.pod_changed(
            PodView(
                uid=f"{uid}-0", namespace="team-a", name=f"{uid}-0", owner=uid, pod_set="main", node="n1",
                requests={"nvidia.com/gpu": 1, "cpu": 6000, "pods": 1}, running=True,
            )
        )  # fmt: skip
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
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    await scene.execute("DELETE FROM ledger WHERE uid = 'b'")
    for _ in range(3):
        await scene.auditor.look()
    assert [uid for uid in ("a", "b") if uid in scene.state.quarantine] == ["a"]
    assert await scene.execute("SELECT detail->>'uid' FROM audit") == ["b"]
    async with begin(scene.engine) as connection:
        assert {row.uid for row in await ledger.load_open(connection)} == {"a", "b"}
    assert "queuer_workloads_quarantined_total 1.0" in scene.metrics.text((), scene.state.rules.tree).decode()


async def test_amounts_that_are_no_numbers_are_written_again(scene: Scene) -> None:
    await scene.begin("assignments")
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    await scene.execute("""UPDATE ledger SET amounts = '{"cpu": "many"}' WHERE uid = 'a'""")
    for _ in range(3):
        await scene.auditor.look()
    assert await scene.execute("SELECT detail->>'uid' FROM audit") == ["a"]
    assert await scene.execute("SELECT amounts->'cpu' FROM ledger WHERE uid = 'a' AND closed IS NULL") == [
        4000
    ]


@pytest.mark.parametrize("how", ROWS)
async def test_a_row_that_cannot_be_read_sets_its_workload_aside(scene: Scene, how: str) -> None:
    await scene.begin("assignments")
    await scene.execute(f"UPDATE workload SET {ROWS[how]} WHERE uid = 'a'")
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    assert set(scene.state.live) == {"b"}
    assert "a" in scene.state.quarantine
    for _ in range(3):
        await scene.auditor.look()
    assert await scene.execute("SELECT uid FROM ledger WHERE closed IS NULL ORDER BY uid") == ["a", "b"]


async def test_a_waiting_job_whose_row_cannot_be_read_is_read_from_its_job_again(scene: Scene) -> None:
    await scene.begin("assignments")
    changes = '{"uid": "c", "state": "Queued", "admission_id": null, "pod_sets": [{}]}'
    row = f"jsonb_populate_record(w, '{changes}')"
    await scene.execute(f"INSERT INTO workload SELECT ({row}).* FROM workload w WHERE uid = 'b'")
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    assert "c" in scene.state.quarantine
    scene.state.take_unread(99)
    scene.state.job_changed(
        JobView(uid="c", kind="Job", namespace="team-a", name="c", resource_version="1", suspended=True)
    )
    scene.now += 10.0
    await scene.round()
    assert scene.state.live["c"].workload.pod_sets == workload("c").pod_sets


async def test_a_reason_that_cannot_be_read_is_found_again(scene: Scene) -> None:
    """After the return to an older version: it knows none of the newer one's tokens."""
    await scene.begin("assignments")
    why = """'{"primary": {"token": "Newer", "text": "", "params": {}}, "others": [], "detail": {}}'"""
    await scene.execute(f"UPDATE workload SET explanation = {why}, token = 'Newer' WHERE uid = 'a'")
    async with begin(scene.engine) as connection:
        await load(connection, scene.state, now=scene.now)
    assert scene.state.live["a"].explanation is None


async def test_a_configuration_that_cannot_be_read_leaves_the_last_one(scene: Scene) -> None:
    async def loaded(state: ClusterState) -> None:
        async with begin(scene.engine) as connection:
            await load(connection, state, now=scene.now)

    await scene.begin("assignments")
    await scene.execute("UPDATE configuration SET revision = 1")
    await loaded(scene.state)
    last = scene.state.rules
    await scene.execute("""UPDATE queue SET policy = '{"newer": 1}'""")
    await scene.execute("UPDATE configuration SET revision = 2")
    await loaded(scene.state)
    assert scene.state.rules is last
    with pytest.raises(ConfigUnreadable, match="newer"):
        await loaded(ClusterState())
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
