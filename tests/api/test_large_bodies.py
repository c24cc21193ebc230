"""No route takes a body that is larger than the bound, or trips over a deep one; nobody needs a token to be told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from tests.api.identity import Table, local
from tests.api.problems import problem_of

BOUND, CHUNK, LARGE = 1024 * 1024, 256 * 1024, 64 * 1024 * 1024
WRITES = ("POST", "PUT", "PATCH", "DELETE")
DEEP = b'{"a":' * 100_000
JSON = {"Content-Type": "application/json", "If-Match": "*", "Idempotency-Key": "k"}


@pytest.fixture
def app(engine: AsyncEngine, database_url: str) -> FastAPI:
    """An app that knows nobody."""
    return create_app(engine, local(database_url), Table())


@pytest_asyncio.fixture
async def stranger(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a token."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def _routes(app: FastAPI) -> list[tuple[str, str]]:
    """Method and an address of every operation, and of what no route takes."""
    found = [
        (method.upper(), re.sub(r"\{[^}]+\}", "x", path))
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    ]
    return [*found, ("POST", "/login"), ("POST", "/logout"), ("GET", "/"), ("POST", "/api/v1/nothing")]


class _Counted:
    """A body without end, nearly; `sent`: bytes of it that were read."""

    def __init__(self) -> None:
        self.sent = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        while self.sent < LARGE:
            self.sent += CHUNK
            yield b" " * CHUNK


async def test_a_body_that_says_it_is_large_is_refused_unread_on_every_route(
    app: FastAPI, stranger: httpx2.AsyncClient
) -> None:
    for method, path in _routes(app):
        body = _Counted()
        headers = {**JSON, "Content-Length": str(LARGE)}
        request = stranger.build_request(method, path, content=body.chunks(), headers=headers)
        request.headers.pop("transfer-encoding", None)
        problem_of(await stranger.send(request), status=413, code="too_large")
        assert body.sent <= CHUNK, (method, path)


async def test_a_body_that_does_not_say_its_length_is_read_as_far_as_the_bound(
    app: FastAPI, stranger: httpx2.AsyncClient
) -> None:
    for method, path in _routes(app):
        body = _Counted()
        answer = await stranger.request(method, path, content=body.chunks(), headers=JSON)
        assert body.sent <= BOUND + CHUNK, (method, path)
        assert method not in WRITES or answer.status_code in (401, 404, 413), (method, path, answer.text)


async def test_a_deep_body_is_refused_on_every_route(app: FastAPI, stranger: httpx2.AsyncClient) -> None:
    for method, path in _routes(app):
        if method in WRITES:
            answer = await stranger.request(method, path, content=DEEP, headers=JSON)
            assert 400 <= answer.status_code < 500, (method, path, answer.text)
