"""Requests that meet: an edit between a plan and its application, and one Idempotency-Key at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from queuer.api.latest_cycle import LatestCycle
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import TREE, A, Author

QUEUE, PATH = f"/api/v1/queues/{A}", "/api/v1/queue-tree"
KEY = {"Idempotency-Key": "k-1"}
Between = Callable[[Callable[[], Awaitable[object]]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Sets what happens while a report is made: after the plan, before its application."""

    def put(step: Callable[[], Awaitable[object]]) -> None:
        async def ask(*_: object, **__: object) -> None:
            await step()

        monkeypatch.setattr(LatestCycle, "ask", ask)

    return put


def once(edit: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """The step that makes an edit for the first request that comes by."""
    made: list[None] = []

    async def step() -> None:
        if not made:
            made.append(None)
            await edit()

    return step


def weight(number: int) -> dict[str, object]:
    """The tree with this weight of team-a."""
    return {**TREE, "queues": {A: {"weight": number, "namespaces": ["team-a"]}}}


@pytest.mark.parametrize(("verb", "state"), [("hold", "held"), ("drain", "draining")])
async def test_a_queue_that_was_edited_meanwhile_is_held_all_the_same(
    api: Api, author: Author, between: Between, verb: str, state: str
) -> None:
    """The edit stays, and the change that is told is the one that was made."""
    await author.tree()
    between(once(lambda: author.tree(weight(7))))
    made = await api.post(f"{QUEUE}:{verb}")
    assert (made.status_code, made.json()["revision"]) == (200, 3), made.text
    assert [change["text"] for change in made.json()["changes"]] == [f"{A}: state open -> {state}"]
    found = (await api.get(QUEUE)).json()
    assert (found["state"], found["weight"]) == (state, 7)


async def test_a_put_on_any_revision_is_applied_to_what_is_there_now(
    api: Api, author: Author, between: Between
) -> None:
    await author.tree()
    between(once(lambda: author.tree(weight(7))))
    made = await api.put(PATH, json=weight(2), headers={"If-Match": "*"})
    assert (made.status_code, made.json()["baseRevision"], made.json()["revision"]) == (200, 2, 3), made.text
    assert [change["text"] for change in made.json()["changes"]] == [f"{A}: weight 7 -> 2"]
    assert (await api.get(QUEUE)).json()["weight"] == 2


async def test_a_put_on_one_revision_is_refused_where_anything_was_edited_meanwhile(
    api: Api, author: Author, between: Between
) -> None:
    await author.tree()
    beside = {**TREE, "queues": {"root.other": {}}}
    between(once(lambda: author.tree(beside)))
    refused = await api.put(PATH, json=weight(2), headers={"If-Match": '"1"'})
    assert "revision 2" in problem_of(refused, "stale_revision")["detail"]
    assert (await api.get(QUEUE)).json()["weight"] == 1


async def test_a_queue_held_twice_at_one_moment_under_a_key_is_told_the_same(
    api: Api, author: Author, between: Between
) -> None:
    await author.tree()
    both = asyncio.Barrier(2)
    between(both.wait)
    first, second = await asyncio.gather(*(api.post(f"{QUEUE}:hold", headers=KEY) for _ in range(2)))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["revision"] == 2
    assert second.json() == first.json()
