"""Idempotency-Key: a POST that is sent twice, because its answer was lost, acts once.

A router takes part with `APIRouter(route_class=Idempotent)`. A key belongs to its caller and is kept for 24 h with the
answer; only successes are kept, so what was refused may be mended and sent again under the same key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import Message

from queuer.api.deps import asking
from queuer.api.http.documents import bounded
from queuer.api.http.problems import KeyRequired
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput
from queuer.store import idempotency as store
from queuer.store.engine import begin

HEADER = "Idempotency-Key"
REQUIRING = ":apply"
"""How addresses end that are not answered without a key: what they do is for people to see once."""
REPLAYED = "Idempotent-Replayed"
_FORM = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("content-type", "etag", "location")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def _declared(
    idempotency_key: Annotated[
        str | None,
        Header(max_length=255, description="Chosen by the client; the same key acts once within 24 h."),
    ] = None,
) -> None:
    """The header as the schema shows it."""


def _required(
    idempotency_key: Annotated[
        str, Header(max_length=255, description="Chosen by the client; the same key acts once within 24 h.")
    ],
) -> None:
    """The same where nothing is done without it."""


class Idempotent(APIRoute):
    """A route whose POST heeds Idempotency-Key."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **rest: Any) -> None:
        self._heeds = "POST" in (rest.get("methods") or ())
        self._requires = path.endswith(REQUIRING)
        if self._heeds:
            declared = Depends(_required if self._requires else _declared)
            rest["dependencies"] = [*(rest.get("dependencies") or ()), declared]
        super().__init__(path, endpoint, **rest)

    def get_route_handler(self) -> Handler:
        """The handler, asked at most once per key."""
        handler = super().get_route_handler()
        return _once(handler, requires=self._requires) if self._heeds else handler


def _once(handler: Handler, *, requires: bool) -> Handler:
    async def handle(request: Request) -> Response:
        name = request.headers.get(HEADER)
        if name is None:
            if requires:
                await asking(request)  # who may not ask at all is told that first
                raise KeyRequired
            return await handler(request)
        body = await bounded(request)
        key = store.Key(
            caller=(await asking(request)).caller.name, key=_sound(name), fingerprint=_digest(request, body)
        )
        engine = cast(AsyncEngine, request.app.state.engine)
        async with begin(engine) as connection:
            taken = await store.claim(connection, key)
        if taken is not None:
            return _repeated(taken, key)
        try:
            response = await handler(Request(request.scope, _replay(body)))
        except Exception:
            async with begin(engine) as connection:
                await store.free(connection, key)
            raise
        async with begin(engine) as connection:
            await (store.keep(connection, key, _answer(response)) if response.status_code < 300
                   else store.free(connection, key))  # fmt: skip
        return response

    return handle


def _sound(name: str) -> str:
    if _FORM.fullmatch(name):
        return name
    hint = "1 to 255 visible ASCII characters, for example a UUID"
    raise InvalidInput(FieldProblem(field=HEADER, message="is not a key", hint=hint))


def _digest(request: Request, body: bytes) -> str:
    parts = (request.method, request.url.path, request.url.query, request.headers.get("content-type", ""))
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + body).hexdigest()


def _replay(body: bytes) -> Callable[[], Coroutine[Any, Any, Message]]:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _answer(response: Response) -> store.Answer:
    headers = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
    return store.Answer(status=response.status_code, headers=headers, body=bytes(response.body))


def _repeated(taken: store.Taken, key: store.Key) -> Response:
    if taken.fingerprint != key.fingerprint:
        message = "was sent before with another request"
        raise InvalidInput(FieldProblem(field=HEADER, message=message, hint="take a new key"))
    if taken.answer is None:
        raise Conflict("the request with this Idempotency-Key still runs", hint="ask again in a moment")
    headers = {**taken.answer.headers, REPLAYED: "true"}
    return Response(taken.answer.body, taken.answer.status, headers=headers)
