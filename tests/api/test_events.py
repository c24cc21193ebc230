"""Events and audit in pages: nothing twice, nothing left out, and of foreign jobs nothing at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.identity.rights import Resource, Right, Verb, administering, reading
from queuer.store import commands, events
from queuer.store.commands import CommandAnswer
from queuer.store.engine import begin
from queuer.store.events import Event
from queuer.store.tables import CommandOutcome
from tests.api.identity import EVERYTHING, Api, Table
from tests.api.problems import problem_of
from tests.api.rows import NOW, TREE, Author
from tests.store.support import Eviction, workload

USERS = Table(
    {
        "alice": frozenset({reading("team-a"), administering("root.research.team-a")}),
        "lead": frozenset({administering("root.research")}),
        "auditor": frozenset({Right(verb=Verb.GET, resource=Resource.AUDIT)}),
        "eve": frozenset(),
        "root": frozenset({EVERYTHING}),
    }
)


NOTE = "evicted for a job of root.research.team-b, which takes back what it is guaranteed"


@pytest_asyncio.fixture
async def shared(shared: Api, author: Author) -> Api:
    """Jobs of two teams; that of team-a had to go for the one of team-b."""
    await author.tree()
    one = workload("a1", queue="root.research.team-a", namespace="team-a")
    await author.submit(one, workload("b1", queue="root.research.team-b", namespace="team-b"))
    await author.cycle(admit=[one])
    await author.evict(Eviction(uid="a1", cause="reclaim", patch={}, beneficiary="b1", note=NOTE))
    return shared


async def get(client: Api, path: str, user: str = "root") -> dict[str, Any]:
    found = await client.get(f"/api/v1/{path}", headers={"user": user})
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


async def test_events_of_foreign_jobs_are_not_told(shared: Api) -> None:
    def uids(body: dict[str, Any]) -> set[str | None]:
        return {item["uid"] for item in body["items"]}

    assert uids(await get(shared, "events")) == {None, "a1", "b1"}
    assert uids(await get(shared, "events", "alice")) == {None, "a1"}
    assert uids(await get(shared, "events", "eve")) == {None}
    assert uids(await get(shared, "events?uid=b1", "alice")) == set()


async def test_for_whom_a_job_had_to_go_is_told_to_who_reads_that_one(shared: Api) -> None:
    seen = [(await get(shared, "events?uid=a1", user))["items"][0]["data"] for user in ("root", "alice")]
    assert [data["to"] for data in seen] == ["Evicting", "Evicting"]
    assert seen[0]["beneficiary"] == "b1"
    assert [data["note"] for data in seen] == [NOTE, NOTE], (
        "the sentence names a job of another namespace by its queue"
    )
    assert "b1" not in json.dumps(seen[1])


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("type=workload.submitted", {"workload.submitted"}),
        ("type=queue", {"queue.created", "queue.updated"}),
        ("queue=root.research.team-b", {"queue.created", "workload.submitted"}),
        ("namespace=team-b", {"workload.submitted"}),
    ],
)
async def test_filters(shared: Api, query: str, types: set[str]) -> None:
    assert {item["type"] for item in (await get(shared, f"events?{query}"))["items"]} == types


@pytest.mark.parametrize("user", ["root", "alice", "eve"])
async def test_pages_hold_every_event_once_while_more_come(
    shared: Api, engine: AsyncEngine, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SCAN", 3)
    up, whole, after = list[int](), list[int](), 0
    while True:
        async with begin(engine) as connection:
            if len(up) < 4:
                events.append(connection, [Event(at=NOW, type="queue.changed", queue="root")])
        page = await get(shared, f"events?after={after}&limit=2", user)
        up += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    before: int | None = page["seq"] + 1
    while before is not None:
        page = await get(shared, f"events?before={before}&limit=2", user)
        whole += [item["id"] for item in page["items"]]
        before = page["next"]
    assert up == whole[::-1] == sorted(set(up))


async def test_who_administers_queues_sees_the_audit_of_these(shared: Api, author: Author) -> None:
    """The first changeset touches more than theirs, and what stands above them; the second is of team-a alone."""
    await author.tree(
        {**TREE, "queues": {"root.research.team-a": {**TREE["queues"]["root.research.team-a"], "weight": 2}}}
    )

    def seen(body: dict[str, Any]) -> list[tuple[int, int]]:
        return [(item["revision"], len(item["queues"])) for item in body["items"]]

    assert seen(await get(shared, "audit", "auditor")) == [(2, 1), (1, 4)]
    told = await get(shared, "audit", "alice")
    assert seen(told) == [(2, 1), (1, 3)]
    assert told["items"][0]["text"] == "root.research.team-a: weight 1 -> 2"
    assert "team-b" not in json.dumps(told)
    assert seen(await get(shared, "audit", "lead")) == [(2, 1), (1, 4)]
    assert seen(await get(shared, "audit?target=root.research.team-b", "auditor")) == [(1, 4)]
    assert seen(await get(shared, "audit?target=root.research.team-b", "alice")) == []
    assert seen(await get(shared, "audit?actor=nobody", "auditor")) == []
    first = await get(shared, "audit?limit=1", "auditor")
    assert seen(await get(shared, f"audit?after={first['next']}", "auditor")) == [(1, 4)]


async def test_the_audit_names_jobs_to_those_who_read_their_namespace(shared: Api, author: Author) -> None:
    """An administrator of the queue sees who held a job of it, and why. Lists name nobody to them either."""
    held = await shared.post(
        "/api/v1/workloads/a1:hold", json={"reason": "new data"}, headers={"user": "root"}
    )
    assert held.status_code in (200, 202), held.text
    told = {
        user: (await get(shared, "audit?limit=1", user))["items"][0] for user in ("auditor", "alice", "lead")
    }
    assert {user: item["reason"] for user, item in told.items()} == dict.fromkeys(told, "new data")
    assert told["auditor"]["text"] == told["alice"]["text"] == "ordered: hold job/a1 in team-a"
    assert told["lead"]["text"] == "ordered: hold a job"
    assert "a1" not in json.dumps(told["lead"])
    for wish in ("namespace=team-a", "target=a1"):
        found = {user: len((await get(shared, f"audit?{wish}", user))["items"]) for user in told}
        assert found == {"auditor": 1, "alice": 1, "lead": 0}, "a filter tells what the row does not"


async def test_the_audit_says_of_a_command_whether_it_was_carried_out_and_why_not(
    shared: Api, author: Author
) -> None:
    """Page and command line show this text. Its end may name the job."""
    ask: dict[str, Any] = {"headers": {"user": "root"}, "json": {"reason": "new data"}}
    numbers = [
        (await shared.post(f"/api/v1/workloads/{uid}:evict", **ask)).json()["id"] for uid in ("a1", "a1")
    ]
    done = CommandAnswer(id=numbers[0], uid="a1", outcome=CommandOutcome.DONE, message="evicted")
    refused = CommandAnswer(
        id=numbers[1], uid="a1", outcome=CommandOutcome.REFUSED, message="a1 does not run"
    )
    ordered = (await get(shared, "audit?limit=2", "auditor"))["items"]
    assert [item["text"] for item in ordered] == ["ordered: evict job/a1 in team-a"] * 2
    async with begin(author.engine) as connection:
        await commands.answer(connection, author.epoch, [done, refused], at=NOW)
    told = {user: (await get(shared, "audit?limit=2", user))["items"] for user in ("auditor", "lead")}
    assert [item["text"] for item in told["auditor"]] == [
        "refused: evict job/a1 in team-a: a1 does not run", "evict job/a1 in team-a",
    ]  # fmt: skip
    assert [item["text"] for item in told["lead"]] == ["refused: evict a job", "evict a job"]
    assert "a1" not in json.dumps(told["lead"])


async def test_the_audit_is_forbidden_to_others_and_that_is_in_it(shared: Api) -> None:
    found = await shared.get("/api/v1/audit", headers={"user": "eve"})
    assert "get audit.queuer.dev" in problem_of(found, "forbidden")["detail"]
    assert (await get(shared, "audit", "auditor"))["items"][0]["action"] == "denied"
    assert "denied" not in json.dumps(await get(shared, "audit", "alice"))
