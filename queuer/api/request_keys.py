"""Idempotency-Key: a POST that is sent twice, because its answer was lost, acts once.

The draft or the commands of a request keep it as `request`, in the form `key:body`. These are digests: of the caller
and the key, and of the address and the body. The same request, sent again, is answered with the existing draft or
commands. Another request under the key is refused. A refused request left nothing, so it may be mended and sent again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Header, Request
from sqlalchemy.exc import IntegrityError

from queuer.api.deps import Asking
from queuer.api.http.documents import RawBody
from queuer.domain.errors import Conflict, InvalidInput

HEADER = "Idempotency-Key"
_KEY = Header(max_length=255, description="Chosen by the client; the same key acts once within 24 h.")
_FORM = re.compile(r"[\x21-\x7e]{1,255}")


def _digest(*parts: bytes | str) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else part.encode() + b"\n")
    return found.hexdigest()


async def _required(
    request: Request, asker: Asking, body: RawBody, idempotency_key: Annotated[str, _KEY]
) -> str:
    if not _FORM.fullmatch(idempotency_key):
        hint = "1 to 255 visible ASCII characters, for example a UUID"
        raise InvalidInput.at(HEADER, "is not a key", hint)
    url = request.url
    address = (request.method, url.path, url.query, request.headers.get("content-type", ""))
    return f"{_digest(asker.caller.name, idempotency_key)}:{_digest(*address, body)}"


async def _optional(
    request: Request, asker: Asking, body: RawBody, idempotency_key: Annotated[str | None, _KEY] = None
) -> str | None:
    return None if idempotency_key is None else await _required(request, asker, body, idempotency_key)


RequestKey = Annotated[str | None, Depends(_optional)]
"""The request as drafts and commands keep it; None = it has no key."""
RequiredKey = Annotated[str, Depends(_required)]
"""The same where nothing is done without a key: what such a route does is for people to see once."""


def check_same(kept: str | None, asked: str) -> None:
    """Raise InvalidInput where a key was used for another request."""
    if kept != asked:
        message = "was sent before with another request"
        raise InvalidInput.at(HEADER, message, "take a new key")


@contextmanager
def once() -> Iterator[None]:
    """Raise Conflict where the same key was used by another request at this very moment."""
    try:
        yield
    except IntegrityError as error:
        if "_request" not in str(error.orig):
            raise
        message = "a request with this Idempotency-Key was carried out this moment"
        raise Conflict(message, hint="send it again to be told what it made") from error
