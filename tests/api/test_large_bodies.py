"""No route takes a body from a caller that is larger than the bound, slower, or trips over a deep one.

Strangers are in `tests/attacks/test_callers.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.http import guard
from queuer.api.http.documents import MAX_YAML
from tests.api.cli import run
from tests.api.identity import Api, client_of, open_to_all
from tests.api.problems import problem_of
from tests.api.rows import TREE, Author

BOUND, CHUNK, LARGE = 1024 * 1024, 256 * 1024, 64 * 1024 * 1024
WRITES = ("POST", "PUT", "PATCH", "DELETE")
DEEP = b'{"a":' * 100_000
JSON = {"Content-Type": "application/json", "If-Match": "*", "Idempotency-Key": "k"}


@pytest.fixture
def app(engine: AsyncEngine, database_url: str) -> FastAPI:
    """An app that takes everybody for a caller who may do everything."""
    return open_to_all(engine, database_url)


@pytest_asyncio.fixture
async def caller(app: FastAPI) -> AsyncIterator[Api]:
    """A client."""
    async with client_of(app) as client:
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
    app: FastAPI, caller: Api
) -> None:
    for method, path in _routes(app):
        body = _Counted()
        headers = {**JSON, "Content-Length": str(LARGE)}
        request = caller.build_request(method, path, content=body.chunks(), headers=headers)
        request.headers.pop("transfer-encoding", None)
        problem_of(await caller.send(request), "too_large")
        assert body.sent <= CHUNK, (method, path)


async def test_a_body_that_does_not_say_its_length_is_read_as_far_as_the_bound(
    app: FastAPI, caller: Api
) -> None:
    for method, path in _routes(app):
        if path == "/api/v1/stream":  # it ends as if its reader had left, which this client takes for a fault
            continue
        body = _Counted()
        answer = await caller.request(method, path, content=body.chunks(), headers=JSON)
        assert body.sent <= BOUND + CHUNK, (method, path)
        assert method not in WRITES or answer.status_code in (404, 413), (method, path, answer.text)


async def test_a_deep_body_is_refused_on_every_route(app: FastAPI, caller: Api) -> None:
    for method, path in _routes(app):
        if method in WRITES:
            answer = await caller.request(method, path, content=DEEP, headers=JSON)
            assert 400 <= answer.status_code < 500, (method, path, answer.text)


async def test_a_body_that_does_not_come_is_waited_for_so_long(
    app: FastAPI, caller: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    for path in ("/api/v1/workloads:hold", "/api/v1/changesets"):
        answer = await caller.post(path, content=half(), headers=JSON)
        assert "within 0 s" in problem_of(answer, "too_slow")["detail"]
        assert answer.headers["connection"] == "close"


async def test_a_document_in_json_may_be_as_large_as_a_body(
    caller: Api, author: Author, tmp_path: Path
) -> None:
    """The command line sends JSON as that, whatever its file is called: YAML is read to 256 KiB alone."""
    await author.tree()
    file = tmp_path / "tree"
    file.write_text(json.dumps(TREE) + " " * MAX_YAML)
    done = await run(caller, "diff", "-f", str(file))
    assert (done.code, done.err) == (0, "")
