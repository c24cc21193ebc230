"""Parameters of routes: unknown ones are refused, a path is that of a queue, and an action is no object.

`dryrun` must not pass for a `dryRun` that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.exceptions import HTTPException

from queuer.domain.errors import FieldProblem, InvalidInput, NotFound
from queuer.domain.fields import nearest
from queuer.domain.queue import QueueTree
from queuer.store import lookup
from queuer.store.config import load_config


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


async def check_queue(connection: AsyncConnection, path: str) -> None:
    """Raise NotFound, with the nearest paths, unless there is such a queue."""
    if not await lookup.has_queue(connection, path):
        raise no_queue((await load_config(connection)).tree, path)


def no_queue(tree: QueueTree, path: str) -> NotFound:
    """There is no such queue; names the nearest leaves, else the nearest queues."""
    close = tree.nearest(path) or get_close_matches(path, tree.queues, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`queuer queue ls` lists them"
    return NotFound(f"there is no queue {path}", hint=hint)
