"""An identity for tests of routes: the user is named in a header, rights are a table.

Real tokens and real rights are tested against a real API server (`tests/e2e/test_identity.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import Request
from starlette.types import ASGIApp

from queuer.api.app import create_app
from queuer.api.identity.rights import Anyone, Caller, Right, Unauthenticated, administering, reading
from queuer.api.settings import ApiSettings, Authentication

Api = httpx2.AsyncClient
"""A client of the app, or of a server."""
EVERYTHING = "everything"


def local(database_url: str, **options: Any) -> ApiSettings:
    """Settings of a server of one machine: nobody logs in."""
    return ApiSettings(database_url=database_url, authentication=Authentication.NONE, **options)


def open_to_all(engine: AsyncEngine, database_url: str, **options: Any) -> FastAPI:
    """The app where whoever asks may do everything."""
    return create_app(engine, local(database_url, **options), Anyone())


def client_of(app: ASGIApp, **options: Any) -> Api:
    """A client of an app in this process, as a program on this machine is one."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, **{"base_url": "http://127.0.0.1:8787", **options})


@dataclass(frozen=True, slots=True)
class Table:
    """Rights by user name."""

    rights: Mapping[str, frozenset[Right | str]] = field(default_factory=dict)

    async def caller(self, request: Request) -> Caller:
        """The person that the header `user` names."""
        name = request.headers.get("user", "")
        if name not in self.rights:
            raise Unauthenticated("no user is named")
        return Caller(name=name)

    async def allows(self, caller: Caller, right: Right) -> bool:
        """As the table says."""
        held = self.rights[caller.name]
        return EVERYTHING in held or right in held


USERS = Table(
    {
        "alice": frozenset({reading("team-a")}),
        "bob": frozenset({reading("team-b")}),
        "root": frozenset({EVERYTHING}),
        "eve": frozenset(),
        "lead": frozenset({administering("root.research.team-a")}),
    }
)
"""A tenant of each namespace, an administrator, nobody, and who administers one queue."""
