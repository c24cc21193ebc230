"""Actions on an object are POSTs to `/x/{id}:verb`, an address that fits `/x/{id}`, too."""

from __future__ import annotations

from fastapi import Request
from starlette.exceptions import HTTPException


def not_an_action(request: Request) -> None:
    """Raise 405 where the object's route got what is an action's address."""
    _, colon, verb = request.url.path.rpartition("/")[2].rpartition(":")
    route = getattr(request.scope.get("route"), "path", "")
    if not colon or route.endswith(f":{verb}"):
        return
    if f"{route}:{verb}" in request.app.openapi()["paths"]:
        raise HTTPException(405, "Method Not Allowed")
