"""Logging in with a browser: at a real provider, and with all that somebody else could send in its place."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import pytest_asyncio
from joserfc import jwt
from joserfc.jwk import RSAKey
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.identity.browsers import Browsers
from queuer.api.identity.oidc import Attempt, Provider
from queuer.api.identity.rights import Unauthenticated
from queuer.api.settings import ApiSettings, Authentication, OidcSettings
from queuer.domain.errors import InvalidInput
from queuer.store import sessions
from queuer.store.engine import begin
from queuer.store.retention import RULES
from tests.api.identity import Api, client_of
from tests.api.problems import problem_of
from tests.api.provider import agree, provider
from tests.api.test_identity import SECRET, Clock, Reviewer, asking

HERE = "http://127.0.0.1:8787"
CAROL = {"sub": "carol", "email": "carol@example.org", "groups": ["research", "system:masters"]}
KEY = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
ISSUER, CLIENT, NONCE = "https://id.example.org", "queuer", "n-1"
PLAIN = OidcSettings(issuer=ISSUER, client_id=CLIENT, redirect=f"{HERE}/login/callback")


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CAROL) as found:
        yield found


class Site:
    """The server, a browser, and the API server behind."""

    def __init__(self, browser: Api, reviewer: Reviewer) -> None:
        self.browser = browser
        self.reviewer = reviewer

    async def begin(self, page: str = "/api/v1/me") -> str:
        """Where the provider's page is."""
        found = await self.browser.get("/login/oidc", params={"next": page})
        assert found.status_code == 303, found.text
        return str(found.headers["location"])

    async def log_in(self) -> httpx2.Response:
        return await self.browser.get(agree(await self.begin(), "carol"))


@asynccontextmanager
async def site(engine: AsyncEngine, database_url: str, issuer: str, url: str = HERE) -> AsyncIterator[Site]:
    environ = {
        "QUEUER_DATABASE_URL": database_url, "QUEUER_URL": url, "QUEUER_OIDC_ISSUER": issuer,
        "QUEUER_OIDC_CLIENT_ID": CLIENT, "QUEUER_OIDC_USERNAME_PREFIX": "oidc:", "QUEUER_OIDC_GROUPS_PREFIX": "oidc:",
    }  # fmt: skip
    reviewer = Reviewer()
    with NamedTemporaryFile("w") as secret:
        secret.write("s3cr3t:+/%\n")
        secret.flush()
        settings = ApiSettings.from_env({**environ, "QUEUER_OIDC_SECRET_FILE": secret.name})
        assert settings.oidc is not None
        async with asking(reviewer, Clock()) as kubernetes:
            secure = settings.secure_cookies
            identity = Browsers(kubernetes, engine, provider=Provider(settings.oidc), secure=secure)
            async with client_of(create_app(engine, settings, identity), base_url=url) as browser:
                yield Site(browser, reviewer)


@pytest_asyncio.fixture
async def here(engine: AsyncEngine, database_url: str, issuer: str) -> AsyncIterator[Site]:
    """A server on this machine, before that provider."""
    async with site(engine, database_url, issuer) as found:
        yield found


async def test_who_logs_in_at_the_provider_is_asked_about_under_its_name_and_groups(here: Site) -> None:
    query = parse_qs(urlsplit(await here.begin()).query)
    assert query["code_challenge_method"] == ["S256"]
    back = await here.log_in()
    assert (back.status_code, back.headers["location"]) == (303, "/api/v1/me")
    here.reviewer.status = {"allowed": True}
    me = (await here.browser.get("/api/v1/me")).json()
    groups = ["oidc:research", "oidc:system:masters", "system:authenticated"]
    assert (me["name"], me["groups"]) == ("oidc:carol", groups)
    assert {(spec["user"], tuple(spec["groups"])) for spec in here.reviewer.asked} == {
        ("oidc:carol", tuple(groups))
    }


async def test_a_server_of_another_schema_begins_and_ends_no_session(here: Site, engine: AsyncEngine) -> None:
    await here.log_in()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    refused = await here.log_in()
    assert (refused.status_code, "is at schema later" in refused.text) == (503, True)
    left = await here.browser.post("/logout", headers={"Origin": HERE})
    assert left.status_code == 503
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM session")) == 1


async def test_logging_out_ends_the_session_and_time_does_too(here: Site, engine: AsyncEngine) -> None:
    await here.log_in()
    stolen = here.browser.cookies["queuer-session"]
    left = await here.browser.post("/logout", headers={"Origin": HERE})
    assert (left.status_code, left.headers["location"]) == (303, "/login")
    reused = {"Cookie": f"queuer-session={stolen}"}
    assert (await here.browser.get("/api/v1/me", headers=reused)).status_code == 401
    await here.log_in()
    async with engine.begin() as connection:
        stored = (await connection.execute(text("SELECT digest FROM session"))).scalars().all()
        assert stored == [hashlib.sha256(here.browser.cookies["queuer-session"].encode()).digest()]
        await connection.execute(text("UPDATE session SET expires = now()"))
    assert (await here.browser.get("/api/v1/me")).status_code == 401
    assert "session" in {rule.table for rule in RULES}


async def test_an_answer_of_another_login_is_refused(
    engine: AsyncEngine, database_url: str, issuer: str
) -> None:
    """An attacker who gets a victim's browser to open the attacker's answer does not log it in."""
    async with site(engine, database_url, issuer) as attacker, site(engine, database_url, issuer) as victim:
        answer = agree(await attacker.begin(), "carol")
        for begun in (False, True):
            if begun:
                await victim.begin()
            found = await victim.browser.get(answer)
            assert found.status_code == 401
            assert "not begun in this browser" in found.text
            assert "queuer-session" not in victim.browser.cookies


async def test_a_code_is_good_once_and_a_refusal_is_shown(here: Site) -> None:
    answer = agree(await here.begin(), "carol")
    kept = here.browser.cookies["queuer-login"]
    assert (await here.browser.get(answer)).status_code == 303
    again = await here.browser.get(answer, headers={"Cookie": f"queuer-login={kept}"})
    assert "provider refused" in again.text
    state = parse_qs(urlsplit(await here.begin()).query)["state"][0]
    query = {"state": state, "error": "access_denied<script>"}
    denied = await here.browser.get("/login/callback", params=query)
    assert denied.status_code == 401
    assert "access_denied&lt;script&gt;" in denied.text


async def test_a_provider_that_is_down_is_said(engine: AsyncEngine, database_url: str) -> None:
    async with site(engine, database_url, "http://127.0.0.1:1") as here:
        problem_of(await here.browser.get("/login/oidc"), "unavailable")


async def test_a_pasted_token_logs_in_for_as_long_as_the_cluster_says(here: Site) -> None:
    page = await here.browser.get("/")
    assert page.status_code == 401
    assert 'href="/login/oidc?next=%2F"' in page.text
    form = {"token": SECRET, "next": "/?resource=cpu"}
    done = await here.browser.post("/login", data=form, headers={"Origin": HERE})
    assert (done.status_code, done.headers["location"]) == (303, "/?resource=cpu")
    assert "httponly" in done.headers["set-cookie"].lower()
    here.reviewer.status = {"allowed": True}
    assert (await here.browser.get("/api/v1/me")).json()["name"] == "alice"
    await here.browser.post("/logout", headers={"Origin": HERE})
    assert (await here.browser.get("/")).status_code == 401


@pytest.mark.parametrize("token", ["wrong", "", "x" * 5000, "ü"])
async def test_a_token_that_is_not_valid_sets_no_cookie(here: Site, token: str) -> None:
    here.reviewer.status = {"authenticated": False}
    done = await here.browser.post("/login", data={"token": token}, headers={"Origin": HERE})
    assert done.status_code == 401
    assert "set-cookie" not in done.headers
    assert token not in done.text or not token


@pytest.mark.parametrize(
    "page", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "javascript:x", "/\n/evil"]
)
async def test_no_login_leads_to_another_site(here: Site, page: str) -> None:
    done = await here.browser.post("/login", data={"token": SECRET, "next": page})
    assert done.headers["location"] == "/"
    back = await here.browser.get(agree(await here.begin(page), "carol"))
    assert back.headers["location"] == "/"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": HERE}, "forbidden"),  # it is let through to the caller's rights
        ({"Sec-Fetch-Site": "same-origin"}, "forbidden"),
        ({}, "foreign_origin"),
        ({"Origin": "null"}, "foreign_origin"),
        ({"Origin": "https://evil.example"}, "foreign_origin"),
        ({"Sec-Fetch-Site": "same-site"}, "foreign_origin"),
    ],
)
async def test_a_cookie_writes_from_our_own_pages_only(
    here: Site, headers: dict[str, str], code: str
) -> None:
    await here.browser.post("/login", data={"token": SECRET})
    found = await here.browser.put("/api/v1/queue-tree?dryRun=true", json={}, headers=headers)
    problem_of(found, code)
    assert (await here.browser.get("/api/v1/meta", headers=headers)).status_code == 200


async def test_over_https_cookies_are_for_this_host_alone(
    engine: AsyncEngine, database_url: str, issuer: str
) -> None:
    async with site(engine, database_url, issuer, "https://queuer.example.org") as here:
        done = await here.browser.post("/login", data={"token": SECRET})
        cookie = done.headers.get_list("set-cookie")[-1]
        assert cookie.startswith("__Host-queuer-token=")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
        assert "Domain" not in cookie


def signed(key: RSAKey = KEY, algorithm: str = "RS256", **claims: Any) -> str:
    now = int(time.time())
    body = {"iss": ISSUER, "aud": CLIENT, "sub": "carol", "exp": now + 300, "iat": now, "nonce": NONCE}
    body |= claims
    header = {"alg": algorithm, "kid": "k1"}
    return jwt.encode(header, {k: v for k, v in body.items() if v is not None}, key)


def keys() -> dict[str, Any]:
    return {"keys": [KEY.as_dict(private=False)]}


def test_an_id_token_names_the_user_as_kube_apiserver_would() -> None:
    found = Provider(PLAIN).verify(signed(groups=["a", "system:masters", 7, ""]), keys(), nonce=NONCE)
    assert (found.name, found.groups) == ("carol", ("a", "system:authenticated"))
    assert Provider(PLAIN).verify(signed(groups="a"), keys(), nonce=NONCE).groups[0] == "a"
    assert Provider(PLAIN).verify(signed(aud=["x", CLIENT]), keys(), nonce=NONCE).name == "carol"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"nonce": "other"},
        {"nonce": None},
        {"nbf": 9_999_999_999},
        {"azp": "other"},
        {"sub": None},
        {"sub": 7},
        {"sub": "system:admin"},
    ],
)
def test_an_id_token_that_is_not_for_this_login_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        Provider(PLAIN).verify(signed(**claims), keys(), nonce=NONCE)


def test_a_signature_that_is_not_the_providers_is_refused() -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    head, body, _ = signed().split(".")
    for token in (signed(stranger), f"{head}.{body}.", "x", "", f"eyJhbGciOiJub25lIn0.{body}."):
        with pytest.raises(Unauthenticated):
            Provider(PLAIN).verify(token, keys(), nonce=NONCE)


@pytest.mark.parametrize(("verified", "good"), [(True, True), (None, True), (False, False), ("true", False)])
def test_an_email_address_must_be_verified(verified: object, good: bool) -> None:
    settings = OidcSettings(issuer=ISSUER, client_id=CLIENT, redirect="", username_claim="email")
    token = signed(email="c@example.org", email_verified=verified)
    if good:
        assert Provider(settings).verify(token, keys(), nonce=NONCE).name == "c@example.org"
    else:
        with pytest.raises(Unauthenticated):
            Provider(settings).verify(token, keys(), nonce=NONCE)


def test_the_challenge_is_that_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # appendix B
    attempt = Attempt(state="", nonce="", verifier=verifier)
    assert attempt.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert len(Attempt.new().verifier) >= 43


def test_settings_of_a_provider_are_whole_and_prefix_like_kube_apiserver() -> None:
    base = {"QUEUER_DATABASE_URL": "postgresql://x"}
    said = base | {
        "QUEUER_OIDC_ISSUER": ISSUER,
        "QUEUER_OIDC_CLIENT_ID": "c",
        "QUEUER_URL": "https://q.example/",
    }
    found = ApiSettings.from_env(said)
    assert found.ways_in == ["token", "oidc"]
    assert found.oidc is not None
    assert (found.oidc.redirect, found.oidc.username_prefix) == (
        "https://q.example/login/callback", f"{ISSUER}#",
    )  # fmt: skip
    for options, prefix in (
        ({"QUEUER_OIDC_USERNAME_PREFIX": "-"}, ""),
        ({"QUEUER_OIDC_USERNAME_CLAIM": "email"}, ""),
        ({"QUEUER_OIDC_USERNAME_PREFIX": "o:"}, "o:"),
    ):
        oidc = ApiSettings.from_env(said | options).oidc
        assert oidc is not None
        assert oidc.username_prefix == prefix
    for wrong, field in (
        (base | {"QUEUER_OIDC_CLIENT_ID": "c", "QUEUER_URL": "https://q"}, "QUEUER_OIDC_ISSUER"),
        (said | {"QUEUER_URL": ""}, "QUEUER_URL"),
        (said | {"QUEUER_URL": "ftp://x"}, "QUEUER_URL"),
        (said | {"QUEUER_OIDC_ISSUER": "http://id.example.org"}, "QUEUER_OIDC_ISSUER"),
    ):
        with pytest.raises(InvalidInput) as raised:
            ApiSettings.from_env(wrong)
        assert field in {problem.field for problem in raised.value.problems}


async def test_without_authentication_nobody_logs_in(api: Api) -> None:
    problem_of(await api.get("/login/oidc"), "not_found")
    problem_of(await api.post("/login", data={"token": "x"}), "not_found")
    assert Authentication.NONE not in (await api.get("/api/v1/meta")).json()["authentication"]


async def test_a_next_page_that_is_no_address_leads_home(here: Site) -> None:
    found = await here.browser.get("/login", params={"next": "//["})
    assert found.status_code == 200
    done = await here.browser.post("/login", data={"token": SECRET, "next": "//["})
    assert done.headers["location"] == "/"


async def test_a_form_of_too_many_fields_is_not_read(here: Site) -> None:
    form = {f"f{n}": "x" for n in range(50)} | {"token": SECRET}
    done = await here.browser.post("/login", data=form, headers={"Origin": HERE})
    assert (done.status_code, here.reviewer.asked) == (401, [])


@pytest.mark.parametrize(
    ("host", "url", "secure"),
    [
        ("127.0.0.1", "", False),
        ("::1", "", False),
        ("127.0.0.1", "https://queuer.example.org", True),
        ("0.0.0.0", "http://127.0.0.1:8787", False),
        ("0.0.0.0", "http://[::1]:8787", False),
        ("0.0.0.0", "", True),
        ("127.0.0.1", "http://queuer.example.org", True),
    ],
)
def test_cookies_are_secure_unless_the_server_itself_is_plain_http_on_loopback(
    host: str, url: str, secure: bool
) -> None:
    environ = {"QUEUER_DATABASE_URL": "postgresql://x", "QUEUER_URL": url}
    assert ApiSettings.from_env(environ, host=host).secure_cookies is secure


async def test_the_oldest_sessions_of_a_user_end_when_there_are_many(engine: AsyncEngine) -> None:
    """A loop of logins fills no table, and ends nobody else's."""
    mary, john = (sessions.Session(name=name, groups=()) for name in ("mary", "john"))
    cookies = [f"mary-{number}" for number in range(sessions.MOST + 5)]
    for cookie, whose in [("john", john), *((cookie, mary) for cookie in cookies)]:
        async with begin(engine) as connection:
            await sessions.begin(connection, cookie, whose, seconds=60)
    async with begin(engine) as connection:
        alive = [await sessions.find(connection, cookie) is not None for cookie in (*cookies, "john")]
    assert alive == [False] * 5 + [True] * (sessions.MOST + 1)
