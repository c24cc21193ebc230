"""Past decisions are for who may `get cycles`; the stored one is made anew and is the same."""

from __future__ import annotations

import httpx2
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.solver.stored import encode
from tests.api.identity import local
from tests.api.problems import problem_of
from tests.api.rows import Author
from tests.api.test_visibility import USERS
from tests.api.test_why import decided
from tests.store.support import workload


async def test_decisions_are_paged_newest_first(api: httpx2.AsyncClient, author: Author) -> None:
    for _ in range(5):
        await author.cycle()
    first = (await api.get("/api/v1/cycles?limit=3")).json()
    rest = (await api.get("/api/v1/cycles", params={"limit": 3, "cursor": first["next"]})).json()
    assert [item["id"] for page in (first, rest) for item in page["items"]] == [5, 4, 3, 2, 1]
    assert rest["next"] is None
    assert (await api.get("/api/v1/cycles/2")).json()["id"] == 2
    problem_of(await api.get("/api/v1/cycles/9"), status=404, code="not_found")


async def test_the_stored_one_is_made_anew(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    await author.cycle()
    await author.cycle()
    await author.keep(encode(decided(workload("u1", queue="root", pods=2, gpus=8))))
    assert [item["replayable"] for item in (await api.get("/api/v1/cycles")).json()["items"]] == [True, False]
    found = (await api.get("/api/v1/cycles/2/replay")).json()
    assert (found["cycle"], found["same"], found["difference"]) == (2, True, "")
    missing = problem_of(await api.get("/api/v1/cycles/1/replay"), status=404, code="not_found")
    assert missing["detail"].startswith("cycle 1 is not stored: 2 is")


@pytest.mark.parametrize("path", ["cycles", "cycles/1", "cycles/1/replay"])
async def test_only_who_may_get_cycles_sees_them(
    engine: AsyncEngine, database_url: str, author: Author, path: str
) -> None:
    await author.cycle()
    app = create_app(engine, local(database_url), USERS)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        denied = problem_of(
            await client.get(f"/api/v1/{path}", headers={"user": "alice"}), status=403, code="forbidden"
        )
    assert "get cycles.queuer.dev" in denied["detail"]
