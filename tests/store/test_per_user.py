"""Limits of each user hold from cycle to cycle, and a change of them is looked at without anything else happening."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.queue import Access, PerUser, Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from tests.store.support import NOW
from tests.store.test_quarantine import Scene

ADMITTED, WAITS = (State.ADMITTED, None), (State.QUEUED, "WaitingForQuota")


def rules(*, most: int) -> Rules:
    access = Access(per_user=PerUser(max_running=most))
    queue = Queue(path="root.a", namespaces=("team-a",), access=access)
    return Rules(tree=QueueTree.of([queue]), revision=0)


@pytest.fixture
async def scene(engine: AsyncEngine, epoch: int) -> Scene:
    """Its decisions admit all that they are asked about."""
    made = Scene(engine, epoch)
    made.state.configure(rules(most=1))
    return made


async def test_of_each_user_as_many_start_as_may_and_the_others_are_told(scene: Scene) -> None:
    for n, uid in enumerate(("b1", "b2", "c1")):
        scene.comes(uid, user="bob" if uid.startswith("b") else "carol", submitted=NOW + n)
    await scene.rounds()
    assert await scene.stored() == {"b1": ADMITTED, "b2": WAITS, "c1": ADMITTED}
    scene.comes("b3", user="bob", submitted=NOW + 3)
    await scene.rounds()
    assert await scene.stored() == {"b1": ADMITTED, "b2": WAITS, "b3": WAITS, "c1": ADMITTED}


async def test_a_limit_that_is_raised_lets_the_next_start_at_once(scene: Scene) -> None:
    scene.comes("b1", "b2", "b3", user="bob")
    await scene.rounds()
    assert list((await scene.stored()).values()) == [ADMITTED, WAITS, WAITS]
    scene.state.configure(rules(most=2))
    await scene.rounds()
    assert list((await scene.stored()).values()) == [ADMITTED, ADMITTED, WAITS]


async def test_who_may_use_the_queue_no_more_is_told_and_may_again_when_named(scene: Scene) -> None:
    def named(*users: str) -> Rules:
        queue = Queue(path="root.a", namespaces=("team-a",), access=Access(users=users))
        return Rules(tree=QueueTree.of([queue]), revision=0)

    scene.state.configure(named("carol"))
    scene.comes("b1", user="bob")
    await scene.rounds()
    assert await scene.stored() == {"b1": (State.QUEUED, "Misconfigured")}
    scene.state.configure(named("carol", "bob"))
    await scene.rounds()
    assert await scene.stored() == {"b1": ADMITTED}
