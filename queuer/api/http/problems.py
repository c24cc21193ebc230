"""Every failure as `application/problem+json` (RFC 9457), with a stable code and, per field, what to mend.

The `type` of a problem is a path on this server that explains it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import ProgrammingError
from starlette.exceptions import HTTPException

from queuer.api.http.pointers import pointer
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound, QueuerError, Unavailable
from queuer.store.engine import DatabaseUnavailable, begin
from queuer.store.migrate import SchemaMismatchError, check_in

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2
QUIET = 60.0
"""Seconds without a failure of the database after which the next one is a line in the log again."""
_CONFIGURED = re.compile(r"/api/v1/(queues|flavors|topology-levels)(/|$)")
_ONE_WAY = (
    "queues, flavors and levels change as one document: PUT /api/v1/queue-tree, or POST /api/v1/changesets"
)
"""What who writes to one of them is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """A kind of problem: HTTP status, title, and what the caller should do about it."""

    status: int
    title: str
    advice: str


KINDS: Mapping[str, FailureKind] = {
    code: FailureKind(status=status, title=title, advice=advice)
    for code, status, title, advice in (
        ("bad_request", 400, "Bad request", "Mend the request as `detail` says."),
        ("idempotency_key_required", 400, "Idempotency-Key required",
         "Send a header `Idempotency-Key` of your own choice, a UUID for one: sent again, it acts once."),
        ("unauthenticated", 401, "Not logged in",
         "Send `Authorization: Bearer TOKEN`: a Kubernetes token for an audience of this server."),
        ("forbidden", 403, "Forbidden", "`detail` names the right that is missing; an admin can grant it."),
        ("foreign_origin", 403, "Cross-site write refused",
         "Writes are accepted from this server's own pages and from programs."),
        ("not_found", 404, "Not found", "Check the name; `detail` holds the nearest existing ones."),
        ("method_not_allowed", 405, "Method not allowed", "The `Allow` header lists the methods."),
        ("too_slow", 408, "Request body too slow", "Send the whole body at once, within 20 s."),
        ("conflict", 409, "Conflict",
         "Another writer owns the queue, it has admitted work, or the plan was applied, discarded or is too old."),
        ("stale_revision", 412, "Stale revision", "Read the tree again, plan again, and send its ETag as If-Match."),
        ("too_large", 413, "Request body too large",
         "A body has 1 MiB at most: split the document by subtree (`root:`)."),
        ("unsupported_media_type", 415, "Unsupported media type", "Send application/json or application/yaml."),
        ("misdirected", 421, "Unknown host",
         "Use the address the server prints, or name the host in QUEUER_ALLOWED_HOSTS."),
        ("invalid_input", 422, "Invalid input", "Each entry of `errors` names a field and its fix."),
        ("revision_required", 428, "If-Match required",
         "Send the ETag of the tree that you planned against as If-Match."),
        ("too_many", 429, "Too many requests",
         "More simulations, or streams, than a caller may have: ask again after `Retry-After` seconds."),
        ("internal", 500, "Internal error", "Report it with `requestId`; the server's log has the rest."),
        ("unavailable", 503, "Unavailable", "Try again after `Retry-After` seconds."),
        (DatabaseUnavailable.code, 503, "No database", "Whoever runs Queuer looks at PostgreSQL; then try again."),
    )
}  # fmt: skip
_KEY = ("header", "idempotency-key")
_BY_STATUS = {KINDS[code].status: code for code in reversed([*KINDS])}
"""The first kind of each status."""


class StaleRevision(Conflict):
    """The tree moved since the caller read it. `problems`: the fields that moved, and by whom."""

    code = "stale_revision"

    def __init__(self, message: str, *problems: FieldProblem, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class OwnedElsewhere(Conflict):
    """Some of the objects to change have another writer."""

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class RevisionRequired(InvalidInput):
    """A write without If-Match."""

    code = "revision_required"


class KeyRequired(InvalidInput):
    """A POST that must not act twice, without Idempotency-Key."""

    code = "idempotency_key_required"


class TooMany(QueuerError):
    """The caller asks too often, or has open as much as one may have."""

    code = "too_many"


class UnsupportedMediaType(QueuerError):
    """A body that is neither JSON nor YAML."""

    code = "unsupported_media_type"


def problem(
    code: str,
    detail: str,
    *,
    request_id: str,
    instance: str,
    status: int | None = None,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The response for a problem of a kind in `KINDS`; `status` overrides the kind's own."""
    kind = KINDS[code]
    body: dict[str, Any] = {
        "type": f"/problems/{code}",
        "title": kind.title,
        "status": status or kind.status,
        "detail": detail,
        "code": code,
        "instance": instance,
        "requestId": request_id,
    }
    if errors:
        body["errors"] = [
            {"field": e.field, "message": e.message, "hint": e.hint}
            | ({"pointer": e.pointer} if e.pointer else {})
            for e in errors
        ]
    extra = {"Retry-After": str(RETRY_SECONDS)} if kind.status in (429, 503) else {}
    return JSONResponse(body, body["status"], media_type=MEDIA_TYPE, headers={**extra, **(headers or {})})


def _answer(
    request: Request, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **rest: Any
) -> JSONResponse:
    """The problem with the headers that every answer has, as far as the request has come to them."""
    common = getattr(request.state, "headers", {})
    return problem(
        code, detail, request_id=request.scope.get("request_id", ""), instance=request.url.path,
        headers={**common, **(headers or {})}, **rest,
    )  # fmt: skip


def code_of(error: QueuerError) -> str:
    """The kind under which an error is reported: its own code, else that of its nearest known base."""
    if error.code in KINDS:
        return error.code
    bases = (
        (InvalidInput, "invalid_input"),
        (NotFound, "not_found"),
        (Conflict, "conflict"),
        (Unavailable, "unavailable"),
        (SchemaMismatchError, "unavailable"),
    )
    return next((code for base, code in bases if isinstance(error, base)), "internal")


RESPONSES: dict[int | str, dict[str, Any]] = {422: {"description": "A problem (RFC 9457)."}}
"""Declared on every route, else the framework declares its own 422; the document says the rest (`api/document.py`)."""


def known(request: Request, error: QueuerError) -> JSONResponse:
    """The answer to a failure that we know."""
    code = code_of(error)
    headers = {"WWW-Authenticate": "Bearer"} if KINDS[code].status == 401 else {}
    return _answer(request, code, str(error), errors=error.problems, headers=headers)


class DatabaseLog:
    """Says once that the database serves no request, however many it fails."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._last = now, -math.inf

    def look(self, error: QueuerError) -> None:
        """Log the first failure of an outage."""
        if isinstance(error, DatabaseUnavailable | SchemaMismatchError):
            before, self._last = self._last, self._now()
            if self._last - before > QUIET:
                structlog.get_logger(part="api").error("the database serves no request", said=str(error))


def install(app: FastAPI) -> None:
    """Give `app` handlers that turn every failure into a problem."""
    log = DatabaseLog()

    @app.exception_handler(QueuerError)
    async def anticipated(request: Request, error: QueuerError) -> JSONResponse:
        log.look(error)
        return known(request, error)

    @app.exception_handler(ProgrammingError)
    async def unanswered(request: Request, error: ProgrammingError) -> JSONResponse:
        """A statement that fails on another schema is told as that, and not as a fault of ours."""
        try:
            async with begin(request.app.state.engine) as connection:
                await check_in(connection)
        except QueuerError as cause:
            return await anticipated(request, cause)
        raise error

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        if any(row["loc"] == _KEY and row["type"] == "missing" for row in error.errors()):
            said = "this is sent with a key, so that it acts once though it is sent twice"
            hint = "send a header Idempotency-Key of your own choice, a UUID for one"
            return known(request, KeyRequired.at("Idempotency-Key", said, hint))
        errors = [_field_problem(row) for row in error.errors()]
        return _answer(request, "invalid_input", "; ".join(map(str, errors)), errors=errors)

    @app.exception_handler(HTTPException)
    async def answered(request: Request, error: HTTPException) -> JSONResponse:
        return refused(request, error)


def refused(request: Request, error: HTTPException) -> JSONResponse:
    """The answer to what no route takes, or not so."""
    code = _BY_STATUS.get(error.status_code, "bad_request")
    detail = f"there is no {request.url.path}" if error.status_code == 404 else str(error.detail)
    if error.status_code in (404, 405) and _CONFIGURED.match(request.url.path):
        detail = f"{detail}: {_ONE_WAY}"
    if error.status_code in (404, 405):
        detail = _unknown_command(request) or detail
    headers = {**(error.headers or {}), **_allow(request.app, request, error.status_code)}
    return _answer(request, code, detail, status=error.status_code, headers=headers)


def _unknown_command(request: Request) -> str:
    """That there is no such command on an object, with those that there are; "" where no command was meant."""
    address, colon, verb = request.url.path.rpartition(":")
    rows = (template.rpartition(":") for template in request.app.openapi()["paths"])
    known = sorted({command for of, there, command in rows if there and _fits(of, address)})
    if not colon or "/" in verb or not known or verb in known:
        return ""
    return f"there is no command :{verb} here; known: {', '.join(f':{each}' for each in known)}"


def _fits(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(template)), path) is not None


def _allow(app: FastAPI, request: Request, status: int) -> dict[str, str]:
    """The Allow header of a 405; the router's own names the methods of the first matching route only."""
    if status != 405:
        return {}
    found = {
        template: operations
        for template, operations in app.openapi()["paths"].items()
        if _fits(template, request.url.path)
    }
    if not found:
        return {}
    # `/x/{id}` fits an action, `/x/{id}:apply`, too; the one with more text of its own is meant.
    nearest = max(found, key=lambda template: len(re.sub(r"\{[^}]+\}", "", template)))
    return {"Allow": ", ".join(sorted(method.upper() for method in found[nearest]))}


def _field_problem(row: Mapping[str, Any]) -> FieldProblem:
    """A parameter by its name; a field of the body by its path, with its place in the body."""
    place, *path = row["loc"]
    inside = place == "body" and path and row["type"] != "json_invalid"
    hint = row.get("ctx", {}).get("expected", "")
    return FieldProblem(
        field=".".join(map(str, path)) if inside or place != "body" else place,
        message=str(row["msg"]).removeprefix("Value error, "),
        hint=f"allowed: {hint}" if hint else "",
        pointer=pointer(path) if inside else "",
    )
