"""Nobody takes a dead controller for a slow one, nor an idle one for a dead one."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from queuer.api.controller import AWAY_AFTER, ControllerWatch
from queuer.api.server import serve
from queuer.controller.health.probes import Phase
from queuer.store import migrate
from queuer.store.engine import begin, conninfo
from queuer.store.heartbeat import LastCycle
from tests.api.cli import run
from tests.api.identity import Api, local
from tests.api.problems import problem_of
from tests.api.rows import A, Author, waits
from tests.store.support import workload
from tests.waiting import until


def concluded(*, ago: float, waiting: int = 3) -> LastCycle:
    return LastCycle(id=7, at=time.time() - ago, took=0.1, waiting=waiting, status="GREEDY")


async def controller(api: Api) -> dict[str, Any]:
    """All answers that speak of waiting say the same of it."""
    found: dict[str, Any] = (await api.get("/api/v1/queues")).json()["controller"]
    jobs = (await api.get("/api/v1/workloads")).json()["controller"]
    assert (jobs["state"], jobs["at"]) == (found["state"], found["at"])
    return found


@pytest.mark.parametrize(
    ("silent", "ago", "state"),
    [(0, 2, "leading"), (0, 400, "idle"), (0, None, "idle"), (20, 40, "idle"), (60, 62, "stale")],
)
async def test_an_idle_controller_is_not_a_dead_one(
    api: Api, author: Author, silent: float, ago: float | None, state: str
) -> None:
    await author.beat(silent=silent, cycle=None if ago is None else concluded(ago=ago))
    found = await controller(api)
    assert found["state"] == state
    assert (found["cycle"], found["waiting"]) == ((None, None) if ago is None else (7, 3))
    assert ago is None or found["cycleAgeSeconds"] == pytest.approx(ago, abs=5)
    probe = await api.get("/healthz/controller", headers={"host": "10.0.0.7"})
    if state == "stale":
        detail = problem_of(probe, "unavailable")["detail"]
        assert "not been heard of since" in detail
    else:
        assert (probe.status_code, probe.text) == (200, state)
    assert (await api.get("/readyz")).status_code == 200


async def test_a_controller_that_is_killed_is_missed_at_once(
    api: Api, author: Author, leader: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last heartbeat is fresh; the lock that it held is gone with its session."""
    monkeypatch.setattr("queuer.api.controller.LOOK", 0.0)
    await author.submit(workload("u1", queue=A))
    await author.beat(cycle=concluded(ago=1))
    assert (await controller(api))["state"] == "leading"
    leader.close()

    async def missed() -> bool:  # the server ends the session a moment after its client
        return bool((await controller(api))["state"] == "stale")

    await until(missed)
    found, why = await controller(api), (await api.get("/api/v1/workloads/u1")).json()
    assert "nobody decides since" in found["text"]
    assert why["reason"]["token"] == "ControllerStale"
    wrong = await api.get("/api/v1/workloads/nosuch")
    problem_of(wrong, "not_found")
    assert found["text"] in wrong.headers["queuer-controller"], "a refusal says so, too"
    document = await api.get("/api/v1/queue-tree")
    assert found["text"] in document.headers["queuer-controller"], "what is exported says so, too"


async def test_who_asks_during_a_look_gets_what_it_finds(author: Author, database_url: str) -> None:
    """An answer beside the first would else say that somebody decides, or what was true at the look before."""
    await author.beat(silent=60)
    watch = ControllerWatch(database_url, stale_after=30)
    found = await asyncio.gather(*(watch.text() for _ in range(3)))
    assert [each.split(" since ")[0] for each in found] == ["the controller has not been heard of"] * 3


async def test_a_database_that_hangs_is_named_and_a_crowded_pool_is_not_taken_for_it(
    api: Api, author: Author, engine: AsyncEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopped takes connections: whoever asks would wait 30 s, and call the API away."""
    monkeypatch.setattr("queuer.api.controller.LOOK", 0.0)
    await author.beat()
    async with AsyncExitStack() as crowd:
        for _ in range(8):
            _ = await crowd.enter_async_context(begin(engine))
        assert not await ControllerWatch(database_url, stale_after=30).text()
    monkeypatch.setattr("queuer.api.controller.SILENCE", 0.3)
    with psycopg.connect(conninfo(database_url)) as session:
        session.execute("LOCK TABLE heartbeat")
        for path in ("controller", "overview", "queues", "workloads/u1"):
            hangs = problem_of(await api.get(f"/api/v1/{path}"), "database_unavailable")
            assert hangs["detail"] == "PostgreSQL has not answered for 0.3 s"


@pytest.mark.parametrize("ago", [400, None])
async def test_a_long_decision_is_not_idleness(api: Api, author: Author, ago: float | None) -> None:
    await author.beat(phase=Phase.DECIDING, cycle=None if ago is None else concluded(ago=ago))
    found = await controller(api)
    assert found["state"] == "leading"
    assert "a decision takes long" in found["text"]
    await author.beat(phase=Phase.STANDBY, cycle=concluded(ago=2))
    assert (await controller(api))["state"] == "stale"


async def test_the_last_decision_is_the_same_everywhere_though_one_that_changes_nothing_is_not_kept(
    api: Api, author: Author
) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.cycle(explain={"u1": waits()})
    await author.beat(cycle=concluded(ago=2))
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    told = await controller(api)
    assert (found["cycle"], found["kept"], told["cycle"]) == (7, 1, 7)
    assert found["ageSeconds"] == pytest.approx(told["cycleAgeSeconds"], abs=5.0)
    said = re.compile(r"cycle 7, \d+s ago \(on record: 1\)")
    assert all(said.search(lines.out) for lines in (await run(api, "why", "u1"), await run(api, "status")))


async def test_where_nobody_decides_that_is_why_a_job_waits(api: Api, author: Author) -> None:
    """The last cycle's records stay visible; running work waits for nothing."""
    await author.tree()
    runs = workload("u2", queue=A)
    await author.submit(workload("u1", queue=A), runs)
    await author.cycle(admit=[runs], explain={"u1": waits()})
    await author.beat(silent=60)
    whole = (await api.get("/api/v1/workloads/u1")).json()
    found = whole["explanation"]
    assert (found["verdict"], found["primary"]["token"]) == ("ESCALATE", "ControllerStale")
    assert found["primary"]["since"] == (await controller(api))["at"]
    assert [other["token"] for other in found["others"]] == ["TopologyPlacementFailed", "WaitingForQuota"]
    assert (found["wouldAdmit"], whole["reason"]["token"]) == ([], "ControllerStale")
    assert (await api.get("/api/v1/workloads/u2")).json()["explanation"]["primary"] is None
    await author.beat()
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    assert found["primary"]["token"] == "TopologyPlacementFailed"


@pytest.mark.parametrize(("away", "state"), [(0.5, "leading"), (70, "away")])
async def test_a_controller_that_kubernetes_does_not_answer_starts_nothing(
    api: Api, author: Author, away: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told wherever it is told that nobody decides; a report, a beat and a look later, it is within 5 s."""
    assert AWAY_AFTER < 2
    monkeypatch.setattr("queuer.api.controller.AWAY_AFTER", 60.0)  # so that a slow test does not tell it
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.cycle(explain={"u1": waits()})
    await author.beat(away=away, cycle=concluded(ago=1))
    found, why = await controller(api), (await api.get("/api/v1/workloads/u1")).json()
    gone = state == "away"
    assert (found["state"], "Kubernetes has not answered" in found["text"]) == (state, gone)
    assert (why["reason"]["token"] == "ControllerStale") is gone
    assert ("API server does not answer" in why["explanation"]["do"]) is gone
    attention = (await api.get("/api/v1/overview")).json()["attention"]
    assert [item["text"] for item in attention if item["text"] == found["text"]] == [found["text"]] * gone
    assert (await api.get("/healthz/controller")).status_code == (503 if gone else 200)


async def test_a_controller_without_its_guard_admits_nothing(api: Api, author: Author) -> None:
    """Told wherever it is told that nobody decides, with the policy that is missing and the next step."""
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.cycle(explain={"u1": waits()})
    await author.beat(unguarded="ValidatingAdmissionPolicy queuer-guard is missing", cycle=concluded(ago=1))
    found, why = await controller(api), (await api.get("/api/v1/workloads/u1")).json()
    text = "nothing new is admitted, what runs goes on: ValidatingAdmissionPolicy queuer-guard is missing"
    assert (found["state"], found["text"]) == ("unguarded", text)
    assert why["reason"]["token"] == "ControllerStale"
    assert "admission policies are missing or changed" in why["explanation"]["do"]
    attention = (await api.get("/api/v1/overview")).json()["attention"]
    assert text in [item["text"] for item in attention]
    assert (await api.get("/healthz/controller")).status_code == 503


async def test_a_controller_whose_decisions_fail_is_told(api: Api, author: Author) -> None:
    """Such a controller is well by all other signs, and nothing would start."""
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.cycle(explain={"u1": waits()})
    await author.beat(phase=Phase.FAILING, cycle=concluded(ago=1))
    found, why = await controller(api), (await api.get("/api/v1/workloads/u1")).json()
    assert (found["state"], "had no sound plan" in found["text"]) == ("failing", True)
    assert why["reason"]["token"] == "ControllerStale"
    assert why["explanation"]["do"].endswith("its decisions fail")
    assert (await api.get("/healthz/controller")).status_code == 503


async def test_a_loop_that_hangs_beside_a_living_process_is_told(
    api: Api, author: Author, engine: AsyncEngine
) -> None:
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE heartbeat SET round_at = now() - interval '2 min'"))
    found = await controller(api)
    assert (found["state"], "has not gone round since" in found["text"]) == ("stale", True)


async def test_a_term_that_has_ended_is_told_at_once(api: Api, author: Author, engine: AsyncEngine) -> None:
    """By its last sign of life, or by the epoch of a successor that gave none, as where each dies while it reads."""
    await author.beat(cycle=concluded(ago=1))
    assert (await controller(api))["state"] == "leading"
    for end, says in (
        ("UPDATE heartbeat SET phase = 'standby'", "nobody decides since"),
        ("UPDATE leader SET epoch = epoch + 1, since = now()", "a controller took office at"),
    ):
        async with begin(engine) as connection:
            await connection.execute(text(end))
        found = await controller(api)
        assert (found["state"], found["cycle"]) == ("stale", 7)
        assert says in found["text"]
        assert (await api.get("/healthz/controller")).status_code == 503


async def test_a_database_that_nobody_ever_led_says_so(api: Api) -> None:
    assert (await controller(api))["state"] == "never"
    problem_of(await api.get("/healthz/controller"), "unavailable")


async def test_a_schema_that_is_missing_is_told_to_each_reader_and_once_in_the_log(
    api: Api, engine: AsyncEngine
) -> None:
    """The database was emptied beside the API."""
    async with begin(engine) as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    with capture_logs() as lines:
        for path in ("/api/v1/overview", "/api/v1/workloads", "/readyz", "/api/v1/queues"):
            said = problem_of(await api.get(path), "unavailable")
            assert said["detail"].startswith("the database is at schema none"), path
    assert [line["event"] for line in lines] == ["the database serves no request"]


async def test_an_api_server_serves_one_schema(api: Api, engine: AsyncEngine, database_url: str) -> None:
    """M1: one that was left running through a migration is not ready, another one does not start."""
    assert (await api.get("/readyz")).text == "ok"
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9000'"))
    said = problem_of(await api.get("/readyz"), "unavailable")
    assert said["detail"].startswith("the database is at schema 9000, which this version does not know")
    with pytest.raises(migrate.SchemaMismatchError, match="schema 9000"):
        await serve(local(database_url))
    async with begin(engine) as connection:
        await connection.execute(text("DROP TABLE alembic_version"))
    said = problem_of(await api.get("/readyz"), "unavailable")
    assert said["detail"].startswith("the database is at schema none")
