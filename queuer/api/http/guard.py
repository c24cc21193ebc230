"""The first steps of every request: an id, the check of Host and Origin, headers that keep a browser safe.

Without authentication the danger is a web page that talks to loopback from the user's browser. The Host check
refuses a name that points at 127.0.0.1, the Origin check a cross-site write. The bound on a body holds for every route,
before anybody is asked for a token or a byte is parsed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queuer.api.http.problems import problem

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_UNEXPECTED = "something went wrong here, and nothing was changed by it"
log = structlog.get_logger(part="api")

PROBES = frozenset({"/livez", "/readyz", "/healthz/controller"})
_PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _PAGE_POLICY,
    "Referrer-Policy": "same-origin",  # `no-referrer` would hide the Origin of our own forms too
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Observe = Callable[[Scope, int, float], None]
"""Told of every finished request: its scope, status and seconds."""


class Guard:
    """ASGI middleware; `hosts` are the accepted names (lower case, no port), `*` accepts all; `max_body`: bytes."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], max_body: int, observe: Observe) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._max_body = max_body
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["request_id"] = uuid.uuid4().hex
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refused = self._refusal(scope)
            if refused is None:
                await self._app(scope, self._bounded(receive), answer)
            else:
                response = _problem(scope, *refused)
                # The next bytes on this connection may be part of the same request: nobody is to read them as
                # the next.
                response.headers["Connection"] = "close"
                await response(scope, receive, answer)
        except Exception as error:  # nobody behind us can answer
            log.error("request failed", request_id=request_id, path=scope["path"], exc_info=error)
            if not status:
                await _problem(scope, "internal", _UNEXPECTED)(scope, receive, answer)
        finally:
            self._observe(scope, status or 500, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[str, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A kubelet's probe carries the pod's address as Host; what it may read gives nothing away.
        if not self._known(f"//{host}") and scope["path"] not in PROBES:
            return "misdirected", f"this server does not answer as {host!r}"
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return "bad_request", "an address holds no NUL character"
        if {"content-length", "transfer-encoding"} <= set(headers):
            return "bad_request", "a body has one length: Content-Length or Transfer-Encoding"
        if int(headers.get("content-length", "0")) > self._max_body:
            return "too_large", self._too_large
        if scope["method"] in READ_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host:
            return "foreign_origin", f"a page of {origin} may not change anything here"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "foreign_origin", "a page of another site may not change anything here"
        return None

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self._max_body} bytes"

    def _bounded(self, receive: Receive) -> Receive:
        """`receive` for a body that does not say its length: nobody is given more than the bound."""
        left = self._max_body

        async def within() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._too_large, headers={"Connection": "close"})
            return message

        return within

    def _known(self, url: str) -> bool:
        if "*" in self._hosts:
            return True
        try:
            return (urlsplit(url).hostname or "") in self._hosts
        except ValueError:
            return False


def _place(origin: str) -> str | None:
    """Host and port of an origin; None: it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _problem(scope: Scope, code: str, detail: str) -> JSONResponse:
    return problem(code, detail, request_id=scope["request_id"], instance=scope["path"])
