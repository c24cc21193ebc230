"""Work starts by the rules that are in force when its admission is written, whatever it was decided by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.config import catch_up
from queuer.domain.nodes import Node
from queuer.domain.workload import State
from queuer.solver.records import Plan, Snapshot
from queuer.store import queues
from queuer.store.engine import begin
from tests.store.support import document, wish
from tests.store.test_quarantine import Scene

ADMITTED, OPEN = (State.ADMITTED, None), {"namespaces": ["team-a"]}


class Decided(Scene):
    """Something happens while a decision is made. `a` and `b` wait in `root.a` and `root.b`."""

    during: Callable[[], Awaitable[object]] | None = None

    async def begin(self) -> None:
        await self.say(**{"root.a": OPEN, "root.b": OPEN})
        await catch_up(self.engine, self.state)
        self.state.node_changed(Node(name="n1", labels={}, allocatable={"pods": 110}))
        self.comes("a", queue="root.a")
        self.comes("b", queue="root.b")

    async def say(self, **said: Any) -> None:
        """Apply what a document says; queues that it does not name are deleted."""
        async with begin(self.engine) as connection:
            await wish(connection, document(said, prune=True))

    async def decide(self, snapshot: Snapshot, **given: Any) -> Plan:
        during, self.during = self.during, None
        if during is not None:
            await during()
        return await super().decide(snapshot, **given)


@pytest.fixture
async def scene(engine: AsyncEngine, epoch: int) -> Decided:
    made = Decided(engine, epoch)
    await made.begin()
    return made


@pytest.mark.parametrize("known", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize(
    "said",
    [
        {**OPEN, "state": "held"},
        {**OPEN, "quota": [{"resource": "pods", "limit": 0}]},
        {**OPEN, "access": {"users": ["carol"]}},
        None,
    ],
    ids=["held", "cut", "closed", "deleted"],
)
async def test_a_change_while_work_is_decided_binds_it(
    scene: Decided, said: dict[str, Any] | None, *, known: bool
) -> None:
    """Also where the controller has not heard of it yet. Work that the change allows starts all the same."""

    async def change() -> None:
        await scene.say(**({"root.b": OPEN} | ({} if said is None else {"root.a": said})))
        if known:
            await catch_up(scene.engine, scene.state)

    scene.during = change
    await scene.rounds(2)
    found = await scene.stored()
    assert (found["a"][0], found["b"]) == (State.QUEUED, ADMITTED)


async def test_a_change_that_is_still_being_made_holds_up_nobody(scene: Decided) -> None:
    """A frozen writer must not end the term either."""
    async with begin(scene.engine) as connection:
        await queues.lock(connection)
        async with asyncio.timeout(10):
            await scene.rounds(2)
    assert await scene.stored() == {"a": ADMITTED, "b": ADMITTED}


async def test_work_starts_by_the_last_rules_that_could_be_read(scene: Decided) -> None:
    async def spoil() -> None:
        async with begin(scene.engine) as connection:
            await connection.execute(text("""UPDATE queue SET policy = '{"newer": 1}'"""))
            await connection.execute(text("UPDATE configuration SET revision = revision + 1"))

    scene.during = spoil
    await scene.rounds(2)
    assert await scene.stored() == {"a": ADMITTED, "b": ADMITTED}
