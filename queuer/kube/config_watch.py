"""kopf's part: it watches Queue, Flavor and Topology objects, and tells each new verdict on one as a Kubernetes Event.

That something changed is all that goes on from here: kopf loses deletions when it has to list again and retries
nothing. The objects stay as their users wrote them (null storages, event handlers only). The operator has a thread with
an event loop of its own: in the main thread it would take over the process's signal handlers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf

from queuer.kube.config import Access
from queuer.kube.config_status import accepted, stamp

GROUP, VERSION = "queuer.dev", "v1"
PLURALS = ("queues", "flavors", "topologies")


class _NothingStored(kopf.DiffBaseStorage, kopf.ProgressStorage):
    """No annotation on anybody's object: what was seen last is not remembered."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = settings.persistence.progress_storage = _NothingStored()
    settings.posting.reporting_component = settings.posting.reporting_instance = "queuer-controller"
    settings.posting.event_name_prefix = "queuer-"
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.queueing.idle_timeout = 0.1
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 270
    settings.watching.connect_timeout = 5
    settings.networking.request_timeout = 20
    return settings


def _registry(heard: Callable[[str | None, int | None, str], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    began = stamp(time.time())

    def fresh(status: Any) -> bool:
        return bool(accepted(status).get("lastTransitionTime", "") >= began)

    async def on_event(
        type: str | None, body: kopf.Body, meta: Any, status: Any, memo: kopf.Memo, **_: Any
    ) -> None:
        heard(type, meta.get("generation"), str(meta.get("uid")))
        if type != "DELETED":
            _tell(body, accepted(status), memo, news=type is not None or fresh(status))

    for plural in PLURALS:
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"heard-{plural}")(on_event)
    return registry


def _tell(body: kopf.Body, condition: Mapping[str, Any], memo: kopf.Memo, *, news: bool) -> None:
    """Post the verdict that our own status says, unless it was told: to this process, or before it came."""
    verdict = tuple(condition.get(key) for key in ("reason", "message", "observedGeneration"))
    if condition and news and memo.get("told") != verdict:
        kind = "Normal" if condition.get("status") == "True" else "Warning"
        kopf.event(body, type=kind, reason=str(verdict[0]), message=str(verdict[1]))
    memo["told"] = verdict


async def _operate(
    access: Access, heard: Callable[[str | None, int | None, str], None], stop: threading.Event
) -> None:
    """The operator until `stop`, on the loop of its thread."""

    async def signed(
        request: aiohttp.ClientRequest, handler: Callable[..., Awaitable[aiohttp.ClientResponse]]
    ) -> aiohttp.ClientResponse:
        request.headers.update(await access.headers())
        return await handler(request)

    connector = aiohttp.TCPConnector(ssl=access.ssl or False)
    async with aiohttp.ClientSession(connector=connector, middlewares=(signed,)) as session:
        registry = _registry(heard)

        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=access.url, aiohttp_session=session)

        kopf.on.login(registry=registry)(login)
        await kopf.operator(registry=registry, settings=_settings(), clusterwide=True, stop_flag=stop)


@asynccontextmanager
async def ringing(
    access: Access, heard: Callable[[str | None, int | None, str], None]
) -> AsyncIterator[asyncio.Future[None]]:
    """While inside, `heard(event type, generation, uid)` is called in the caller's loop for every event.

    The type is None for an object that was listed. Yields a future that ends if the watching ends too early.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def forward(*event: Any) -> None:
        loop.call_soon_threadsafe(heard, *event)

    thread = loop.run_in_executor(None, lambda: asyncio.run(_operate(access, forward, stop)))
    try:
        yield thread
    finally:
        stop.set()
        await asyncio.wait([thread])
