"""Tokens and rights asked of an API server: what is kept how long, what is asked once, what fails closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from queuer.api import deps
from queuer.api.app import create_app
from queuer.api.identity.answers import BAD_SECONDS, GOOD_SECONDS, Answers
from queuer.api.identity.kubernetes import (
    ACCESS_REVIEWS,
    AT_ONCE,
    LASTING_NO_SECONDS,
    NO_RIGHT_SECONDS,
    RIGHTS_A_PARTY,
    RIGHTS_AT_ONCE,
    TOKEN_REVIEWS,
    Kubernetes,
)
from queuer.api.identity.rights import Caller, Resource, Right, Verb, reading, updating
from queuer.api.settings import ApiSettings, Authentication
from queuer.domain.errors import Unavailable
from queuer.kube.client import Client
from queuer.kube.config import Access
from tests.api.identity import EVERYTHING, Table, client_of, local
from tests.api.problems import problem_of
from tests.api.rows import Author
from tests.store.support import workload
from tests.waiting import PATIENCE, until

ALICE = {"username": "alice", "uid": "7", "groups": ["team-a"], "extra": {"scopes": ["s"]}}
GET = reading("team-a")
SECRET = "secret-token"


class Reviewer:
    """An API server that answers reviews as told. `asked`: their specs."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {"authenticated": True, "user": ALICE, "audiences": ["queuer"]}
        self.failure: tuple[int, str] | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body["spec"])
        await self.gate.wait()
        if self.failure is not None:
            status, said = self.failure
            return web.Response(status=status, text=said)
        return web.json_response({**body, "status": self.status}, status=201)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def asking(reviewer: Reviewer, clock: Callable[[], float], **options: Any) -> AsyncIterator[Kubernetes]:
    """An identity whose API server is the reviewer."""
    app = web.Application()
    for path in (TOKEN_REVIEWS, ACCESS_REVIEWS):
        app.router.add_post(path, reviewer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]

    async def headers() -> dict[str, str]:
        return {}

    try:
        async with Client(Access(url=f"http://{host}:{port}", ssl=None, headers=headers)) as client:
            yield Kubernetes(client, audiences=("queuer",), clock=clock, **options)
    finally:
        await runner.cleanup()


async def test_a_token_is_its_users_for_a_minute_and_refused_for_seconds() -> None:
    reviewer, clock = Reviewer(), Clock()
    async with asking(reviewer, clock) as identity:
        for _ in range(2):
            assert await identity.whose(SECRET) == Caller(
                name="alice", groups=("team-a",), uid="7", extra=(("scopes", ("s",)),)
            )
        assert reviewer.asked == [{"token": SECRET, "audiences": ["queuer"]}]
        reviewer.status = {"authenticated": False}
        clock.now += GOOD_SECONDS
        for _ in range(2):
            assert await identity.whose(SECRET) is None
        assert len(reviewer.asked) == 2
        clock.now += BAD_SECONDS
        await identity.whose(SECRET)
        assert len(reviewer.asked) == 3


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]])
async def test_a_token_for_others_is_refused_though_it_is_authentic(audiences: list[str]) -> None:
    reviewer = Reviewer()
    reviewer.status |= {"audiences": audiences}
    async with asking(reviewer, Clock()) as identity:
        assert await identity.whose(SECRET) is None


@pytest.mark.parametrize("token", ["", "a b", "töken", "x" * 20_000, "a\nb"])
async def test_what_cannot_be_a_token_is_not_asked_about(token: str) -> None:
    reviewer = Reviewer()
    async with asking(reviewer, Clock()) as identity:
        assert await identity.whose(token) is None
    assert reviewer.asked == []


async def test_a_right_is_asked_in_the_words_of_rbac() -> None:
    reviewer = Reviewer()
    reviewer.status = {"allowed": True}
    caller = Caller(name="alice", groups=("team-a",), uid="7", extra=(("scopes", ("s",)),))
    async with asking(reviewer, Clock()) as identity:
        assert await identity.allows(caller, GET)
        assert await identity.allows(caller, GET)
        assert reviewer.asked == [
            {
                "user": "alice", "uid": "7", "groups": ["team-a"], "extra": {"scopes": ["s"]},
                "resourceAttributes": {
                    "group": "queuer.dev", "resource": "workloads", "verb": "get", "namespace": "team-a"
                },
            }
        ]  # fmt: skip
        reviewer.status = {"allowed": True, "denied": True}
        assert not await identity.allows(Caller(name="bob"), GET)


async def test_a_right_that_is_missing_is_asked_anew_without_keeping_its_caller_waiting() -> None:
    reviewer, clock, bob = Reviewer(), Clock(), Caller(name="bob")
    reviewer.status = {"allowed": False}
    async with asking(reviewer, clock) as identity:
        assert not await identity.allows(bob, GET)
        clock.now += NO_RIGHT_SECONDS
        reviewer.gate.clear()
        reviewer.status = {"allowed": True}
        assert not await identity.allows(bob, GET)  # at once, although the API server hangs
        reviewer.gate.set()
        await until(lambda: identity.allows(bob, GET))
        assert len(reviewer.asked) == 2
        reviewer.status = {"allowed": False}
        clock.now += GOOD_SECONDS
        assert not await identity.allows(bob, GET), "a yes is never answered stale"


async def test_a_no_that_lasts_is_asked_for_ever_more_rarely() -> None:
    """Most callers lack a right in most namespaces: 300 of them in 300 are 90,000 questions each time."""
    clock, asked = Clock(), list[float]()

    async def no() -> bool:
        asked.append(clock.now)
        return False

    answers = Answers[str, bool](clock, bad=NO_RIGHT_SECONDS, worst=LASTING_NO_SECONDS)
    while len(asked) < 7:
        await answers.get("right", no)
        clock.now += NO_RIGHT_SECONDS
    assert [after - before for before, after in pairwise(asked)] == [30, 60, 120, 240, 300, 300]


async def test_who_asks_at_the_same_time_shares_one_question_and_may_leave() -> None:
    reviewer = Reviewer()
    reviewer.gate.clear()
    async with asking(reviewer, Clock()) as identity:
        waiting = [asyncio.create_task(identity.whose(SECRET)) for _ in range(20)]
        await until(lambda: reviewer.asked)
        waiting[0].cancel()
        reviewer.gate.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert {caller.name for caller in found[1:] if isinstance(caller, Caller)} == {"alice"}
        assert len(reviewer.asked) == 1


async def test_what_is_kept_is_bounded_and_the_unused_go_first() -> None:
    reviewer = Reviewer()
    async with asking(reviewer, Clock(), most=2) as identity:
        for token in ("a", "b", "a", "c", "a", "b"):
            await identity.whose(token)
    assert [spec["token"] for spec in reviewer.asked] == ["a", "b", "c", "b"]


async def test_an_api_server_that_fails_allows_nothing_is_asked_again_and_betrays_no_token() -> None:
    reviewer = Reviewer()
    async with asking(reviewer, Clock()) as identity:
        for body in (SECRET, json.dumps({"message": f"bad token {SECRET}"}), "[]"):
            reviewer.failure = (201 if body == "[]" else 500, body)
            with capture_logs() as logs, pytest.raises(Unavailable) as raised:
                await identity.whose(SECRET)
            assert SECRET not in f"{raised.value} {logs}"
            with pytest.raises(Unavailable):
                await identity.allows(Caller(name="alice"), GET)
        reviewer.failure = None
        assert await identity.whose(SECRET)


@pytest.mark.parametrize(
    ("authorization", "status"), [(None, 401), ("Basic YTpi", 401), (f"Bearer {SECRET}", 200)]
)
async def test_requests_carry_the_token(
    engine: AsyncEngine, database_url: str, authorization: str | None, status: int
) -> None:
    async with asking(Reviewer(), Clock()) as identity:
        app = create_app(engine, local(database_url), identity)
        headers = {} if authorization is None else {"Authorization": authorization}
        async with client_of(app) as client:
            found = await client.get("/api/v1/queues", headers=headers)
    assert found.status_code == status
    if status == 401:
        said = problem_of(found, "unauthenticated")
        assert "audience queuer" in said["detail"]
        assert found.headers["www-authenticate"] == "Bearer"


async def test_me_says_what_a_page_may_offer(engine: AsyncEngine, database_url: str, author: Author) -> None:
    team_a = Right(verb=Verb.UPDATE, resource=Resource.QUEUES, name="root.research")
    users = Table(
        {"alice": frozenset({reading("team-a"), team_a}), "bob": frozenset(), "root": frozenset({EVERYTHING})}
    )
    await author.tree()
    await author.submit(workload("x1", queue="root.research.team-a", namespace="elsewhere", name="x"))
    async with client_of(create_app(engine, local(database_url), users)) as client:
        alice, bob, root = [
            (await client.get("/api/v1/me", headers={"user": user})).json()
            for user in ("alice", "bob", "root")
        ]
    assert alice == {
        "name": "alice",
        "groups": [],
        "readsEverything": False,
        "namespaces": ["team-a"],
        "updates": [],
        "administers": ["root.research"],
        "mayChange": True,
        "readsCycles": False,
        "readsAudit": True,
    }
    menus = ("mayChange", "readsCycles", "readsAudit")
    assert [bob[menu] for menu in menus] == [False] * 3
    assert [root[menu] for menu in menus] == [True] * 3
    assert (root["readsEverything"], root["administers"]) == (True, ["root"])
    assert {"team-a", "team-b", "elsewhere"} <= set(root["namespaces"])


async def test_meta_needs_no_token_and_has_the_vocabulary(engine: AsyncEngine, database_url: str) -> None:
    settings = ApiSettings(database_url=database_url, authentication=Authentication.KUBERNETES)
    async with client_of(create_app(engine, settings, Table())) as client:
        found = (await client.get("/api/v1/meta")).json()
    assert found["authentication"] == ["token"]
    assert "Placing" in found["states"]
    assert {"token": "BehindInQueue", "verdict": "WAIT"} in found["reasons"]
    assert any(kind["code"] == "forbidden" and kind["status"] == 403 for kind in found["problems"])


class Halting(Table):
    """Its API server stops answering after the first question."""

    async def allows(self, caller: Caller, right: Right) -> bool:
        if right.namespace:
            raise Unavailable("the API server does not answer")
        return False


async def test_a_list_whose_rights_cannot_all_be_asked_is_503(
    engine: AsyncEngine, database_url: str, author: Author
) -> None:
    """Rights of many namespaces are asked at once; that one fails is no fault of ours."""
    await author.submit(workload("a", namespace="team-a"), workload("b", namespace="team-b"))
    app = create_app(engine, local(database_url), Halting({"alice": frozenset()}))
    async with client_of(app) as client:
        found = await client.get("/api/v1/workloads", headers={"user": "alice"})
    problem_of(found, "unavailable")


async def test_invented_tokens_drive_out_no_good_answer() -> None:
    reviewer = Reviewer()
    async with asking(reviewer, Clock(), most=2) as identity:
        await identity.whose(SECRET)
        reviewer.status = {"authenticated": False}
        for number in range(5):
            await identity.whose(f"invented-{number}")
        assert (await identity.whose(SECRET)) is not None
        assert len(reviewer.asked) == 6


@pytest.mark.parametrize(
    ("name", "party"),
    [
        ("system:serviceaccount:team-a:robot-7", "system:serviceaccount:team-a"),
        ("system:kube-scheduler", "system:kube-scheduler"),
        ("oidc:alice", "oidc:alice"),
    ],
)
def test_limits_count_the_service_accounts_of_a_namespace_as_one(name: str, party: str) -> None:
    assert Caller(name=name).party == party


async def test_many_service_accounts_of_one_namespace_keep_nobody_from_asking_for_rights() -> None:
    reviewer = Reviewer()
    reviewer.gate.clear()
    async with asking(reviewer, Clock()) as identity:
        robots = [Caller(name=f"system:serviceaccount:team-a:robot-{n}") for n in range(RIGHTS_AT_ONCE)]
        waiting = [asyncio.create_task(identity.allows(robot, updating("team-b"))) for robot in robots]
        await until_asked(reviewer, RIGHTS_A_PARTY)
        waiting.append(asyncio.create_task(identity.allows(Caller(name="alice"), updating("team-b"))))
        await until_asked(reviewer, RIGHTS_A_PARTY + 1)
        reviewer.gate.set()
        await asyncio.gather(*waiting)


async def until_asked(reviewer: Reviewer, count: int) -> None:
    """Wait until so many reviews, and no more, have reached the API server. Those asked for first come first."""

    async def reached() -> bool:
        return len(reviewer.asked) >= count

    await until(reached)
    assert len(reviewer.asked) == count


async def test_no_more_reviews_are_under_way_than_the_cluster_should_bear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queuer.api.identity.kubernetes.WAIT_SECONDS", 0.2)
    reviewer = Reviewer()
    reviewer.gate.clear()
    async with asking(reviewer, Clock()) as identity:
        waiting = [asyncio.create_task(identity.whose(f"invented-{n}")) for n in range(2 * AT_ONCE)]
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE, return_when=asyncio.FIRST_EXCEPTION)
        assert {type(task.exception()) for task in done} == {Unavailable}
        assert len(reviewer.asked) == AT_ONCE
        reviewer.gate.set()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_no_route_holds_a_connection_while_it_asks_for_rights(engine: AsyncEngine, database_url: str) -> None:
    """A right may take the cluster 5 s, and ten connections serve everybody: see `deps.Snapshot`."""
    app = create_app(engine, local(database_url), Table())
    needs = {
        route.path: [each.call for each in route.dependant.dependencies]
        for route in _routes(app.routes)
        if hasattr(route, "dependant")
    }
    held = {path for path, calls in needs.items() if deps._snapshot in calls}
    assert held
    assert not {path for path in held if deps.asking in needs[path]}


def _routes(found: Iterable[Any]) -> Iterator[Any]:
    for each in found:
        included = getattr(each, "original_router", None)
        yield from [each] if included is None else _routes(included.routes)
