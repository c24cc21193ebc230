"""Parameters of routes: unknown ones are refused, times are RFC 3339, and an action is no object.

`dryrun` must not pass for a `dryRun` that nobody reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest


def known_parameters(request: Request) -> None:
    """Raise InvalidInput that names each parameter which the route does not have, and each given twice."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    allowed = frozenset(_declared(route.dependant))
    given = [key for key, _ in request.query_params.multi_items()]
    problems = [
        FieldProblem(field=key, message="unknown parameter", hint=_hint(key, allowed))
        for key in dict.fromkeys(given)
        if key not in allowed
    ]
    problems += [
        FieldProblem(field=key, message="given more than once", hint="give it once")
        for key in sorted(allowed)
        if given.count(key) > 1
    ]
    if problems:
        raise InvalidInput(*problems)


def _hint(key: str, allowed: frozenset[str]) -> str:
    return nearest(key, allowed) if allowed else "this route has none"


def _declared(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for below in dependant.dependencies:
        yield from _declared(below)


def not_an_action(request: Request) -> None:
    """Raise 405 where the object's route got what is an action's address."""
    _, colon, verb = request.url.path.rpartition("/")[2].rpartition(":")
    route = getattr(request.scope.get("route"), "path", "")
    if not colon or route.endswith(f":{verb}"):
        return
    if f"{route}:{verb}" in request.app.openapi()["paths"]:
        raise HTTPException(405, "Method Not Allowed")


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _checked(value: Any) -> Any:
    if isinstance(value, str) and not _RFC3339.fullmatch(value):
        raise ValueError("no RFC 3339 time; write e.g. 2026-01-31T09:00:00Z")
    return value


Instant = Annotated[datetime, BeforeValidator(_checked)]
"""A point in time as a parameter."""
