"""Past decisions are for who may `get cycles`; the stored one is made anew and is the same."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.cycles.routes import READ
from queuer.api.identity.rights import reading
from queuer.solver.stored import encode
from tests.api.identity import EVERYTHING, Api, Table, client_of, local
from tests.api.problems import problem_of
from tests.api.rows import GPU, Author
from tests.api.test_why import decided
from tests.store.support import workload

READERS = Table({"alice": frozenset({reading("team-a"), READ}), "root": frozenset({EVERYTHING})})


async def test_decisions_are_paged_newest_first(api: Api, author: Author) -> None:
    for _ in range(5):
        await author.cycle()
    first = (await api.get("/api/v1/cycles?limit=3")).json()
    rest = (await api.get("/api/v1/cycles", params={"limit": 3, "cursor": first["next"]})).json()
    assert [item["id"] for page in (first, rest) for item in page["items"]] == [5, 4, 3, 2, 1]
    assert rest["next"] is None
    one, last = [(await api.get(f"/api/v1/cycles/{number}")).json() for number in (1, 5)]
    assert [(each["id"], each["before"], each["after"]) for each in (one, last)] == [
        (1, None, 2),
        (5, 4, None),
    ]
    problem_of(await api.get("/api/v1/cycles/9"), "not_found")


async def test_a_decision_tells_whom_it_moved_to_who_may_read_of_them(
    engine: AsyncEngine, database_url: str, author: Author
) -> None:
    await author.tree()
    own = workload("u1", queue="root.research.team-a", namespace="team-a", gpus=2)
    other = workload("u2", queue="root.research.team-b", namespace="team-b")
    await author.submit(own, other)
    await author.cycle(admit=[own, other])
    await author.cycle()
    async with client_of(create_app(engine, local(database_url), READERS)) as client:

        async def told(number: int, user: str) -> list[tuple[str, str, str]]:
            found = (await client.get(f"/api/v1/cycles/{number}", headers={"user": user})).json()
            return [(each["name"], each["to"], each["amounts"][GPU]) for each in found["decisions"]]

        assert await told(1, "root") == [("u1", "Admitted", "2"), ("u2", "Admitted", "1")]
        assert await told(1, "alice") == [("u1", "Admitted", "2")]
        assert await told(2, "root") == []


async def test_the_stored_one_is_made_anew(api: Api, author: Author) -> None:
    await author.tree()
    await author.cycle()
    await author.cycle()
    await author.keep(encode(decided(workload("u1", queue="root", pods=2, gpus=8))))
    assert [item["replayable"] for item in (await api.get("/api/v1/cycles")).json()["items"]] == [True, False]
    found = (await api.get("/api/v1/cycles/2/replay")).json()
    assert (found["cycle"], found["same"], found["difference"]) == (2, True, "")
    missing = problem_of(await api.get("/api/v1/cycles/1/replay"), "not_found")
    assert missing["detail"].startswith("cycle 1 is not stored: 2 is")


@pytest.mark.parametrize("path", ["cycles", "cycles/1", "cycles/1/replay"])
async def test_only_who_may_get_cycles_sees_them(shared: Api, author: Author, path: str) -> None:
    await author.cycle()
    denied = problem_of(await shared.get(f"/api/v1/{path}", headers={"user": "alice"}), "forbidden")
    assert "get cycles.queuer.dev" in denied["detail"]
