"""No identity: whoever reaches the server is one user who may do everything. For loopback only (`ApiSettings`)."""

from __future__ import annotations

from starlette.requests import Request

from queuer.api.identity.rights import Caller, Right

ANYONE = Caller(name="unauthenticated")


class Anyone:
    """The identity of an open server."""

    async def caller(self, _request: Request) -> Caller:
        """Always the same."""
        return ANYONE

    async def allows(self, _caller: Caller, _right: Right) -> bool:
        """Everything."""
        return True
