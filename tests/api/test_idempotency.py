"""A POST that is sent twice under one Idempotency-Key acts once."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store.engine import begin
from tests.api.identity import EVERYTHING, Api, Table
from tests.api.problems import problem_of
from tests.api.rows import TREE, Author

PATH = "/api/v1/changesets"
KEY = {"Idempotency-Key": "k-1"}
USERS = Table({"alice": frozenset({EVERYTHING}), "bob": frozenset({EVERYTHING})})


async def test_the_same_request_is_answered_again_and_done_once(api: Api) -> None:
    first, second = [await api.post(PATH, json=TREE, headers=KEY) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json()
    assert second.headers["location"] == first.headers["location"]
    address = f"{PATH}/{first.json()['id']}:apply"
    done, again = [
        await api.post(address, json={"reason": "the first"}, headers={"Idempotency-Key": "k-2"})
        for _ in range(2)
    ]
    assert (again.status_code, again.json()) == (200, done.json())
    assert len((await api.get(PATH)).json()["items"]) == 1


async def test_a_plan_keeps_its_key_once_it_is_applied(api: Api) -> None:
    """A client whose first answer was lost, and which is slow to ask again, gets its plan and makes no second one."""
    first = (await api.post(PATH, json=TREE, headers=KEY)).json()
    address = f"{PATH}/{first['id']}:apply"
    done = await api.post(address, json={"reason": "the first"}, headers={"Idempotency-Key": "k-2"})
    assert done.status_code == 200
    again = await api.post(PATH, json=TREE, headers=KEY)
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (201, first["id"], "applied")
    problem_of(await api.post(address, json={}, headers=KEY), "invalid_input")


async def test_another_request_under_the_same_key_is_refused(api: Api) -> None:
    assert (await api.post(PATH, json=TREE, headers=KEY)).status_code == 201
    for sent in (
        await api.post(PATH, json={**TREE, "prune": True}, headers=KEY),
        await api.post(PATH, json=TREE, params={"dryRun": "true"}, headers=KEY),
    ):
        found = problem_of(sent, "invalid_input")
        assert found["errors"][0]["field"] == "Idempotency-Key"


async def test_what_was_refused_may_be_mended_under_its_key(api: Api) -> None:
    problem_of(await api.post(PATH, json={"kind": "Pod"}, headers=KEY), "invalid_input")
    assert (await api.post(PATH, json=TREE, headers=KEY)).status_code == 201


async def test_a_queue_is_held_once_and_told_so_again(api: Api, author: Author, engine: AsyncEngine) -> None:
    """Whatever happened to it since."""
    await author.tree()
    address = "/api/v1/queues/root.research.team-a"
    first = await api.post(f"{address}:hold", headers=KEY)
    assert (await api.post(f"{address}:resume")).json()["revision"] == 3
    again = await api.post(f"{address}:hold", headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json())
    assert (await api.get(address)).json()["state"] == "open"
    found = problem_of(await api.post(f"{address}:drain", headers=KEY), "invalid_input")
    assert found["errors"][0]["field"] == "Idempotency-Key"


async def test_two_at_one_moment_act_once(api: Api, author: Author) -> None:
    await author.tree()
    wish = {**TREE, "queues": {"root.research.team-a": {"weight": 2}}}
    sent = await asyncio.gather(*(api.post(PATH, json=wish, headers=KEY) for _ in range(4)))
    made = [answer.json()["id"] for answer in sent if answer.status_code == 201]
    assert len({*made}) == 1
    for answer in sent:
        if answer.status_code != 201:
            problem_of(answer, "conflict")


async def test_a_key_belongs_to_its_caller(shared: Api) -> None:
    alice, bob = [
        await shared.post(PATH, json=TREE, headers={**KEY, "user": user}) for user in ("alice", "bob")
    ]
    assert alice.json()["id"] != bob.json()["id"]


@pytest.mark.parametrize("key", ["", " ", "with space", "x" * 256])
async def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    problem_of(await api.post(PATH, json=TREE, headers={"Idempotency-Key": key}), "invalid_input")


async def test_a_key_is_kept_with_its_plan(api: Api, engine: AsyncEngine) -> None:
    first = await api.post(PATH, json=TREE, headers=KEY)
    async with begin(engine) as connection:
        await connection.execute(text("DELETE FROM draft"))
    second = await api.post(PATH, json=TREE, headers=KEY)
    assert second.json()["id"] != first.json()["id"]
