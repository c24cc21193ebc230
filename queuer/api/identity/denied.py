"""Refusals go into the audit: one row a caller, right and minute, and no more than some a caller and minute.

So a flood of refused requests, or of names that are tried, fills no table.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.http.problems import known
from queuer.api.identity.rights import Forbidden, source
from queuer.store import audit
from queuer.store.engine import DatabaseUnavailable
from queuer.store.migrate import SchemaMismatchError, writing

log = structlog.get_logger(part="api")
A_CALLER = 20
"""Rows a caller and minute, at most."""
LONGEST = 300
"""Characters of what a client wrote that are kept."""


class Denials:
    """The records of the present minute. `clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minute = 0
        self._told: dict[str, set[str]] = {}

    def news(self, caller: str, right: str) -> bool:
        """Whether this is to be recorded; asked once for each refusal."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute = minute
            self._told.clear()
        told = self._told.setdefault(caller, set())
        if right in told or len(told) >= A_CALLER:
            return False
        told.add(right)
        return True


def install(app: FastAPI, told: Denials | None = None) -> None:
    """Give `app` the handler that records refusals and answers 403."""
    app.state.denials = told or Denials()

    @app.exception_handler(Forbidden)
    async def denied(request: Request, error: Forbidden) -> JSONResponse:
        await record(request, error)
        return known(request, error)


async def record(request: Request, error: Forbidden) -> None:
    """Put a refusal into the audit, if it is news. The handler does it; so does who answers otherwise than by 403."""
    if request.app.state.denials.news(error.caller.party, str(error.right)):
        await _record(request.app.state.engine, request, error)


async def _record(engine: AsyncEngine, request: Request, error: Forbidden) -> None:
    """A refusal stands whether or not it can be recorded."""
    actor, right = error.caller.name, str(error.right)
    detail = {
        "right": right[:LONGEST],
        "method": request.method,
        "path": request.url.path[:LONGEST],
        "requestId": request.scope.get("request_id", ""),
    }
    try:
        async with writing(engine) as connection:
            await audit.deny(connection, actor=actor, source=source(request), detail=detail)
    except (DatabaseUnavailable, SchemaMismatchError, SQLAlchemyError) as failure:
        log.error("a refusal is not in the audit", actor=actor, right=right, exc_info=failure)
