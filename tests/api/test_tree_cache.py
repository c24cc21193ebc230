"""The tree that is worked out once for all: never of before what its asker did, shared by who asks at once."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.api.queues import tree_cache
from queuer.api.queues.tree_cache import LASTS, Present, TreeCache
from queuer.store import origins
from queuer.store.config import Config
from queuer.store.usage import TreeView, tree_view
from tests.api.rows import GPU, TREE, Author
from tests.store.support import workload


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[TreeView]:
    """Each view that was worked out."""
    found = list[TreeView]()

    async def counted(connection: AsyncConnection, config: Config | None = None) -> TreeView:
        found.append(await tree_view(connection, config))
        return found[-1]

    monkeypatch.setattr(tree_cache, "tree_view", counted)
    return found


async def test_who_asks_at_once_shares_it_and_who_has_done_something_sees_it(
    engine: AsyncEngine, author: Author, made: list[TreeView]
) -> None:
    await author.tree()
    tree = TreeCache(engine)
    await asyncio.gather(*(tree() for _ in range(50)))
    await tree()
    assert len(made) == 1
    await author.submit(workload("w1", queue="root.research.team-a"))
    assert (await tree()).view.queues["root"].waiting == 1
    assert len(made) == 2


@pytest.fixture
def read(engine: AsyncEngine) -> list[str]:
    """Each statement that unfolds the changesets that were made: a tree is made anew whenever work moves."""
    found = list[str]()

    def count(_conn: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        found.extend([statement] if "jsonb_array_elements(changes)" in statement else [])

    event.listen(engine.sync_engine, "before_cursor_execute", count)
    return found


async def test_who_closed_a_queue_is_read_once_a_revision(
    engine: AsyncEngine, author: Author, read: list[str]
) -> None:
    document, tree = deepcopy(TREE), TreeCache(engine)
    await author.tree()
    for number, state in enumerate(("held", "draining"), 1):
        document["queues"]["root.research"]["state"] = state
        await author.tree(document, reason=state)
        for job in ("a", "b"):
            await author.submit(workload(f"{state}-{job}", queue="root.research.team-a"))
            assert (await tree()).origins.closed["root.research"].reason == state
        assert len(read) == number


@pytest.mark.parametrize("known", [True, False])
async def test_the_cut_of_a_limit_is_read_once_a_revision(
    engine: AsyncEngine, author: Author, read: list[str], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Also where it is not among those that are looked through."""
    if not known:
        monkeypatch.setattr(origins, "MOST", 0)
    path, document, tree = "root.research.team-a", deepcopy(TREE), TreeCache(engine)
    await author.tree()
    runs = workload("runs", queue=path, gpus=8)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    document["queues"][path]["quota"] = [{"resource": GPU, "limit": 4}]
    await author.tree(document)
    for job in ("a", "b"):
        await author.submit(workload(job, queue=path))
        assert ((await tree()).origins.cut[path, (None, GPU)] is not None) is known
    assert len(read) == 1


@pytest.mark.parametrize("large", [False, True])
async def test_a_large_one_is_kept_a_moment_but_not_over_a_change_of_the_queues(
    engine: AsyncEngine, author: Author, made: list[TreeView], monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(tree_cache, "LARGE", 1 if large else tree_cache.LARGE)
    await author.tree()
    clock = Clock()
    tree = TreeCache(engine, clock=clock)

    async def waiting() -> int:
        return (await tree()).view.queues["root"].waiting

    assert await waiting() == 0
    await author.submit(workload("w1", queue="root.research.team-a"))
    assert await waiting() == (0 if large else 1)
    clock.now += tree_cache.KEPT
    assert await waiting() == 1
    await author.submit(workload("w2", queue="root.research.team-a"))
    document = deepcopy(TREE)
    document["queues"]["root.research.team-a"]["weight"] = 7
    await author.tree(document)
    assert await waiting() == 2


async def test_what_is_told_of_it_is_made_once_and_again_as_time_goes_by(
    engine: AsyncEngine, author: Author
) -> None:
    await author.tree()
    asked, clock = list[Any](), Clock()

    async def make(_connection: AsyncConnection, there: Present) -> int:
        asked.append(there)
        return len(asked)

    tree = TreeCache(engine, clock=clock)
    assert await asyncio.gather(*(tree.derived(make) for _ in range(20))) == [1] * 20
    clock.now += LASTS
    assert await tree.derived(make) == 2
