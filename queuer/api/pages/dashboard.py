"""Serves the dashboard: files that `make web` builds from `web/` into this package. Without them: the plain page.

Every screen is the same document; the script in it reads the address. It may load and ask this server alone.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from queuer.api.http.problems import refused
from queuer.api.pages.html import BUILT
from queuer.api.pages.login import login_page
from queuer.api.pages.page import visitor
from queuer.domain.errors import NotFound, Unavailable

router = APIRouter(include_in_schema=False)

PLAIN = "/plain"
SCREENS = (
    "/queues", "/queues/{path}", "/jobs", "/jobs/{uid}", "/topology", "/cycles", "/cycles/{id}", "/fair-share",
    "/edit", "/edit/{id}", "/events", "/audit", "/me",
)  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_TYPES = {"js": "text/javascript", "css": "text/css"}
_FOREVER = "public, max-age=31536000, immutable"
"""The names of built files hold a hash of what is in them."""


async def screen(request: Request) -> Response:
    """The document of every screen. A plain route: the parameters of its address are for the script."""
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    try:
        known = await visitor(request) is not None
    except Unavailable:  # the document tells nothing of anybody; its parts say what cannot be found out
        known = True
    if not known:
        return login_page(request.app.state.settings, goes_to=address, status=401)
    document = BUILT.joinpath("index.html")
    if document.is_file():
        return HTMLResponse(document.read_bytes(), headers={"Content-Security-Policy": _POLICY})
    if request.url.path == "/":
        return RedirectResponse(PLAIN, 303)
    raise NotFound("the dashboard is not built here", hint=f"make web, or see the plain page at {PLAIN}")


def install(app: FastAPI) -> None:
    """Have the dashboard say to a browser that there is no such page; whoever else asks gets the problem."""

    @app.exception_handler(404)
    async def nowhere(request: Request, error: HTTPException) -> Response:
        browses = "text/html" in request.headers.get("accept", "")
        if not browses or request.url.path.startswith("/api/") or not BUILT.joinpath("index.html").is_file():
            return refused(request, error)
        page = await screen(request)
        if page.status_code == 200:  # not where one has to log in first
            page.status_code = error.status_code
        return page


for _path in ("/", *SCREENS):
    router.add_route(_path, screen, methods=["GET"], include_in_schema=False)


@router.get("/assets/{name}")
async def asset(name: str) -> Response:
    """A script or a style sheet."""
    found = BUILT.joinpath("assets", name)
    kind = _TYPES.get(name.rsplit(".", 1)[-1])
    if kind is None or "/" in name or not found.is_file():
        raise NotFound(f"there is no file {name}")
    return Response(found.read_bytes(), media_type=kind, headers={"Cache-Control": _FOREVER})
