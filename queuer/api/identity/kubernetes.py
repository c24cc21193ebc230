"""Identity of a cluster: its API server says whose a bearer token is (TokenReview) and what that user may
(SubjectAccessReview). Where it does not answer, nothing is allowed and the request fails with 503.

A token is kept as its hash only, and is part of no message.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog
from starlette.requests import Request

from queuer.api.identity.answers import MOST, Answers
from queuer.api.identity.rights import GROUP, Caller, Right, Unauthenticated
from queuer.domain.errors import QueuerError, Unavailable
from queuer.kube.client import ApiError, Client

log = structlog.get_logger(part="api")

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NO_RIGHT_SECONDS = 30.0
"""As long as kube-apiserver keeps the no of an authorizer that it asks by webhook."""
LASTING_NO_SECONDS = 300.0
"""That a right is still missing is asked ever more rarely: most callers lack those in most namespaces."""
STALE_SECONDS = 30.0
NO_TOKENS = 1_000
"""Tokens kept that are nobody's. Anybody may invent them."""
AT_ONCE, WAIT_SECONDS = 16, 5.0
"""TokenReviews under way at most, and how long one waits for its turn."""
RIGHTS_AT_ONCE, RIGHTS_A_PARTY, RIGHTS_WAIT_SECONDS = 32, 8, 30.0
"""SubjectAccessReviews likewise, and those of one `Caller.party`: its first list asks one for each namespace."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}", re.ASCII)  # RFC 6750
S = TypeVar("S", bound=msgspec.Struct)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class Kubernetes:
    """Identity by one API server. `audiences`: a token must be for one of them."""

    def __init__(
        self, client: Client, *, audiences: Sequence[str], clock: Callable[[], float] = time.monotonic, most: int = MOST
    ) -> None:  # fmt: skip
        self._client = client
        self._audiences = tuple(audiences)
        self._callers: Answers[bytes, Caller | None] = Answers(
            clock, most=most, most_bad=min(most, NO_TOKENS)
        )
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._rights_turns = asyncio.Semaphore(RIGHTS_AT_ONCE)
        self._party_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # A list asks for each namespace: a tenant is not to wait for a thousand times the same no.
        self._rights: Answers[tuple[Caller, Right], bool] = Answers(
            clock,
            most=most,
            most_bad=most,
            bad=NO_RIGHT_SECONDS,
            worst=LASTING_NO_SECONDS,
            stale=STALE_SECONDS,
        )

    async def caller(self, request: Request) -> Caller:
        """The owner of the request's bearer token. Raises Unauthenticated, Unavailable."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("no token was sent", hint=self._how())
        found = await self.whose(token.strip())
        if found is None:
            raise Unauthenticated("the token is not valid here, or no longer", hint=self._how())
        return found

    async def whose(self, token: str) -> Caller | None:
        """The owner of a token; None = nobody's, or not meant for this server. Raises Unavailable."""
        if _TOKEN.fullmatch(token) is None:
            return None
        return await self._callers.get(hashlib.sha256(token.encode()).digest(), lambda: self._review(token))

    async def allows(self, caller: Caller, right: Right) -> bool:
        """Whether the cluster grants it. Raises Unavailable."""
        return await self._rights.get((caller, right), lambda: self._access(caller, right))

    async def _review(self, token: str) -> Caller | None:
        spec = {"token": token, "audiences": self._audiences}
        async with _turn(self._turns, WAIT_SECONDS):
            status = (await self._ask(TOKEN_REVIEWS, "TokenReview", spec, _TokenReview)).status
        # An API server that knows no audiences names none: its word is not enough.
        if not status.authenticated or not set(status.audiences) & set(self._audiences):
            return None
        user = status.user
        extra = tuple(sorted(user.extra.items()))
        return Caller(name=user.username, groups=user.groups, uid=user.uid, extra=extra)

    async def _access(self, caller: Caller, right: Right) -> bool:
        attributes = {"group": GROUP, "resource": right.resource, "verb": right.verb}
        attributes |= {"namespace": right.namespace} if right.namespace else {}
        attributes |= {"name": right.name} if right.name else {}
        spec = {
            "user": caller.name,
            "uid": caller.uid,
            "groups": caller.groups,
            "extra": dict(caller.extra),
            "resourceAttributes": attributes,
        }
        own = self._party_turns.setdefault(caller.party, asyncio.Semaphore(RIGHTS_A_PARTY))
        async with _turn(own, RIGHTS_WAIT_SECONDS), _turn(self._rights_turns, RIGHTS_WAIT_SECONDS):
            status = (await self._ask(ACCESS_REVIEWS, "SubjectAccessReview", spec, _AccessReview)).status
        return status.allowed and not status.denied

    async def _ask(self, path: str, kind: str, spec: Mapping[str, Any], answer: type[S]) -> S:
        group = path.removeprefix("/apis/").rpartition("/")[0]
        try:
            said = await self._client.create(path, {"apiVersion": group, "kind": kind, "spec": spec})
            return msgspec.json.decode(said, type=answer)
        except (QueuerError, msgspec.DecodeError) as error:
            log.warning("the API server was asked in vain", review=kind, error=_words(error))
            raise Unavailable(
                "the Kubernetes API server cannot be asked who you are and what you may",
                hint="try again; the server's log has the reason",
            ) from None

    def _how(self) -> str:
        return f"send a Kubernetes token for audience {self._audiences[0]}: docs/access.md"


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore, seconds: float) -> AsyncIterator[None]:
    """One of those that may be under way. Raises Unavailable where none is free for so long."""
    try:
        async with asyncio.timeout(seconds):
            await turns.acquire()
    except TimeoutError:
        raise Unavailable("too many tokens and rights are asked about just now", hint="try again") from None
    try:
        yield
    finally:
        turns.release()


def _words(error: Exception) -> str:
    """The part of a failure that may be logged. An answer's body may not: it could repeat the question."""
    if isinstance(error, ApiError):
        return f"HTTP {error.status}"
    return error.message if isinstance(error, Unavailable) else type(error).__name__
