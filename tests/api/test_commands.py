"""Commands over REST: who may ask for what, that each is audited, and how the controller's answer is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.identity.rights import administering, reading, updating
from queuer.api.workloads import commands as workload_commands
from queuer.domain.override import Override, Setting
from queuer.domain.workload import State
from queuer.store import commands
from queuer.store.commands import CommandAnswer, NewCommand
from queuer.store.engine import begin
from queuer.store.tables import CommandOutcome, CommandVerb
from tests.api.identity import EVERYTHING, Api, Table
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, Author
from tests.store.support import NOW, workload

PATH = "/api/v1/workloads"
UPDATES = updating("team-a")
USERS = Table(
    {
        "alice": frozenset({reading("team-a"), UPDATES}),
        "guest": frozenset({reading("team-a")}),
        "lead": frozenset({administering("root.research")}),
        "bob": frozenset({reading("team-b")}),
        "root": frozenset({EVERYTHING}),
    }
)
VERBS = [("POST", ":hold"), ("POST", ":release"), ("POST", ":evict"), ("PATCH", "")]


@pytest_asyncio.fixture
async def shared(shared: Api, author: Author) -> Api:
    """An API with users, and a job in each of two namespaces, beside one that has ended."""
    await author.tree()
    await author.submit(
        workload("a1", queue="root.research.team-a", namespace="team-a"),
        workload("a2", queue="root.research.team-a", namespace="team-a"),
        workload("b1", queue="root.research.team-b", namespace="team-b"),
    )
    await author.step("a2", State.FAILED)
    return shared


async def _ask(
    client: Api, user: str, verb: str, tail: str, *, uid: str = "a1", **rest: Any
) -> httpx2.Response:
    body = rest.pop("json", {"reason": "maintenance", **({"priority": 5} if verb == "PATCH" else {})})
    return await client.request(verb, f"{PATH}/{uid}{tail}", headers={"user": user}, json=body, **rest)


async def test_who_reads_a_job_is_told_what_it_may_do_to_it(shared: Api) -> None:
    """A page offers nobody what would be refused; rows of lists do not ask."""
    own = ["hold", "release", "prioritise"]
    for user, uid, verbs in (
        ("guest", "a1", []),
        ("alice", "a1", own),
        ("alice", "a2", []),
        ("root", "b1", ["hold", "release", "evict", "prioritise"]),
    ):
        found = (await shared.get(f"{PATH}/{uid}", headers={"user": user})).json()
        assert found["may"] == verbs
    rows = (await shared.get(PATH, headers={"user": "root"})).json()["items"]
    assert all("may" not in row for row in rows)
    queue, me = "/api/v1/queues/root.research.team-a", "/api/v1/me"
    told = {
        user: (await shared.get(queue, headers={"user": user})).json()["may"] for user in ("alice", "lead")
    }
    assert told == {"alice": [], "lead": ["hold", "drain", "resume", "edit"]}
    updates = {
        user: (await shared.get(me, headers={"user": user})).json()["updates"] for user in ("alice", "bob")
    }
    assert updates == {"alice": ["team-a"], "bob": []}


@pytest.mark.parametrize(("verb", "tail"), VERBS)
async def test_a_command_is_put_with_its_audit_row(
    shared: Api, engine: AsyncEngine, verb: str, tail: str
) -> None:
    found = await _ask(shared, "lead", verb, tail)
    assert found.status_code == 202, found.text
    made = found.json()
    assert (made["uid"], made["by"], made["outcome"], made["reason"]) == ("a1", "lead", None, "maintenance")
    assert found.headers["location"] == f"/api/v1/commands/{made['id']}"
    read = await shared.get(found.headers["location"], headers={"user": "alice"})
    assert read.json() == made
    async with begin(engine) as connection:
        [row] = (await connection.execute(text("SELECT * FROM audit WHERE action LIKE 'workload.%'"))).all()
    assert (row.actor, row.source, row.action) == ("lead", "api", f"workload.{made['verb']}")
    assert row.detail["queue"] == "root.research.team-a"


@pytest.mark.parametrize(("verb", "tail"), VERBS)
async def test_who_may_not_is_told_so_and_who_may_not_see_it_nothing(
    shared: Api, engine: AsyncEngine, verb: str, tail: str
) -> None:
    guest = problem_of(await _ask(shared, "guest", verb, tail), "forbidden")
    right = (
        "queues.queuer.dev root.research.team-a" if tail == ":evict" else "workloads.queuer.dev in namespace"
    )
    assert f"may not update {right}" in guest["detail"]
    foreign, absent = [
        problem_of(await _ask(shared, "bob", verb, tail, uid=uid), "not_found") for uid in ("a1", "zz")
    ]
    assert foreign["detail"].replace("a1", "zz") == absent["detail"]
    async with begin(engine) as connection:
        assert not await commands.waiting(connection)


async def test_a_user_holds_releases_and_lowers_but_does_not_evict(shared: Api, engine: AsyncEngine) -> None:
    for verb, tail in VERBS:
        found = await _ask(shared, "alice", verb, tail)
        assert found.status_code == (403 if tail == ":evict" else 202), found.text
    await _ask(shared, "lead", "POST", ":hold")
    async with begin(engine) as connection:
        rights = [found.administers for found in await commands.undone(connection, count=9)]
    assert rights == [None, None, None, "root.research.team-a"], (
        "what it may beyond that is for the controller"
    )


async def test_what_has_ended_takes_no_command(shared: Api) -> None:
    said = problem_of(await _ask(shared, "root", "POST", ":hold", uid="a2"), "conflict")
    assert said["detail"] == "team-a/a2 has ended or is gone"


async def test_with_wait_the_answer_of_the_controller_is_waited_for(shared: Api, author: Author) -> None:
    asked = asyncio.create_task(_ask(shared, "alice", "POST", ":hold", params={"wait": "10s"}))
    await _answer_next(author, CommandOutcome.DONE, "held")
    found = await asked
    assert found.status_code == 200
    assert (found.json()["outcome"], found.json()["message"]) == ("done", "held")
    late = await _ask(shared, "alice", "POST", ":release", params={"wait": "1s"})
    assert (late.status_code, late.json()["outcome"]) == (202, None)
    told = (await shared.get(f"{PATH}/a1", headers={"user": "alice"})).json()
    assert "hold by alice (maintenance), done: held" in [moment["text"] for moment in told["timeline"]]


@pytest.mark.parametrize("wait", ["11s", "1h", "x", ""])
async def test_the_wait_is_bounded(shared: Api, wait: str) -> None:
    said = await _ask(shared, "alice", "POST", ":hold", params={"wait": wait})
    assert problem_of(said, "invalid_input")["errors"][0]["field"] == "wait"


async def _answer_next(author: Author, outcome: CommandOutcome, message: str) -> None:
    async with asyncio.timeout(60):
        while True:
            async with begin(author.engine) as connection:
                for found in await commands.undone(connection, count=1):
                    told = CommandAnswer(id=found.id, uid=found.uid, outcome=outcome, message=message)
                    return await commands.answer(connection, author.epoch, [told], at=NOW + 500)
            await asyncio.sleep(0.02)


async def test_many_are_asked_at_once_each_for_itself(shared: Api, engine: AsyncEngine) -> None:
    body = {"uids": ["a1", "a2", "b1", "zz", "a1"], "reason": "incident"}
    found = await shared.post(f"{PATH}:hold", json=body, headers={"user": "alice"})
    assert found.status_code == 202
    items = {item["uid"]: item for item in found.json()["items"]}
    assert list(items) == ["a1", "a2", "b1", "zz"]
    assert items["a1"]["command"]["verb"] == "hold"
    assert {uid: items[uid]["refused"]["code"] for uid in ("a2", "b1", "zz")} == {
        "a2": "conflict", "b1": "not_found", "zz": "not_found",
    }  # fmt: skip
    async with begin(engine) as connection:
        assert len(await commands.undone(connection, count=9)) == 1
    many = {"uids": [f"u{n}" for n in range(501)]}
    problem_of(await shared.post(f"{PATH}:evict", json=many, headers={"user": "root"}), "invalid_input")


async def test_the_same_request_under_one_key_is_one_command(shared: Api, engine: AsyncEngine) -> None:
    headers = {"user": "alice", "Idempotency-Key": "k1"}
    first, second = [await shared.post(f"{PATH}/a1:hold", headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    async with begin(engine) as connection:
        assert len(await commands.undone(connection, count=9)) == 1
    other = await shared.post(f"{PATH}/a2:hold", headers=headers)
    problem_of(other, "invalid_input")
    headers["Idempotency-Key"] = "k2"
    many = {"uids": ["a1", "a2", "nobody"]}
    first, second = [await shared.post(f"{PATH}:release", json=many, headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    assert [row["command"] is None for row in first.json()["items"]] == [False, True, True]


@pytest.mark.parametrize(
    "body", [{}, {"priority": 2**31}, {"priority": "High!"}, {"priority": 1.5}, {"priority": True}]
)
async def test_a_priority_that_is_none_is_refused_with_the_field(shared: Api, body: dict[str, Any]) -> None:
    said = problem_of(await _ask(shared, "root", "PATCH", "", json=body), "invalid_input")
    assert "priority" in said["errors"][0]["field"]


async def test_an_override_is_shown_on_the_row_and_in_full(shared: Api, author: Author) -> None:
    held = Setting(value=True, by="root", at=NOW, reason="node maintenance", administered=True)
    made = Override(hold=held)
    async with begin(author.engine) as connection:
        await commands.put_overrides(connection, author.epoch, {"a1": (made, 0)})
    hold = {"value": True, "by": "root", "at": "2025-11-21T04:40:00Z", "reason": "node maintenance"}
    wanted = {"hold": hold, "priority": None}
    page = (await shared.get(PATH, headers={"user": "alice"})).json()
    assert {item["uid"]: item["override"] for item in page["items"]} == {"a1": wanted, "a2": None}
    assert (await shared.get(f"{PATH}/a1", headers={"user": "alice"})).json()["override"] == wanted


async def test_who_is_to_be_evicted_is_told_first_and_what_to_do_until_then(
    shared: Api, author: Author
) -> None:
    made = workload("r1", queue="root.research.team-a", namespace="team-a", gpus=8)
    await author.submit(made)
    await author.cycle(admit=[made])
    order = NewCommand(verb=CommandVerb.EVICT, uid="r1", administers="root.research.team-a", delay=600.0)
    async with begin(author.engine) as connection:
        (put,) = await commands.add(connection, [order], actor="root", source="rest", reason="new switches")
    told = (await shared.get(f"{PATH}/r1", headers={"user": "alice"})).json()["explanation"]
    due = f"{datetime.fromtimestamp(put.due, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    stays = "its pods end then, and it waits in its queue with its old submit time"
    assert told["do"] == f"save its work before {due}: {stays}"
    assert [told["paragraphs"][0][part] for part in ("label", "text")] == [
        "to leave", "evicted in 9m: new switches",
    ]  # fmt: skip
    assert told["next"] is None
    cut: dict[str, Any] = {"quota": [{"resource": GPU, "limit": 4}], "namespaces": ["team-a"]}
    await author.tree({**TREE, "queues": {**TREE["queues"], "root.research.team-a": cut}})
    told = (await shared.get(f"{PATH}/r1", headers={"user": "alice"})).json()["explanation"]
    never = "Asks 8 gpu; root.research.team-a may never use more than 4."
    assert told["do"].endswith(f"its pods end then, and it can never start again as it is: {never}"[:-1])


async def test_a_command_that_no_controller_takes_up_is_said_to_be_refused(
    shared: Api, engine: AsyncEngine
) -> None:
    made = (await _ask(shared, "alice", "POST", ":hold")).json()
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE command SET due = due - interval '11 min'"))
    found = (await shared.get(f"/api/v1/commands/{made['id']}", headers={"user": "alice"})).json()
    assert (found["outcome"], found["message"]) == ("refused", "no controller took it up")
    for user, id in (("bob", made["id"]), ("alice", 10**6)):
        problem_of(await shared.get(f"/api/v1/commands/{id}", headers={"user": user}), "not_found")


async def test_an_address_of_a_command_is_no_objects(shared: Api) -> None:
    said = await shared.get(f"{PATH}/a1:hold", headers={"user": "alice"})
    problem_of(said, "method_not_allowed")


async def test_a_refusal_of_one_of_many_is_in_the_audit(shared: Api, engine: AsyncEngine) -> None:
    found = await shared.post(f"{PATH}:evict", json={"uids": ["a1"]}, headers={"user": "alice"})
    assert found.json()["items"][0]["refused"]["code"] == "forbidden"
    async with begin(engine) as connection:
        rows = (
            (await connection.execute(text("SELECT actor FROM audit WHERE action = 'denied'")))
            .scalars()
            .all()
        )
    assert rows == ["alice"]


async def test_a_second_command_of_a_kind_waits_for_the_answer_of_the_first(shared: Api) -> None:
    """H5: for one job and for many, while an administrator's goes through."""
    assert (await _ask(shared, "alice", "POST", ":hold")).status_code == 202
    again = problem_of(await _ask(shared, "alice", "POST", ":hold"), "conflict")
    assert again["detail"].startswith("a command to hold team-a/a1 waits for the controller already")
    many = await shared.post(f"{PATH}:hold", json={"uids": ["a1"]}, headers={"user": "alice"})
    assert [item["refused"]["code"] for item in many.json()["items"]] == ["conflict"]
    assert (await _ask(shared, "lead", "POST", ":hold")).status_code == 202


@pytest.fixture
def stingy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands for each caller, for ever. Name it before `shared`."""
    monkeypatch.setattr(workload_commands, "AT_ONCE", 2.0)
    monkeypatch.setattr(workload_commands, "A_MINUTE", 0.0)


async def test_commands_of_a_caller_have_a_budget(stingy: None, shared: Api, engine: AsyncEngine) -> None:
    """H5: each is an audit row for 400 days. An administrator has none."""
    for tail in (":hold", ":release"):
        assert (await _ask(shared, "alice", "POST", tail)).status_code == 202
    refused = await _ask(shared, "alice", "PATCH", "")
    problem_of(refused, "too_many")
    assert refused.headers["retry-after"]
    for tail in (":hold", ":release", ":evict"):
        assert (await _ask(shared, "lead", "POST", tail)).status_code == 202
    async with begin(engine) as connection:
        assert len((await connection.execute(text("SELECT FROM audit WHERE actor = 'alice'"))).all()) == 2


async def test_a_caller_without_rights_leaves_nothing_behind(shared: Api, engine: AsyncEngine) -> None:
    """L7: 500 unknown uids of 253 characters under a fresh key each fill no table."""
    body = {"uids": [f"{n:0253}" for n in range(500)], "reason": "x" * 500}
    for n in range(3):
        headers = {"user": "bob", "Idempotency-Key": f"k{n}"}
        found = await shared.post(f"{PATH}:hold", json=body, headers=headers)
        assert {item["refused"]["code"] for item in found.json()["items"]} == {"not_found"}
    async with begin(engine) as connection:
        for table in ("command", "audit", "draft"):
            kept = text(f"SELECT count(*) FROM {table} WHERE actor = 'bob'")
            assert (await connection.execute(kept)).scalar_one() == 0, table
