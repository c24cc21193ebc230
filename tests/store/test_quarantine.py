"""One workload whose change fails costs nobody else theirs, and does not end the term."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.metrics import Metrics
from queuer.controller.memory.live import Live
from queuer.controller.memory.quarantine import BACK_OFF
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.domain.assignments import Admission
from queuer.domain.nodes import Node
from queuer.domain.queue import Access, Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State, Workload
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.records import Plan, Snapshot
from queuer.store import workloads
from queuer.store.engine import DatabaseUnavailable, begin
from queuer.store.leader import LeadershipLost
from tests.solver.make import plan_of
from tests.store.support import NOW, take_office, take_step
from tests.store.terms import looping, restarted
from tests.unit.make import assigned, gang, job_view, sure


class Scene:
    """A loop on a real database, whose jobs ask for what `asks` says; decisions admit all that wait."""

    def __init__(self, engine: AsyncEngine, epoch: int) -> None:
        self.engine, self.epoch, self.now, self.metrics = engine, epoch, NOW, Metrics()
        self.asks = dict[str, Workload]()
        self.wake = asyncio.Event()
        self.state = ClusterState(on_change=self.wake.set)
        self.state.configure(
            Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("team-a",))]), revision=0)
        )

        jobs: Any = SimpleNamespace(
            workload=lambda job: self.asks[job.uid],
            reading=lambda job: (self.asks[job.uid], ()),
            facts=lambda job: NamespaceFacts(),
            resource_quotas=lambda: (),
            known=Facts,
            admit=lambda *_, **__: {},
            as_decided=lambda job: True,
        )
        self.loop = looping(
            engine, self.state, jobs, epoch=epoch, clock=lambda: self.now, decider=self, metrics=self.metrics,
            last_cycle=0, wake=self.wake,
        )  # fmt: skip

    def comes(self, *uids: str, **fields: Any) -> None:
        """Jobs are created, or change."""
        for uid in uids:
            self.asks[uid] = gang(uid, **{"namespace": "team-a", "submitted": NOW, **fields})
            self.state.job_changed(job_view(uid, namespace="team-a"))

    async def decide(self, snapshot: Snapshot, **_: Any) -> Plan:
        """Admits everybody."""
        where = (assigned({"n1": 1}),)
        uids = [p.workload.uid for p in snapshot.pending]
        return plan_of(admissions=tuple(Admission(uid=uid, assignments=where) for uid in uids))

    async def rounds(self, count: int = 4) -> None:
        """Rounds, each with the decision that the one before began."""
        for _ in range(count):
            async with asyncio.TaskGroup() as group:
                await self.loop.round(group)

    async def stored(self) -> dict[str, tuple[State, str | None]]:
        """State and token of all."""
        async with begin(self.engine) as connection:
            rows = await connection.execute(text("SELECT uid, state, token FROM workload ORDER BY uid"))
            return {row.uid: (State(row.state), row.token) for row in rows}

    async def restarted(self, uid: str) -> Live:
        """The workload as who leads next has it."""
        return (await restarted(self.engine, now=self.now)).live[uid]

    def quarantined(self) -> Iterable[str]:
        """The quarantined workloads."""
        return {uid for uid in self.asks if uid in self.state.quarantine}


@pytest.fixture
async def scene(engine: AsyncEngine, epoch: int) -> Scene:
    return Scene(engine, epoch)


async def test_a_job_that_the_database_refuses_is_quarantined_alone(scene: Scene) -> None:
    scene.comes("a", "c")
    scene.comes("b", priority=2**40)
    await scene.rounds()
    assert await scene.stored() == {"a": (State.ADMITTED, None), "c": (State.ADMITTED, None)}
    assert scene.quarantined() == {"b"}
    assert "queuer_workloads_quarantined_total 1.0" in scene.metrics.text((), scene.state.rules.tree).decode()
    scene.comes("b", priority=5)
    scene.now += BACK_OFF.first
    await scene.rounds()
    assert (await scene.stored())["b"] == (State.ADMITTED, None)


async def test_a_value_too_long_for_an_index_is_the_fault_of_its_jobs_and_no_loss_of_the_database(
    scene: Scene,
) -> None:
    """Also where no other job is in the round: a tenant with two such jobs must not end each term."""
    long = random.Random(0).randbytes(6_000).hex()
    scene.comes("a")
    scene.comes("b", user=long)
    scene.comes("c", user=long)
    await scene.rounds()
    assert await scene.stored() == {"a": (State.ADMITTED, None)}
    assert scene.quarantined() == {"b", "c"}
    scene.now += BACK_OFF.first
    await scene.rounds()
    assert scene.quarantined() == {"b", "c"}


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        ("ALTER DATABASE {} SET default_transaction_read_only = on", DatabaseUnavailable),
        ("ALTER TABLE outbox RENAME TO elsewhere", exc.ProgrammingError),
    ],
)
async def test_a_database_that_takes_nobody_s_writes_is_nobody_s_fault(
    scene: Scene, fault: str, raised: type[Exception]
) -> None:
    scene.comes("a", "b")
    await scene.rounds(1)
    async with begin(scene.engine) as connection:
        name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
        await connection.execute(text(fault.format(name)))
    await scene.engine.dispose()
    with pytest.raises((raised, ExceptionGroup)) as found:
        await scene.rounds()
    assert found.group_contains(raised) if isinstance(found.value, ExceptionGroup) else True
    assert scene.quarantined() == set()


async def test_a_job_that_was_never_stored_takes_no_place_in_line(scene: Scene) -> None:
    """Guards others of its namespace: nobody would ever give its place back."""
    queue = Queue(path="root.a", namespaces=("team-a",), access=Access(max_pending=1))
    scene.state.configure(Rules(tree=QueueTree.of([queue]), revision=0))
    scene.comes("a", priority=2**40)
    await scene.rounds()
    assert scene.quarantined() == {"a"}
    scene.state.job_gone("a")
    await scene.rounds(1)
    scene.comes("b", submitted=NOW + 1)
    await scene.rounds()
    assert await scene.stored() == {"b": (State.ADMITTED, None)}


async def test_a_row_that_is_not_as_memory_has_it_stops_no_cycle(scene: Scene) -> None:
    """Its reason says so, and reading it again mends it."""
    scene.comes("a")
    await scene.rounds(1)
    async with begin(scene.engine) as connection:
        await workloads.forget(connection, scene.epoch, ["a"], NOW)
    scene.comes("b")
    await scene.rounds()
    assert await scene.stored() == {"a": (State.QUEUED, "Quarantined"), "b": (State.ADMITTED, None)}
    scene.now += BACK_OFF.first
    await scene.rounds()
    assert (await scene.stored())["a"] == (State.ADMITTED, None)


async def test_a_job_that_the_database_has_ended_is_quarantined(scene: Scene) -> None:
    scene.comes("a")
    await scene.rounds(1)
    async with begin(scene.engine) as connection:
        await take_step(connection, scene.epoch, "a", State.FAILED)
    scene.comes("a", priority=1)
    scene.comes("b")
    await scene.rounds()
    assert scene.quarantined() == {"a"}
    assert (await scene.stored())["b"] == (State.ADMITTED, None)


async def test_a_job_that_nobody_admitted_and_cannot_be_charged_stops_no_adoption(scene: Scene) -> None:
    scene.comes("a", "b")
    await scene.rounds(1)
    async with begin(scene.engine) as connection:
        await workloads.forget(connection, scene.epoch, ["a"], NOW)
    scene.loop.term.jobs.adopt = lambda *_: {}  # type: ignore[method-assign]
    for uid in ("a", "b"):
        scene.state.job_changed(job_view(uid, namespace="team-a", suspended=False))
    await scene.rounds()
    assert scene.quarantined() == {"a"}
    assert (await scene.stored())["b"][0] is State.ADMITTED


async def test_the_loss_of_the_leadership_is_nobody_s_fault(scene: Scene) -> None:
    scene.comes("a")
    async with begin(scene.engine) as connection:
        await take_office(connection)
    with pytest.raises(LeadershipLost):
        await scene.loop.round(cast(Any, None))
    assert scene.quarantined() == set()


async def test_capacity_is_written_down_also_while_nobody_waits(scene: Scene) -> None:
    """The API shows root's live capacity as the newest cycle saw it; an adoption must not empty it."""

    async def newest() -> Any:
        async with begin(scene.engine) as connection:
            found = await connection.execute(text("SELECT capacity FROM cycle ORDER BY id DESC LIMIT 1"))
            return found.scalar_one()

    scene.state.node_changed(Node(name="n1", labels={}, allocatable={"cpu": 8000}))
    await scene.rounds(1)
    assert await newest() == {"default": {"cpu": 8000}}
    scene.comes("a")
    await scene.rounds(1)
    scene.loop.term.jobs.adopt = lambda *_: {}  # type: ignore[method-assign]
    scene.state.job_changed(job_view("a", namespace="team-a", suspended=False))
    await scene.rounds()
    assert await newest() == {"default": {"cpu": 8000}}
    scene.now += 60.0
    scene.state.node_changed(Node(name="n2", labels={}, allocatable={"cpu": 1000}))
    await scene.rounds()
    assert await newest() == {"default": {"cpu": 9000}}


async def test_a_quarantined_job_has_no_failed_starts_after_a_restart(scene: Scene) -> None:
    """Its reason counts failures too: others."""
    scene.comes("a")
    await scene.rounds(1)
    for _ in range(3):
        scene.state.quarantine_one("a", ValueError("x"), now=scene.now)
    await scene.rounds(1)
    again = await scene.restarted("a")
    assert sure(again.explanation).primary.params["failures"] == 3
    assert (again.failures, again.rest) == (0, None)


async def test_a_hold_keeps_the_back_off_and_its_release_ends_it(scene: Scene) -> None:
    scene.comes("a")
    await scene.rounds(1)
    scene.state.put(replace(scene.state.live["a"], failures=2, rest=NOW + 300))
    async with begin(scene.engine) as connection:
        await workloads.set_back(connection, scene.epoch, [scene.state.live["a"].setback])
    for hold, kept in ((True, (State.HELD, 2, NOW + 300)), (False, (State.QUEUED, 0, None))):
        scene.comes("a", hold=hold)
        await scene.rounds(1)
        again = await scene.restarted("a")
        assert (again.state, again.failures, again.rest) == kept
