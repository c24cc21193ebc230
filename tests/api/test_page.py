"""Pages for browsers: the dashboard's document, or one sentence without a build; style, icon, and the way to log in."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.identity.rights import Caller, Identity, Right
from queuer.api.pages import dashboard
from queuer.api.settings import ApiSettings, Authentication
from queuer.domain.errors import Unavailable
from tests.api.identity import Api, Table, client_of
from tests.api.problems import problem_of


def server(engine: AsyncEngine, database_url: str, identity: Identity) -> Api:
    settings = ApiSettings(database_url=database_url, authentication=Authentication.KUBERNETES)
    return client_of(create_app(engine, settings, identity))


@pytest.mark.parametrize("path", ["/", "/jobs", "/queues/root.research"])
async def test_without_a_build_every_screen_is_one_sentence(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(dashboard, "BUILT", tmp_path)
    page = await api.get(path)
    assert page.status_code == 404
    assert page.text == (
        "The dashboard is not built on this server: `make web` builds it; `queuer status` works without it.\n"
    )


async def test_style_and_icon_are_served_from_here(api: Api) -> None:
    assert (await api.get("/login.css")).headers["content-type"].startswith("text/css")
    assert (await api.get("/icon.svg")).headers["content-type"] == "image/svg+xml"


async def test_who_is_not_known_is_told_how_to_log_in(
    engine: AsyncEngine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("index.html").write_text("<title>Queuer</title>")
    monkeypatch.setattr(dashboard, "BUILT", tmp_path)
    async with server(engine, database_url, Table({"alice": frozenset()})) as client:
        nobody = await client.get("/jobs", params={"name": '"><script>'})
        alice = await client.get("/jobs", headers={"user": "alice"})
    assert (nobody.status_code, alice.status_code) == (401, 200)
    assert "kubectl create token NAME -n NAMESPACE --audience queuer" in nobody.text
    assert 'value="/jobs?name=%22%3E%3Cscript%3E"' in nobody.text
    assert "<script" not in nobody.text


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
    async with server(engine, database_url, Away()) as client:
        page = await client.get("/jobs")
        asked = await client.get("/api/v1/workloads")
    assert (page.status_code, "Queuer" in page.text) == (200, True)
    assert problem_of(asked, "unavailable")["detail"] == "the API server does not answer"
