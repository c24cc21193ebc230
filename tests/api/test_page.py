"""The page: figures and reasons as the API has them, inert text whatever a job is called, readable without colour."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.identity.rights import Caller, Right
from queuer.api.pages import dashboard
from queuer.api.pages.page import BAR, bar
from queuer.api.queues.models import Account
from queuer.api.settings import ApiSettings, Authentication
from queuer.domain.errors import Unavailable
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from tests.api.identity import Table, reads
from tests.api.problems import problem_of
from tests.api.rows import GPU, Author, waits
from tests.store.support import workload

A, B = "root.research.team-a", "root.research.team-b"


def account(**amounts: str) -> Account:
    given = {"guaranteed": "0", "used": "0", "borrowed": "0", "lent": "0", "pending": "0"} | amounts
    return Account.model_validate({"resource": GPU, "flavor": None, "limit": None, "starved": False, **given})


@pytest.mark.parametrize(
    ("amounts", "parts", "limit"),
    [
        ({}, [], None),
        ({"guaranteed": "10"}, [("free", 0, 400)], None),
        (
            {"guaranteed": "10", "used": "5", "lent": "2"},
            [("own", 0, 200), ("lent", 200, 80), ("free", 280, 120)],
            None,
        ),
        ({"guaranteed": "5", "used": "10", "borrowed": "5"}, [("own", 0, 200), ("borrowed", 200, 200)], None),
        ({"guaranteed": "5", "used": "5", "limit": "10"}, [("own", 0, 200)], 200 * 2 - 2),
        (
            {"guaranteed": "5", "used": "10", "borrowed": "5", "limit": "5"},
            [("own", 0, 200), ("borrowed", 200, 200)],
            200,
        ),
    ],
)
def test_a_bar_shows_each_part_in_its_place(
    amounts: dict[str, str], parts: list[tuple[str, int, int]], limit: int | None
) -> None:
    found, mark = bar(account(**amounts))
    assert [(p.kind, p.x, p.width) for p in found] == parts
    assert mark == limit
    assert sum(p.width for p in found) <= BAR


async def test_an_empty_installation_says_what_to_do(api: httpx2.AsyncClient) -> None:
    text = (await api.get("/plain")).text
    assert "queuer apply -f tree.yaml" in text
    assert "Nothing waits." in text


async def test_the_page_shows_amounts_reasons_and_places(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    runs, hangs = workload("trains", queue=B, pods=6, gpus=8), workload("llama", queue=A, pods=3, gpus=8)
    await author.submit(runs, hangs)
    await author.cycle(admit=[runs], explain={"llama": waits()})
    await author.step("trains", State.RUNNING)
    text = (await api.get("/plain")).text
    assert "no rack has 8 free nodes" in text
    assert "TopologyPlacementFailed" in text
    assert "used 48, guaranteed 32, limit -, borrowed 16, lent -" in text
    assert ">starved<" in text
    assert ">Running<" in text
    assert "r01" in text
    assert "answers on loopback only" in text


async def test_whatever_a_job_says_of_itself_is_inert(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    attack = "<img src=x onerror=alert(1)>"
    await author.misconfigured(workload("u1", queue=A, name=attack, namespace=attack), f"annotation {attack}")
    text = (await api.get("/plain")).text
    assert attack not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 3
    assert "<script" not in text


async def test_the_page_reloads_itself_unless_paused_and_keeps_the_resource(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.cycle(explain={"u1": waits(Token.WAITING_FOR_QUOTA, "later")})
    assert '<meta http-equiv="refresh" content="5">' in (await api.get("/plain")).text
    paused = (await api.get("/plain", params={"refresh": "0", "resource": "cpu"})).text
    assert "http-equiv" not in paused
    assert '<a href="?resource=cpu&amp;refresh=0" aria-current="true"' in paused


async def test_style_and_icon_are_served_from_here(api: httpx2.AsyncClient) -> None:
    assert (await api.get("/page.css")).headers["content-type"].startswith("text/css")
    assert (await api.get("/icon.svg")).headers["content-type"] == "image/svg+xml"


async def test_who_is_not_known_is_told_how_to_log_in_and_a_tenant_sees_its_own(
    engine: AsyncEngine, database_url: str, author: Author
) -> None:
    settings = ApiSettings(database_url=database_url, authentication=Authentication.KUBERNETES)
    app = create_app(engine, settings, Table({"alice": frozenset({reads("team-a")})}))
    await author.tree()
    await author.submit(
        workload("a1", queue=A, namespace="team-a", name="mine"),
        workload("b1", queue=B, namespace="team-b", name="secret-b"),
    )
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        nobody = await client.get("/plain")
        alice = await client.get("/plain", headers={"user": "alice"})
    assert (nobody.status_code, alice.status_code) == (401, 200)
    assert "kubectl create token NAME -n NAMESPACE --audience queuer" in nobody.text
    assert "Logged in as alice." in alice.text
    assert "mine" in alice.text
    assert "secret-b" not in alice.text


class Away:
    """Nobody can be asked who sent a request."""

    async def caller(self, request: Request) -> Caller:
        raise Unavailable("the API server does not answer")

    async def allows(self, caller: Caller, right: Right) -> bool:
        raise Unavailable("the API server does not answer")


async def test_a_browser_has_its_page_while_nobody_can_be_asked_who_it_is(
    engine: AsyncEngine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells nothing of anybody; what it asks for says what is wrong."""
    tmp_path.joinpath("index.html").write_text("<title>Queuer</title>")
    monkeypatch.setattr(dashboard, "BUILT", tmp_path)
    settings = ApiSettings(database_url=database_url, authentication=Authentication.KUBERNETES)
    transport = httpx2.ASGITransport(app=create_app(engine, settings, Away()), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        page = await client.get("/jobs")
        asked = await client.get("/api/v1/workloads")
    assert (page.status_code, "Queuer" in page.text) == (200, True)
    assert problem_of(asked, status=503, code="unavailable")["detail"] == "the API server does not answer"
