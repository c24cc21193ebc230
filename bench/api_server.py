"""An API server of objects in memory: lists in pages, watches, patches of jobs, Events, who may what, and the guard.

Nothing comes of a job that starts, unless somebody (`bench.kubelet`) is told of what happens to jobs.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import jsonpatch
from aiohttp import web

from queuer.kube.guard import RESOURCES as GUARD
from queuer.kube.guard import shipped_guard
from queuer.kube.objects import (
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    Resource,
)

SERVED = (
    NAMESPACES, LIMIT_RANGES, RESOURCE_QUOTAS, RUNTIME_CLASSES, PRIORITY_CLASSES, NODES, PODS, JOBS,
    *GUARD.values(),
)  # fmt: skip
VERSION = {"gitVersion": "v1.36.4"}
ADMIN = "admin"
"""The user that may everything; any other may in the namespace of its name alone."""


class ApiServer:
    """Objects by collection and path. `started`: when each job was unsuspended, by name, in the loop's time.

    `events`: all that were reported. `on_job`: is told each job that was patched. `writes`: by verb and resource.
    """

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        self.events: list[dict[str, Any]] = []
        self.writes: Counter[tuple[str, str]] = Counter()
        self.on_job: Callable[[dict[str, Any]], None] = lambda _job: None
        self._objects: dict[str, dict[str, dict[str, Any]]] = {r.collection: {} for r in SERVED}
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = defaultdict(set)
        self._removed: dict[str, deque[tuple[int, bytes]]] = defaultdict(lambda: deque(maxlen=1000))
        self._pages: dict[str, list[dict[str, Any]]] = {}
        self._version = 1
        self._starts = asyncio.Event()
        for (kind, _), document in shipped_guard().items():
            self.put(GUARD[kind], dict(document))

    def put(self, resource: Resource, found: dict[str, Any]) -> None:
        """Create or replace an object, and tell who watches."""
        meta = found["metadata"]
        path = resource.path(meta["name"], namespace=meta.get("namespace", ""))
        known = self._objects[resource.collection]
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self._tell(resource, "MODIFIED" if path in known else "ADDED", found)
        known[path] = found

    def remove(self, resource: Resource, found: dict[str, Any]) -> None:
        """Delete an object, and tell who watches."""
        meta = found["metadata"]
        del self._objects[resource.collection][
            resource.path(meta["name"], namespace=meta.get("namespace", ""))
        ]
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self._tell(resource, "DELETED", found)

    def there(self, resource: Resource) -> Iterable[dict[str, Any]]:
        """All objects of a resource."""
        return self._objects[resource.collection].values()

    def one(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]:
        """An object."""
        return self._objects[resource.collection][resource.path(name, namespace=namespace)]

    def _tell(self, resource: Resource, what: str, found: dict[str, Any]) -> None:
        line = json.dumps({"type": what, "object": found}).encode() + b"\n"
        if what == "DELETED":
            self._removed[resource.collection].append((self._version, line))
        for watch in self._watches[resource.collection]:
            watch.put_nowait(line)

    async def starts(self, name: str) -> None:
        """Wait until this job is started."""
        while name not in self.started:
            self._starts.clear()
            await self._starts.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        if request.path == "/version":
            return web.json_response(VERSION)
        if request.method == "PATCH":
            return await self._patch(request)
        if request.method == "POST":
            return self._create(request.path, await request.json())
        if request.path.endswith("/pods") and request.path not in self._objects:
            return self._pods_of(request)
        if request.path not in self._objects:
            return await self._get(request)
        if "watch" in request.query:
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        """A page; what is listed is what was there at the first."""
        size, token = int(request.query.get("limit", 500)), request.query.get("continue", "")
        name, _, at = token.partition("/")
        if not token:
            name, at = str(self._version), "0"
            self._pages[name + request.path] = list(self._objects[request.path].values())
        items, begin = self._pages[name + request.path], int(at)
        last = begin + size >= len(items)
        meta = {"resourceVersion": name, "continue": "" if last else f"{name}/{begin + size}"}
        return web.json_response({"metadata": meta, "items": items[begin : begin + size]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """From now on, after what came since the version that is asked for."""
        response = web.StreamResponse()
        await response.prepare(request)
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        since = int(request.query["resourceVersion"])
        missed = [each for each in self._removed[request.path] if each[0] > since]
        for found in self._objects[request.path].values():
            if (version := int(found["metadata"]["resourceVersion"])) > since:
                missed.append((version, json.dumps({"type": "ADDED", "object": found}).encode() + b"\n"))
        for _, line in sorted(missed):
            lines.put_nowait(line)
        self._watches[request.path].add(lines)
        try:
            with suppress(ConnectionError):
                while True:
                    await response.write(await lines.get())
        finally:
            self._watches[request.path].discard(lines)
        return response

    async def _get(self, request: web.Request) -> web.Response:
        found = next((o[request.path] for o in self._objects.values() if request.path in o), None)
        if found is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return web.json_response(found)

    def _pods_of(self, request: web.Request) -> web.Response:
        """Pods of a namespace by one label."""
        namespace = request.path.split("/")[-2]
        key, _, value = request.query.get("labelSelector", "").partition("=")
        items = [
            pod
            for pod in self.there(PODS)
            if pod["metadata"]["namespace"] == namespace and pod["metadata"]["labels"].get(key) == value
        ]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _create(self, path: str, body: dict[str, Any]) -> web.Response:
        """An Event, or a question of who somebody is (tokens are names of users) or what one may."""
        plural, spec = path.rpartition("/")[2], body.get("spec", {})
        self.writes["POST", plural] += 1
        if plural == "events":
            self.events.append(body)
            return web.json_response(body, status=201)
        if plural == "tokenreviews":
            user = {"username": spec["token"], "groups": ["system:authenticated"]}
            status = {"authenticated": True, "user": user, "audiences": spec["audiences"]}
            return web.json_response({"status": status}, status=201)
        asked = spec["resourceAttributes"]
        allowed = spec["user"] == ADMIN or asked.get("namespace") == spec["user"]
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        found, patch = self._objects[JOBS.collection].get(request.path), await request.json()
        if found is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if isinstance(patch, list):
            try:
                new = jsonpatch.apply_patch(found, patch)
            except jsonpatch.JsonPatchException:
                return web.json_response({"kind": "Status", "code": 422, "reason": "Invalid"}, status=422)
        else:
            asked = patch.get("metadata", {}).get("resourceVersion")
            if asked not in (None, found["metadata"]["resourceVersion"]):
                return web.json_response({"kind": "Status", "code": 409, "reason": "Conflict"}, status=409)
            new = _merged(found, patch)
        if found["spec"]["suspend"] and not new["spec"].get("suspend"):
            new["spec"]["suspend"] = False
            self.started[found["metadata"]["name"]] = asyncio.get_running_loop().time()
            self._starts.set()
        self.writes["PATCH", "jobs"] += 1
        self.put(JOBS, new)
        self.on_job(new)
        return web.json_response({"metadata": new["metadata"]})


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made
