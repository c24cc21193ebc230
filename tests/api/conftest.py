"""An API over a fresh database, and a store that speaks as the controller does, to put rows into it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api import latest_cycle
from queuer.api.app import create_app
from queuer.api.latest_cycle import LatestCycle
from queuer.store.engine import make_engine
from tests.api.identity import USERS, Api, client_of, local, open_to_all
from tests.api.rows import Author, leading


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child that answers about the newest cycle is as important as the tests, and may take as long as they."""
    monkeypatch.setattr(latest_cycle, "NICE", 0)
    monkeypatch.setattr(latest_cycle, "LONGEST", 100.0)
    monkeypatch.setattr(LatestCycle.__init__, "__kwdefaults__", {"clock": time.monotonic, "within": 100.0})


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """The database that the API answers from."""
    found = make_engine(database_url, name="api-tests", pool_size=4)
    yield found
    await found.dispose()


@pytest_asyncio.fixture
async def api(engine: AsyncEngine, database_url: str) -> AsyncIterator[Api]:
    """A client of the app, as a program on this machine is one."""
    async with client_of(open_to_all(engine, database_url, max_body=64 * 1024)) as client:
        yield client


@pytest_asyncio.fixture
async def shared(
    request: pytest.FixtureRequest, engine: AsyncEngine, database_url: str
) -> AsyncIterator[Api]:
    """A client of the app for `USERS`, or those of the test's module; the header `user` says who asks."""
    users = getattr(request.module, "USERS", USERS)
    async with client_of(create_app(engine, local(database_url), users)) as client:
        yield client


@pytest.fixture
def leader(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The session of a controller that leads."""
    with leading(database_url) as session:
        yield session


@pytest_asyncio.fixture
async def author(engine: AsyncEngine, leader: psycopg.Connection[Any]) -> Author:
    """The controller's hand."""
    return await Author.of(engine)
