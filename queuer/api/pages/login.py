"""Log in and out with a browser: by a token that is pasted, or at the OIDC provider."""

from __future__ import annotations

import base64
import secrets
from html import escape
from importlib import resources
from string import Template
from typing import Annotated
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from queuer.api.deps import Engine, Settings
from queuer.api.identity.browsers import LOGIN, LONGEST, SESSION, TOKEN, Browsers
from queuer.api.identity.oidc import Attempt, Provider
from queuer.api.identity.rights import Unauthenticated
from queuer.api.settings import ApiSettings
from queuer.domain.errors import NotFound
from queuer.store import sessions
from queuer.store.migrate import writing

router = APIRouter(include_in_schema=False)
ATTEMPT_SECONDS = 600
SESSION_SECONDS = 8 * 3600
HOME = "/"
FIELDS = 10
"""Of the form, at most."""
_FILES = resources.files("queuer.api.pages")
_PAGE = Template(_FILES.joinpath("login.html").read_text())
_STYLE = _FILES.joinpath("login.css").read_text()


@router.get("/login")
async def login(settings: Settings, next_page: Annotated[str, Query(alias="next")] = HOME) -> HTMLResponse:
    """The form."""
    return login_page(settings, goes_to=next_page)


@router.post("/login")
async def login_with_token(request: Request, settings: Settings) -> Response:
    """Take a token that the cluster issued; it is kept in a cookie, not here."""
    browsers = _browsers(request)
    form = _form(await request.body())
    token, goes_to = (form.get(key, [""])[0].strip() for key in ("token", "next"))
    if len(token) > LONGEST:
        return login_page(
            settings, message="The token is too long for a cookie.", goes_to=goes_to, status=401
        )
    if await browsers.kubernetes.whose(token) is None:
        return login_page(settings, message="The token is not valid here.", goes_to=goes_to, status=401)
    response = RedirectResponse(_inside(goes_to), 303)
    browsers.take(response, SESSION)
    browsers.give(response, TOKEN, token)
    return response


@router.get("/login/oidc")
async def login_at_provider(
    request: Request, next_page: Annotated[str, Query(alias="next")] = HOME
) -> RedirectResponse:
    """Send the browser to the provider; what is to come back is in a cookie."""
    browsers = _browsers(request)
    attempt = Attempt.new()
    response = RedirectResponse(await _provider(browsers).address(attempt), 303)
    page = base64.urlsafe_b64encode(_inside(next_page).encode()).decode().rstrip("=")
    kept = ".".join((attempt.state, attempt.nonce, attempt.verifier, page))
    browsers.give(response, LOGIN, kept, seconds=ATTEMPT_SECONDS)
    return response


async def callback(request: Request) -> Response:
    """The browser is back. A plain route: providers add parameters of their own."""
    browsers, settings = _browsers(request), request.app.state.settings
    try:
        attempt, goes_to = _begun(browsers.cookie(request, LOGIN))
        caller = await _provider(browsers).finish(attempt, dict(request.query_params))
    except Unauthenticated as error:
        response: Response = login_page(settings, message=str(error), status=401)
    else:
        cookie = secrets.token_urlsafe(32)
        session = sessions.Session(name=caller.name, groups=caller.groups)
        async with writing(request.app.state.engine) as connection:
            await sessions.begin(connection, cookie, session, seconds=SESSION_SECONDS)
        response = RedirectResponse(goes_to, 303)
        browsers.take(response, TOKEN)
        browsers.give(response, SESSION, cookie, seconds=SESSION_SECONDS)
    browsers.take(response, LOGIN)
    return response


router.add_route("/login/callback", callback, methods=["GET"], include_in_schema=False)


@router.post("/logout")
async def logout(request: Request, engine: Engine) -> RedirectResponse:
    """End the session here, and forget it in the browser."""
    browsers = _browsers(request)
    if cookie := browsers.cookie(request, SESSION):
        async with writing(engine) as connection:
            await sessions.end(connection, cookie)
    response = RedirectResponse("/login", 303)
    browsers.take(response, SESSION, TOKEN)
    return response


def login_page(
    settings: ApiSettings, *, message: str = "", goes_to: str = HOME, status: int = 200
) -> HTMLResponse:
    """The form, and what went wrong."""
    goes_to = _inside(goes_to)
    address = f"/login/oidc?{urlencode({'next': goes_to})}" if settings.oidc else ""
    text = _PAGE.substitute(
        message=message and f'<p class="banner" role="alert">{escape(message)}</p>',
        provider=address
        and f'<p><a href="{escape(address)}">Log in with your organisation\'s account</a></p>',
        next=escape(goes_to),
        audience=escape(settings.audiences[0]),
    )
    return HTMLResponse(text, status, headers={"WWW-Authenticate": "Bearer"} if status == 401 else {})


@router.get("/login.css")
async def style() -> Response:
    return Response(_STYLE, media_type="text/css", headers={"Cache-Control": "max-age=300"})


def _form(body: bytes) -> dict[str, list[str]]:
    """Its fields; of one that is not ours, none."""
    try:
        return parse_qs(body.decode(errors="replace"), max_num_fields=FIELDS)
    except ValueError:
        return {}


def _begun(cookie: str) -> tuple[Attempt, str]:
    """The login that this browser began, and where it wanted to go."""
    parts = cookie.split(".")
    if len(parts) != 4:
        raise Unauthenticated(
            "this login was not begun in this browser, or too long ago", hint="log in again"
        )
    state, nonce, verifier, page = parts
    try:
        goes_to = base64.urlsafe_b64decode(page + "=" * (-len(page) % 4)).decode()
    except ValueError:
        goes_to = HOME
    return Attempt(state=state, nonce=nonce, verifier=verifier), _inside(goes_to)


def _inside(address: str) -> str:
    """A path of this server; whatever else is asked for leads home."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HOME
    outside = parts.scheme or parts.netloc or "\\" in address or not address.isprintable()
    return HOME if outside or not address.startswith("/") or address.startswith("//") else address


def _browsers(request: Request) -> Browsers:
    identity = request.app.state.identity
    if not isinstance(identity, Browsers):
        raise NotFound("nobody logs in here: this server has no authentication")
    return identity


def _provider(browsers: Browsers) -> Provider:
    if browsers.provider is None:
        raise NotFound("no login provider is set up", hint="QUEUER_OIDC_ISSUER names one")
    return browsers.provider
