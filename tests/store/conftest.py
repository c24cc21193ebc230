"""A fresh database with an engine and an epoch in office, for each test that asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store.engine import begin, make_engine
from tests.store.support import take_office


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a fresh database of the newest schema."""
    made = make_engine(database_url, name="queuer-test")
    yield made
    await made.dispose()


@pytest.fixture
async def epoch(engine: AsyncEngine) -> int:
    """The epoch that is in office."""
    async with begin(engine) as connection:
        return await take_office(connection)
