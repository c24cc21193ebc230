"""Runs the API as a process of its own: an engine, an app, uvicorn on one listening socket."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from uvicorn.protocols.http.h11_impl import H11Protocol

from queuer.api.app import create_app
from queuer.api.identity.browsers import Browsers
from queuer.api.identity.kubernetes import Kubernetes
from queuer.api.identity.oidc import Provider
from queuer.api.identity.rights import Anyone, Identity
from queuer.api.live.feed import Feed
from queuer.api.settings import ApiSettings, Authentication
from queuer.domain.errors import Unavailable
from queuer.kube.client import Client
from queuer.kube.config import load_access
from queuer.store import migrate
from queuer.store.engine import make_engine

_POOL = 10
_STOP_SECONDS = 5
HEAD_SECONDS = 10.0
"""The head of a request must have come so long after its connection began, or the one before was answered; or twice."""
_REVIEW_SECONDS = 5.0
"""How long the API server may take to say who asks; then the request fails."""


async def serve(settings: ApiSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises Unavailable where the address is taken or no cluster is known, SchemaMismatchError where the database has
    another schema. A database that is away may come up later.
    """
    try:
        await asyncio.to_thread(migrate.check, settings.database_url)
    except Unavailable as error:
        structlog.get_logger(part="api").warning("the database is away", said=str(error))
    engine = make_engine(settings.database_url, name="queuer-api", pool_size=_POOL)
    try:
        async with _identity(settings, engine) as identity:
            await _serve(create_app(engine, settings, identity), settings)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _identity(settings: ApiSettings, engine: AsyncEngine) -> AsyncIterator[Identity]:
    """The login of callers, as the settings say. Nothing is asked of the cluster yet: it may come up later."""
    if settings.authentication is Authentication.NONE:
        yield Anyone()
        return
    try:
        access = await load_access(settings.kubeconfig)
    except Unavailable as error:
        raise Unavailable(
            error.message, hint=f"{error.hint}; or QUEUER_AUTH=none, on loopback only"
        ) from error
    async with Client(access, timeout=_REVIEW_SECONDS) as client:
        kubernetes = Kubernetes(client, audiences=settings.audiences)
        provider = Provider(settings.oidc) if settings.oidc else None
        yield Browsers(kubernetes, engine, provider=provider, secure=settings.secure_cookies)


async def _serve(app: FastAPI, settings: ApiSettings) -> None:
    with _listen(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
        structlog.get_logger(part="api").info(
            "serving", url=_url(settings.host, port), authentication=settings.authentication
        )
        config = uvicorn.Config(
            app,
            http=_Connection,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        await _Server(config, app.state.feed).serve(sockets=[listener])


class _Connection(H11Protocol):
    """One client's connection. It ends where no request begins: uvicorn's own timers stop at the first byte."""

    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look_for(None)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look is not None:
            self._look.cancel()

    def _look_for(self, after: object) -> None:
        """Look again and again for another request than the one `after` which one was waited for."""
        self._look = self.loop.call_later(HEAD_SECONDS, self._looked, after)

    def _looked(self, after: object) -> None:
        if (after is None or self.cycle.response_complete) and self.cycle is after:
            self.transport.close()
        else:
            self._look_for(self.cycle)


class _Server(uvicorn.Server):
    """Ends with exit code 0 on SIGTERM and SIGINT: uvicorn's own raises the signal again when it has shut down."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Streams would never end by themselves."""
        self._feed.close()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="set QUEUER_PORT to another one, 0 = any",
        ) from error
    # asyncio does it for sockets that it made itself: else each answer waits 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _url(host: str, port: int) -> str:
    return f"http://[{host.strip('[]')}]:{port}" if ":" in host else f"http://{host}:{port}"
