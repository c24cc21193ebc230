"""A small API server of one collection (config maps by shape): pages, watches, and faults on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from queuer.kube.client import Client
from queuer.kube.config import Access

DEEP = "@deep"
"""Stands for JSON that Python's own writer cannot write: 1,100 levels of managed fields."""
_DEEP = b'{"f:a":' * 1_100 + b"{}" + b"}" * 1_100
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


class Stub:
    """Objects by uid and a log of events. `requests` counts lists and watches; faults are attributes."""

    def __init__(self, *uids: str, failures: Iterable[web.Response] = ()) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.version = 100
        self.oldest = 0
        self.requests: list[dict[str, str]] = []
        self.failures = list(failures)
        self.mute = False
        self._changed = asyncio.Event()
        self._cut = asyncio.Event()
        self._gracefully = False
        for uid in uids:
            self.put(uid)

    # -- what a test does

    def put(self, uid: str, **labels: str) -> None:
        """Create or change an object, seen by watchers."""
        self.version += 1
        known = uid in self.objects
        meta = {"name": uid, "namespace": "n", "uid": uid, "resourceVersion": str(self.version)}
        self.objects[uid] = {"metadata": {**meta, "labels": labels}}
        self._tell("MODIFIED" if known else "ADDED", self.objects[uid])

    def delete(self, uid: str) -> None:
        """Delete an object, seen by watchers."""
        self.version += 1
        gone = self.objects.pop(uid)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    def bookmark(self) -> None:
        """Say how far the log is."""
        self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def send_raw(self, event: dict[str, Any]) -> None:
        """Any line in the watch."""
        self._tell(event["type"], event["object"])

    def cut(self) -> None:
        """Break every open watch without a last chunk."""
        self._cut.set()

    def end(self) -> None:
        """End every open watch as the server does when its time is over: all that was said arrives."""
        self._gracefully = True
        self._cut.set()

    def compact(self) -> None:
        """Forget all events so far: older resource versions are answered 410."""
        self.version += 1
        self.oldest = self.version
        self.events.clear()

    @property
    def lists(self) -> int:
        """Pages listed so far."""
        return sum("watch" not in params for params in self.requests)

    @property
    def watches(self) -> list[dict[str, str]]:
        """Parameters of the watches so far."""
        return [params for params in self.requests if "watch" in params]

    # -- what the server does

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        self.events.append((self.version, {"type": kind, "object": json.loads(json.dumps(item))}))
        self._changed.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        if self.failures:
            return self.failures.pop(0)
        return await (self._watch(request) if "watch" in request.query else self._list(request))

    async def _list(self, request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [self.objects[uid] for uid in sorted(self.objects)]
        meta = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        page = {"metadata": meta, "items": items[start : start + limit]}
        return web.Response(body=_wire(page), content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        version = int(request.query["resourceVersion"])
        if version < self.oldest:
            await response.write(json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n")
            return response
        sent, self._cut = 0, asyncio.Event()
        cut = asyncio.create_task(self._cut.wait())
        try:
            while not cut.done():
                self._changed.clear()
                for at, event in () if self.mute else self.events[sent:]:
                    sent += 1
                    if at > version or event["type"] == "BOOKMARK":
                        await response.write(_wire(event) + b"\n")
                change = asyncio.create_task(self._changed.wait())
                await asyncio.wait([cut, change], return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            cut.cancel()
        if self._gracefully:
            for _, event in self.events[sent:]:
                await response.write(_wire(event) + b"\n")
        else:
            assert request.transport is not None
            request.transport.abort()
        return response


def _wire(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode().replace(json.dumps(DEEP).encode(), _DEEP)


@asynccontextmanager
async def serving(stub: Stub, *, patience: float = 20.0) -> AsyncIterator[Client]:
    """The stub on a free port, and a client of it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stub.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]

    async def headers() -> dict[str, str]:
        return {"Authorization": "Bearer secret"}

    try:
        async with Client(
            Access(url=f"http://{host}:{port}", ssl=None, headers=headers), timeout=patience
        ) as client:
            yield client
    finally:
        await runner.cleanup()
