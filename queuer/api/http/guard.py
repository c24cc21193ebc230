"""The first steps of every request: an id, the checks of Host, Origin and caller, headers that keep a browser safe.

Without authentication the danger is a web page that talks to loopback from the user's browser. The Host check
refuses a name that points at 127.0.0.1, the Origin check a cross-site write. The bounds on a body, in bytes and in
time, hold for every route, before a byte is parsed. Nobody reads a stranger's, lest many of them fill the memory. A
connection ends with the answer to a body that was not read to its end.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queuer.api.http.problems import known, problem
from queuer.domain.errors import QueuerError

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_SECONDS = 20.0
"""A body must have come so long after its request began."""
MAX_FORM = 16 * 1024
"""Bytes of a body outside the API: the form of the login page, which is read before anybody is known."""
_API = "/api/"
_TRACER, _CALLERS = trace.get_tracer("queuer"), TraceContextTextMapPropagator()
_LONGEST_PARENT = 128
"""Characters of a `traceparent`; those of today have 55."""
_UNEXPECTED = "something went wrong here, and nothing was changed by it"
log = structlog.get_logger(part="api")

PROBES = frozenset({"/livez", "/readyz", "/healthz/controller"})
_UNTRACED = PROBES | {"/metrics"}
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
KnowCaller = Callable[[Request], Awaitable[object]]


class Guard:
    """ASGI middleware. `hosts`: the accepted names (lower case, no port), `*` accepts all; `max_body`: bytes.

    `caller` raises a QueuerError where it is not known who sent a request.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], max_body: int, caller: KnowCaller, observe: Observe
    ) -> None:
        self._app = app
        self._caller = caller
        self._hosts = frozenset(hosts)
        self._max_body = max_body
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in _UNTRACED:
            await self._answer(scope, receive, send)
            return
        cause = _cause(Headers(scope=scope))
        with _TRACER.start_as_current_span(scope["method"], cause, kind=SpanKind.SERVER) as span:
            _describe(span, scope, await self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer a request, whatever happens; the status that was sent."""
        request_id = scope["request_id"] = uuid.uuid4().hex
        began, status = time.perf_counter(), 0
        body = _Body(scope, receive, most=self._most(scope))

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                if body.unread:
                    # The next bytes on this connection are part of the same request: nobody is to read them as
                    # the next.
                    headers["Connection"] = "close"
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refused = self._refusal(scope)
            response = _problem(scope, *refused) if refused else await self._unknown(scope)
            if response is None:
                await self._app(scope, body.receive, answer)
            else:
                await response(scope, receive, answer)
        except Exception as error:  # nobody behind us can answer
            log.error("request failed", request_id=request_id, path=scope["path"], exc_info=error)
            if not status:
                await _problem(scope, "internal", _UNEXPECTED)(scope, receive, answer)
        finally:
            self._observe(scope, status or 500, time.perf_counter() - began)
        return status or 500

    def _refusal(self, scope: Scope) -> tuple[str, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A kubelet's probe carries the pod's address as Host; what it may read gives nothing away.
        name = _name(host)
        if not ({"*", name} & self._hosts or scope["path"] in PROBES):
            return (
                "misdirected",
                f"this server does not answer as {name!r}, which QUEUER_ALLOWED_HOSTS does not name",
            )
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return "bad_request", "an address holds no NUL character"
        if {"content-length", "transfer-encoding"} <= set(headers):
            return "bad_request", "a body has one length: Content-Length or Transfer-Encoding"
        if int(headers.get("content-length", "0")) > self._most(scope):
            return "too_large", _too_large(self._most(scope))
        if scope["method"] in READ_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host:
            return "foreign_origin", f"a page of {origin} may not change anything here"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "foreign_origin", "a page of another site may not change anything here"
        return None

    async def _unknown(self, scope: Scope) -> JSONResponse | None:
        """The answer to a write of a caller who is not known."""
        if scope["method"] in READ_METHODS or not scope["path"].startswith(_API):
            return None
        request = Request(scope)
        try:
            await self._caller(request)
        except QueuerError as error:
            return known(request, error)
        return None

    def _most(self, scope: Scope) -> int:
        """Bytes that the body may have."""
        return self._max_body if scope["path"].startswith(_API) else min(self._max_body, MAX_FORM)


class _Body:
    """The body of one request, handed on within its bounds. `unread`: there may be more of it."""

    def __init__(self, scope: Scope, receive: Receive, *, most: int) -> None:
        headers = Headers(scope=scope)
        self.unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self._reads = scope["method"] in READ_METHODS
        self._receive, self._most, self._left = receive, most, most
        self._until = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive(self) -> Message:
        """The next part; after the end of the body, what else happens. Raises HTTPException beyond a bound."""
        try:
            async with asyncio.timeout_at(self._until if self.unread else None):
                message = await self._receive()
        except TimeoutError:
            return self._beyond(408, f"the body did not come within {BODY_SECONDS:.0f} s")
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            return self._beyond(413, _too_large(self._most))
        self.unread = self.unread and bool(message.get("more_body", False))
        return message

    def _beyond(self, status: int, detail: str) -> Message:
        if self._reads:  # nobody wants its body, and its answer may have begun
            return {"type": "http.disconnect"}
        raise HTTPException(status, detail)


def _cause(headers: Headers) -> Context:
    """The caller's span, where this process traces. No other header is read of a caller who is not known yet: the
    library logs a malformed `tracestate` at its full length.
    """
    parent = headers.get("traceparent", "")
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) or len(parent) > _LONGEST_PARENT:
        return Context()
    return _CALLERS.extract({"traceparent": parent})


def _describe(span: Span, scope: Scope, status: int) -> None:
    """Route and status of a finished request; nothing that the client wrote but its method."""
    if not span.is_recording():
        return
    if route := getattr(scope.get("route"), "path", None):
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    span.set_attributes({"http.request.method": scope["method"], "http.response.status_code": status})
    if status >= 500:
        span.set_status(StatusCode.ERROR)


def _too_large(most: int) -> str:
    return f"the body is larger than {most} bytes"


def _name(host: str) -> str:
    """The name in a `Host` header, without its port; the whole where it is no address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _place(origin: str) -> str | None:
    """Host and port of an origin; None: it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _problem(scope: Scope, code: str, detail: str) -> JSONResponse:
    return problem(code, detail, request_id=scope["request_id"], instance=scope["path"])
