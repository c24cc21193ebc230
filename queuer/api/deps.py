"""Dependencies that routes name by type: the caller, the engine, a consistent view of the tables, the
settings of their app.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.api.budget import CallerBudget
from queuer.api.http.metrics import ApiMetrics
from queuer.api.identity.rights import Asker, Identity
from queuer.api.latest_cycle import LatestCycle
from queuer.api.settings import ApiSettings
from queuer.api.simulator import Simulator
from queuer.store import reads
from queuer.store.engine import begin
from queuer.store.usage import TreeView

PREFIX = "/api/v1"
TreeReader = Callable[[], Awaitable[TreeView]]
"""Reads the queues with their amounts, as the answers about queues have them."""
_ONE_VIEW = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def app_part(name: str) -> Any:
    """A dependency: the part of the app that it keeps under this name."""

    def part(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(part)


async def asking(request: Request) -> Asker:
    """Who asks. Raises Unauthenticated."""
    identity = cast(Identity, request.app.state.identity)
    return Asker(await identity.caller(request), identity)


def _amounts(request: Request) -> TreeReader:
    return cast(TreeReader, request.app.state.tree.view)


Engine = Annotated[AsyncEngine, app_part("engine")]
Simulations = Annotated[Simulator, app_part("simulator")]
CommandBudget = Annotated[CallerBudget, app_part("command_budget")]
Latest = Annotated[LatestCycle, app_part("latest")]
Settings = Annotated[ApiSettings, app_part("settings")]
Metrics = Annotated[ApiMetrics, app_part("metrics")]
Asking = Annotated[Asker, Depends(asking)]
TreeAmounts = Annotated[TreeReader, Depends(_amounts)]


@asynccontextmanager
async def one_view(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """All queries of one answer see the same moment, so that its sums agree."""
    async with begin(engine) as connection:
        await connection.execute(_ONE_VIEW)
        yield connection


async def _snapshot(engine: Engine) -> AsyncIterator[AsyncConnection]:
    async with one_view(engine) as connection:
        yield connection


# Function scope: the transaction has ended, and its failure can still be told, before the answer is sent. No route has
# Asking beside it: a right may be asked of the cluster for seconds, and connections are few.
Snapshot = Annotated[AsyncConnection, Depends(_snapshot, scope="function")]


async def visible(engine: Engine, asker: Asking) -> frozenset[str] | None:
    """The namespaces whose jobs the caller sees; None = all. It holds no connection while rights are asked for."""
    if await asker.reads_everything():
        return None
    async with one_view(engine) as connection:
        known = await reads.namespaces(connection)
    return await asker.readable(known)


# A route names it before Snapshot: what it asks for is found in this order.
Visible = Annotated[frozenset[str] | None, Depends(visible)]
