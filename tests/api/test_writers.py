"""Rights to change the tree and the name in the audit. Refusals are seen in the audit but do not flood it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.identity.denied import A_CALLER, Denials
from queuer.api.identity.rights import Resource, Right, Verb
from queuer.domain.queue import ManagedBy
from tests.api.identity import EVERYTHING, Api, Table, client_of, local
from tests.api.problems import problem_of
from tests.api.rows import TREE, A, Author

PATH = "/api/v1/queue-tree"
ON_A = Right(verb=Verb.UPDATE, resource=Resource.QUEUES, name=A)
USERS = Table(
    {
        "lead": frozenset({ON_A}),
        "admin": frozenset({EVERYTHING}),
        "ci": frozenset({EVERYTHING}),
        "eve": frozenset(),
    }
)


@pytest_asyncio.fixture
async def api(engine: AsyncEngine, database_url: str) -> AsyncIterator[Api]:
    settings = local(database_url, file_writers=frozenset({"ci"}))
    async with client_of(create_app(engine, settings, USERS)) as client:
        yield client


async def put(api: Api, user: str, document: dict[str, Any], **params: str) -> httpx2.Response:
    return await api.put(PATH, json=document, params=params, headers={"user": user, "If-Match": "*"})


def body(root: str, **more: Any) -> dict[str, Any]:
    head = {"apiVersion": "queuer.dev/v1", "kind": "QueueTree", "root": root}
    return {**head, "queues": {root: {"namespaces": ["team-a"], "weight": 3}}, **more}


async def audit(engine: AsyncEngine) -> list[tuple[str, str, Any]]:
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT actor, action, detail FROM audit ORDER BY id"))
        return [(row.actor, row.action, row.detail) for row in rows]


async def test_a_lead_changes_its_subtree_and_nothing_else(
    api: Api, author: Author, engine: AsyncEngine
) -> None:
    await author.tree()
    assert (await put(api, "lead", body(A))).json()["applied"] is True
    assert (await put(api, "lead", body(f"{A}.sub"))).json()["applied"] is True
    for outside in (body("root.research.team-b"), body("root.research"), TREE):
        said = problem_of(await put(api, "lead", outside), "forbidden")
        assert "lead may not update queues.queuer.dev root" in said["detail"]
    for wider in (body(A, flavors=[]), body(A, topology={"levels": []})):
        problem_of(await put(api, "lead", wider), "invalid_input")
    problem_of(await put(api, "lead", body("root.research"), dryRun="true"), "forbidden")
    planned = await api.post("/api/v1/changesets", json=body("root.research"), headers={"user": "lead"})
    problem_of(planned, "forbidden")
    rows = [(actor, action) for actor, action, _ in await audit(engine) if actor == "lead"]
    assert rows[:2] == [("lead", "config.apply")] * 2


async def test_the_writer_follows_from_who_writes(api: Api) -> None:
    assert (await put(api, "ci", TREE)).json()["applied"] is True
    queue = (await api.get(f"/api/v1/queues/{A}", headers={"user": "eve"})).json()
    assert queue["managedBy"] == ManagedBy.FILE
    (error,) = problem_of(await put(api, "admin", body(A)), "conflict")["errors"]
    assert (error["field"], "managed by file" in error["message"]) == (f"queues.{A}", True)
    reverted = await api.post("/api/v1/changesets", json={"revert": 1}, headers={"user": "admin"})
    said = problem_of(reverted, "conflict")
    assert "written by file, api cannot take it back" in said["errors"][0]["message"]
    for writer in ManagedBy:
        said = problem_of(await put(api, "admin", body(A), managedBy=writer), "invalid_input")
        assert said["errors"][0]["field"] == "managedBy"


async def test_refusals_are_audited_once_a_right(api: Api, author: Author, engine: AsyncEngine) -> None:
    await author.tree()
    for _ in range(5):
        await put(api, "eve", TREE)
    for number in range(A_CALLER + 5):
        await api.get(f"/api/v1/workloads/by-ref/space-{number}/job/x", headers={"user": "eve"})
    rows = [row for row in await audit(engine) if row[:2] == ("eve", "denied")]
    assert len(rows) <= 2 * A_CALLER  # the minute may have turned
    assert sum(row[2]["right"] == "update queues.queuer.dev root" for row in rows) in (1, 2)
    assert rows[0][2] | {"requestId": ""} == {
        "right": "update queues.queuer.dev root", "method": "PUT", "path": PATH, "requestId": ""
    }  # fmt: skip


async def test_a_server_of_another_schema_refuses_and_writes_no_audit(api: Api, engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    problem_of(await put(api, "eve", TREE), "forbidden")
    assert await audit(engine) == []


@pytest.mark.parametrize(("seconds", "again"), [(59.0, False), (60.0, True)])
def test_a_minute_later_it_is_news_again(seconds: float, again: bool) -> None:
    now = [0.0]
    told = Denials(lambda: now[0])
    assert told.news("eve", "update")
    now[0] = seconds
    assert told.news("eve", "update") is again
    assert told.news("mallory", "update")
