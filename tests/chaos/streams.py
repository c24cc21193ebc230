"""A proxy before the API server whose watches go wrong: events dropped or doubled, streams cut, 410 Gone.

All other requests pass as they are, unless token or rights are refused: then each request is, and only streams that
are open go on. Callers need only its address; the token goes through.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from queuer.local.cluster import Cluster
from queuer.local.identities import CONTROLLER

_GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
_REFUSALS = {
    401: {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"},
    403: {
        "kind": "Status", "code": 403, "reason": "Forbidden",
        "message": 'jobs.batch is forbidden: User "queuer" cannot do that at the cluster scope',
    },
}  # fmt: skip
"""The API server's words while a token is not accepted, and while no role is bound."""
_LONGEST_LINE = 8 << 20
_PASSED_ON = ("Authorization", "Accept", "Content-Type", "User-Agent")
_PASSED_BACK = ("Content-Type", "Retry-After")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Faults to inject. `dropped`, `doubled`: share of the events. `gone`: share of the watches that are
    answered 410. `life`: average seconds of a stream, None = until its end. `refused`: 401 or 403, by which each
    request is answered.
    """

    dropped: float = 0.0
    doubled: float = 0.0
    gone: float = 0.0
    life: float | None = None
    refused: int | None = None


CALM = Weather()


@dataclass(slots=True, kw_only=True)
class Streams:
    """The proxy. `weather` may be changed at any time; `counts`: what it did so far."""

    cluster: Cluster
    random: Random
    url: str = ""
    weather: Weather = CALM
    counts: Counter[str] = field(default_factory=Counter)

    def kubeconfig(self, directory: Path) -> Path:
        """The controller's, with this address."""
        path = directory / "kubeconfig-streams"
        own = self.cluster.kubeconfig(CONTROLLER).read_text()
        path.write_text(own.replace(self.cluster.api_url, self.url))
        path.chmod(0o600)
        return path

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Answer while the block runs."""
        async with aiohttp.ClientSession(
            self.cluster.api_url,
            connector=aiohttp.TCPConnector(ssl=False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=_LONGEST_LINE,
        ) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                if (status := self.weather.refused) is not None:
                    self.counts[str(status)] += 1
                    return web.json_response(_REFUSALS[status], status=status)
                asked = session.request(
                    request.method, request.rel_url, data=await request.read() or None,
                    headers={name: request.headers[name] for name in _PASSED_ON if name in request.headers},
                )  # fmt: skip
                try:
                    async with asked as answer:
                        watched = "watch" in request.query and answer.status == web.HTTPOk.status_code
                        return await (self._watch(request, answer) if watched else _pass(answer))
                except aiohttp.ClientError as error:
                    return web.json_response({"message": str(error)}, status=502)

            app = web.Application(client_max_size=_LONGEST_LINE)
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = "http://{}:{}".format(*runner.addresses[0][:2])
                yield
            finally:
                await runner.cleanup()

    async def _watch(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        self.counts["watches"] += 1
        gone = self._happens(self.weather.gone, "gone")
        if gone and self.random.random() < 0.5:  # some servers say it by the status, some by an event
            return web.json_response(_GONE, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        if gone:
            await response.write(json.dumps({"type": "ERROR", "object": _GONE}).encode() + b"\n")
            return response
        mean = self.weather.life
        try:
            async with asyncio.timeout(mean and self.random.expovariate(1 / mean)):
                async for line in answer.content:
                    for _ in range(self._times(line)):
                        await response.write(line)
        except (TimeoutError, aiohttp.ClientError):
            self.counts["cut"] += 1
            if request.transport is not None:
                request.transport.abort()
        return response

    def _times(self, line: bytes) -> int:
        """How often this event is told."""
        if json.loads(line)["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return 1
        self.counts["events"] += 1
        if self._happens(self.weather.dropped, "dropped"):
            return 0
        return 2 if self._happens(self.weather.doubled, "doubled") else 1

    def _happens(self, share: float, what: str) -> bool:
        happens = self.random.random() < share
        self.counts[what] += happens
        return happens


async def _pass(answer: aiohttp.ClientResponse) -> web.Response:
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    return web.Response(status=answer.status, body=await answer.read(), headers=headers)


@contextmanager
def streams(cluster: Cluster, random: Random) -> Iterator[Streams]:
    """The proxy in a thread of its own, in calm weather."""
    made = Streams(cluster=cluster, random=random)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(made.serve()):
        yield made
