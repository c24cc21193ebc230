"""Live views over real sockets: told soon, of nobody's foreign jobs, able to go on where they broke off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg
import pytest
import pytest_asyncio
import uvicorn
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from queuer.api.app import create_app
from queuer.api.identity.rights import Right, reading
from queuer.api.live import feed as feeds
from queuer.api.live import stream as streams
from queuer.domain.errors import Unavailable
from queuer.store.engine import begin
from tests.api.identity import EVERYTHING, Api, Table, local
from tests.api.problems import problem_of
from tests.api.rows import TREE, Author, waits
from tests.store.support import workload
from tests.waiting import PATIENCE, until


class Rights(dict[str, frozenset[Right | str]]):
    """Rights by user name. `looks`: how often it was asked whether somebody is known."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)

    async def asked_anew(self) -> None:
        """Wait until a look that began after this has ended: the one after it has begun."""
        wanted = self.looks + 2
        await until(lambda: self.looks >= wanted)


@pytest.fixture
def users() -> Rights:
    """The rights of each user; a test takes some away."""
    return Rights({"alice": frozenset({reading("team-a")}), "root": frozenset({EVERYTHING})})


@pytest_asyncio.fixture
async def server(engine: AsyncEngine, database_url: str, author: Author, users: Rights) -> AsyncIterator[Api]:
    app = create_app(engine, local(database_url), Table(users))
    await author.tree()
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    running.config.load()
    async with asyncio.TaskGroup() as group:
        group.create_task(running._serve())
        await until(lambda: running.started)
        port = running.servers[0].sockets[0].getsockname()[1]
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE) as client:
            yield client
        app.state.feed.close()
        running.should_exit = True


@dataclass
class Told:
    """The messages of one stream, each with its event, and the id that a browser would keep."""

    response: httpx2.Response
    lines: AsyncIterator[str]
    id: str = ""

    async def next(self) -> tuple[str, Any]:
        event, data = "", ""
        async for line in self.lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.id = value
            elif name == "event":
                event = value
            elif name == "data":
                data = value
            elif not line and data and event != "beat":
                return event, json.loads(data)
        return "", None

    async def until(self, event: str) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                found, data = await self.next()
                if found in (event, ""):
                    return data if found else None

    async def start(self) -> str:
        """The id from which it is told."""
        async with asyncio.timeout(PATIENCE):
            async for line in self.lines:
                if line.startswith("id: "):
                    return line.removeprefix("id: ")
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def followed(client: Api, user: str, query: str = "", **headers: str) -> AsyncIterator[Told]:
    async with client.stream("GET", f"/stream{query}", headers={"user": user, **headers}) as response:
        assert response.status_code == 200
        yield Told(response, response.aiter_lines())


async def test_a_step_and_a_reason_are_told_to_who_reads_the_namespace(server: Api, author: Author) -> None:
    async with followed(server, "alice", "?topics=workloads,cycle") as told:
        assert told.response.headers["content-type"].startswith("text/event-stream")
        assert told.response.headers["x-accel-buffering"] == "no"
        await told.start()
        await author.submit(
            workload("b1", queue="root.research.team-b", namespace="team-b"),
            workload("a1", queue="root.research.team-a", namespace="team-a"),
        )
        (row,) = (await told.until("workloads"))["workloads"]
        assert row == {"uid": "a1", "state": "Queued", "reason": None, "gone": False}
        await author.cycle(explain={"a1": waits(), "b1": waits()})
        await author.keep(b"")
        assert (await told.until("cycle"))["id"] == 1
        (row,) = (await told.until("workloads"))["workloads"]
        assert (row["uid"], row["reason"]) == ("a1", "TopologyPlacementFailed")


async def test_amounts_and_counts_are_for_all(server: Api, author: Author) -> None:
    async with followed(server, "alice", "?topics=queues,overview") as told:
        await told.start()
        await author.submit(workload("b1", queue="root.research.team-b", namespace="team-b", gpus=8))
        assert (await told.until("overview"))["counts"] == {"Queued": 1}
        changed = {row["path"]: row for row in (await told.until("queues"))["queues"]}
        assert set(changed) == {"root", "root.research", "root.research.team-b"}
        amounts = {row["resource"]: row for row in changed["root"]["amounts"]}
        assert amounts["nvidia.com/gpu"]["pending"] == "8"


async def test_marks_of_a_queue_are_told_like_its_amounts(server: Api, author: Author) -> None:
    """Else a page that has read it a moment before shows for ever what is so no more: held, starved, another limit."""
    async with followed(server, "alice", "?topics=queues,overview") as told:
        await told.start()
        held = {**TREE["queues"]["root.research.team-b"], "state": "held"}
        await author.tree({**TREE, "queues": {**TREE["queues"], "root.research.team-b": held}})
        assert (await told.until("overview"))["counts"] == {}
        assert [row["path"] for row in (await told.until("queues"))["queues"]] == ["root.research.team-b"]


async def test_who_comes_back_misses_nothing(server: Api, author: Author) -> None:
    """By `Last-Event-ID`, also where nobody followed meanwhile, and by the `seq` of a list."""
    async with followed(server, "root", "?topics=workloads") as told:
        last = await told.start()
    for number in range(3):
        await author.submit(workload(f"w{number}", queue="root.research.team-a"))
    for query, headers in (("", {"last-event-id": last}), (f"&after={last}", {})):
        seen = set[str]()
        async with followed(server, "root", f"?topics=workloads{query}", **headers) as told:
            while len(seen) < 3:
                seen |= {row["uid"] for row in (await told.until("workloads"))["workloads"]}


async def test_an_id_that_is_too_old_resets(
    server: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "SEED", 1)
    await author.submit(*(workload(f"w{n}", queue="root.research.team-a") for n in range(5)))
    async with followed(server, "root", "?topics=workloads", **{"last-event-id": "1"}) as told:
        assert await told.until("reset") == {"topics": ["workloads"], "why": "too old"}
        assert int(await told.start()) > 5


async def test_a_restored_backup_resets_all_and_ids_of_before(server: Api, author: Author) -> None:
    """Its ids come again under other events."""
    await author.submit(*(workload(f"w{n}", queue="root.research.team-a") for n in range(5)))
    async with followed(server, "root", "?topics=workloads") as told:
        last = await told.start()
        async with begin(author.engine) as connection:
            await connection.execute(text("DELETE FROM event WHERE id > 3"))
            await connection.execute(text("NOTIFY queuer_event"))
        assert await told.until("reset") == {"topics": ["workloads"], "why": "many changes"}
        async with followed(server, "root", "?topics=workloads", **{"last-event-id": last}) as again:
            assert (await again.until("reset"))["why"] == "too old"
        async with followed(server, "root", "?topics=workloads", **{"last-event-id": "3"}) as again:
            await author.submit(workload("new", queue="root.research.team-a"))
            assert [row["uid"] for row in (await again.until("workloads"))["workloads"]] == ["new"]


async def test_more_changes_than_a_message_holds_reset_the_topic(
    server: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ROWS", 3)
    async with followed(server, "root", "?topics=workloads") as told:
        await told.start()
        await author.submit(*(workload(f"w{n}", queue="root.research.team-a") for n in range(5)))
        assert (await told.until("reset"))["topics"] == ["workloads"]


async def test_a_token_that_ends_ends_the_stream_and_a_right_that_goes_what_it_showed(
    server: Api, author: Author, users: Rights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AGAIN", 0.2)
    async with followed(server, "alice", "?topics=workloads,overview") as told:
        await told.start()
        users["alice"] = frozenset()
        await users.asked_anew()
        await author.submit(workload("a1", queue="root.research.team-a", namespace="team-a"))
        assert (await told.next())[0] == "overview"
        del users["alice"]
        assert await told.until("end") == {"why": "no user is named", "code": "unauthenticated"}
        assert await told.next() == ("", None)


async def test_one_connection_listens_for_all_and_goes_with_the_last(
    server: Api, engine: AsyncEngine
) -> None:
    async def listeners() -> int:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        async with begin(engine) as connection:
            return int((await connection.execute(text(sql))).scalar_one())

    async with AsyncExitStack() as stack:
        told = [await stack.enter_async_context(followed(server, "root")) for _ in range(feeds.A_CALLER)]
        for each in told:
            await each.start()
        assert await listeners() == 1
        refused = await server.get("/stream", headers={"user": "root"})
        problem_of(refused, "too_many")

    async def nobody_listens() -> bool:
        return not await listeners()

    await until(nobody_listens)


async def test_a_follower_that_does_not_read_is_given_up() -> None:
    follower = feeds.Follower()
    for number in range(feeds.BEHIND + 1):
        follower.put(feeds.Batch(id=number, told={}, jobs={}, anew=frozenset()))
    assert (follower.ended, len(follower.batches)) == ("slow", 0)
    assert await follower.next(1) is None


async def test_topics_are_words(server: Api) -> None:
    found = await server.get("/stream?topics=queue", headers={"user": "root"})
    assert "queues" in problem_of(found, "invalid_input")["detail"]


async def test_a_hiccup_of_the_cluster_is_told_apart_from_a_logout(
    server: Api, users: Rights, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: object) -> Any:
        raise Unavailable("the cluster cannot be asked")

    monkeypatch.setattr(streams, "AGAIN", 0.2)
    async with followed(server, "alice", "?topics=workloads") as told:
        await told.start()
        monkeypatch.setattr(streams, "asking", asked)
        assert (await told.until("end"))["code"] == "unavailable"


async def test_a_fault_of_the_reader_is_heard_and_who_comes_back_has_a_new_one(
    server: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = feeds.Feed._look
    broken = False

    async def fails(self: feeds.Feed, *, begins: bool) -> None:
        if broken:
            raise IndexError
        await look(self, begins=begins)

    monkeypatch.setattr(feeds.Feed, "_look", fails)
    with capture_logs() as logs:
        async with followed(server, "root", "?topics=workloads") as told:
            last = await told.start()
            broken = True
            async with asyncio.timeout(PATIENCE):
                while (await told.next()) != ("", None):
                    pass
        assert "the reader of the streams has failed" in {row["event"] for row in logs}
        problem_of(await server.get("/stream", headers={"user": "root"}), "unavailable")
    broken = False
    await author.submit(workload("a1", queue="root.research.team-a"))
    async with followed(server, "root", "?topics=workloads", **{"last-event-id": last}) as told:
        assert (await told.until("workloads"))["workloads"][0]["uid"] == "a1"


async def test_a_failure_of_the_database_without_a_message_is_outlived(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = feeds.Feed._look
    failed = False

    async def fails(self: feeds.Feed, *, begins: bool) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise psycopg.OperationalError
        await look(self, begins=begins)

    monkeypatch.setattr(feeds.Feed, "_look", fails)
    with capture_logs() as logs:
        async with followed(server, "root", "?topics=workloads") as told:
            await told.start()
    assert "OperationalError" in {row.get("error") for row in logs}


async def test_a_database_that_is_away_at_the_start_is_told_with_what_to_do(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: feeds.Feed, *, begins: bool) -> None:
        raise psycopg.OperationalError

    monkeypatch.setattr(feeds, "START", 0.2)
    monkeypatch.setattr(feeds.Feed, "_look", away)
    found = await server.get("/stream", headers={"user": "root"})
    detail = problem_of(found, "database_unavailable")["detail"]
    assert "no live views" in detail
    assert "QUEUER_DATABASE_URL" in detail
