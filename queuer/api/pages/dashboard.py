"""Serves the dashboard: files that `make web` builds from `web/` into this package, and the pages beside it.

Every screen is the same document; its script reads the address. The script may load from and ask this server alone.
"""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from queuer.api.deps import asking
from queuer.api.http import problems
from queuer.api.identity.rights import Unauthenticated
from queuer.api.pages.login import login_page
from queuer.domain.errors import NotFound, Unavailable

router = APIRouter(include_in_schema=False)

BUILT = resources.files("queuer.api.pages").joinpath("web")
"""The folder that `make web` fills. Without a build it holds no `index.html`."""
NOT_BUILT = (
    "The dashboard is not built on this server: `make web` builds it; `queuer status` works without it.\n"
)
SCREENS = (
    "/", "/queues", "/queues/{path}", "/jobs", "/jobs/{uid}", "/topology", "/cycles", "/cycles/{id}", "/fair-share",
    "/edit", "/edit/{id}", "/events", "/audit", "/me",
)  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_TYPES = {"js": "text/javascript", "css": "text/css"}
_FOREVER = "public, max-age=31536000, immutable"
"""The names of built files hold a hash of their content."""
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect y="2" width="16" height="3" fill="#2f6f9f"/><rect y="7" width="11" height="3" fill="#d9822b"/>'
    '<rect y="12" width="6" height="3" fill="#9bbdd3"/></svg>'
)


async def screen(request: Request) -> Response:
    """The document of every screen. A plain route: the parameters of its address are for the script."""
    try:
        await asking(request)
    except Unauthenticated:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return login_page(request.app.state.settings, goes_to=address, status=401)
    except Unavailable:
        pass  # the document tells nothing of anybody; its parts say what cannot be found out
    document = BUILT.joinpath("index.html")
    if not document.is_file():
        return PlainTextResponse(NOT_BUILT, 404)
    return HTMLResponse(document.read_bytes(), headers={"Content-Security-Policy": _POLICY})


def install(app: FastAPI) -> None:
    """Have the dashboard tell a browser that there is no such page; every other client gets the problem."""

    @app.exception_handler(404)
    async def nowhere(request: Request, error: HTTPException) -> Response:
        browses = "text/html" in request.headers.get("accept", "")
        if not browses or request.url.path.startswith("/api/") or not BUILT.joinpath("index.html").is_file():
            return problems.refused(request, error)
        page = await screen(request)
        if page.status_code == 200:  # not where one has to log in first
            page.status_code = error.status_code
        return page


for _path in SCREENS:
    router.add_route(_path, screen, methods=["GET"], include_in_schema=False)


@router.get("/assets/{name}")
async def asset(name: str) -> Response:
    """A script or a style sheet."""
    found = BUILT.joinpath("assets", name)
    kind = _TYPES.get(name.rsplit(".", 1)[-1])
    if kind is None or "/" in name or not found.is_file():
        raise NotFound(f"there is no file {name}")
    return Response(found.read_bytes(), media_type=kind, headers={"Cache-Control": _FOREVER})


@router.get("/icon.svg")
async def icon() -> Response:
    return Response(_ICON, media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@router.get("/problems/{code}")
async def explain_problem(code: str) -> PlainTextResponse:
    """The page that the `type` of a problem points at."""
    kind = problems.KINDS.get(code)
    if kind is None:
        raise NotFound(f"there is no problem {code!r}", hint=f"known: {', '.join(problems.KINDS)}")
    return PlainTextResponse(f"{kind.status} {kind.title}\n\n{kind.advice}\n")
