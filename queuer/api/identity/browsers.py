"""Identity of browsers: a cookie holds a token that was pasted, or names a session that began at an OIDC provider.

A pasted token is looked at anew at each request, so that it ends when the cluster says so. Programs send no cookie.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import Request
from starlette.responses import Response

from queuer.api.http.guard import READ_METHODS
from queuer.api.identity.kubernetes import Kubernetes
from queuer.api.identity.oidc import Provider
from queuer.api.identity.rights import Caller, Right
from queuer.domain.errors import QueuerError
from queuer.store import sessions
from queuer.store.engine import begin

TOKEN, SESSION, LOGIN = "queuer-token", "queuer-session", "queuer-login"
LONGEST = 3800
"""Bytes of a cookie that browsers keep."""


class UnknownOrigin(QueuerError):
    """A write with a cookie, of which it is not known which page sent it."""

    code = "foreign_origin"


class Browsers:
    """Identity by header or cookie. `secure`: cookies go over https only, and to this host alone."""

    def __init__(
        self, kubernetes: Kubernetes, engine: AsyncEngine, *, provider: Provider | None = None, secure: bool
    ) -> None:
        self.kubernetes = kubernetes
        self.provider = provider
        self._engine = engine
        self._secure = secure

    async def caller(self, request: Request) -> Caller:
        """Raises Unauthenticated, Unavailable; UnknownOrigin for a write that another page may have sent."""
        if "authorization" not in request.headers:
            found = await self._by_cookie(request)
            if found is not None:
                _check_origin(request)
                return found
        return await self.kubernetes.caller(request)

    async def allows(self, caller: Caller, right: Right) -> bool:
        """As the cluster says."""
        return await self.kubernetes.allows(caller, right)

    async def _by_cookie(self, request: Request) -> Caller | None:
        if token := self.cookie(request, TOKEN):
            return await self.kubernetes.whose(token)
        if cookie := self.cookie(request, SESSION):
            async with begin(self._engine) as connection:
                found = await sessions.find(connection, cookie)
            return None if found is None else Caller(name=found.name, groups=found.groups)
        return None

    def cookie(self, request: Request, name: str) -> str:
        """A cookie's value, "" = none."""
        return request.cookies.get(self._named(name), "")

    def give(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        """Set a cookie that scripts do not see and that other sites' writes do not carry; None = until the browser is
        closed.
        """
        response.set_cookie(
            self._named(name), value, max_age=seconds, path="/", httponly=True, samesite="lax",
            secure=self._secure,
        )  # fmt: skip

    def take(self, response: Response, *names: str) -> None:
        """Delete cookies."""
        for name in names:
            response.delete_cookie(
                self._named(name), path="/", httponly=True, samesite="lax", secure=self._secure
            )

    def _named(self, name: str) -> str:
        """With the prefix no other host of the domain can set it."""
        return f"__Host-{name}" if self._secure else name


def _check_origin(request: Request) -> None:
    """The guard refuses foreign origins; with a cookie one must be said. All browsers do."""
    said = {"origin", "sec-fetch-site"} & set(request.headers)
    if request.method not in READ_METHODS and not said:
        raise UnknownOrigin("a write with a cookie must say from which page it comes", hint="send a token")
