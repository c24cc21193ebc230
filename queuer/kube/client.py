"""A small client of the Kubernetes API: paged lists, watches, merge patches, and errors told apart.

The official client's models cost a hundred microseconds an object; here bodies stay bytes until the caller decodes
the fields that it needs. One session, one field manager.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from queuer.domain.errors import QueuerError, Unavailable
from queuer.kube.config import Access
from queuer.kube.decoding import decoder_of
from queuer.kube.versions import Form, form_of

FIELD_MANAGER = "queuer"
CONNECTIONS = 64
"""Open at once, at most."""
PAGE = 500
"""Objects of a page of a list, at most."""
_SMALLEST_PAGE = 8
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LONGEST_LINE = 8 << 20
"""An object is at most 3 MiB as a request and about as much in etcd; a watch event holds one."""


class ApiError(QueuerError):
    """The API server answered with a failure. `status`: HTTP; `reason`: the machine-readable word of metav1.Status."""

    code = "kubernetes_error"

    def __init__(self, *, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """404: no such object, or no such kind."""


class ConflictError(ApiError):
    """409: the resourceVersion or uid in the request is not the present one, or the name is taken."""


class GoneError(ApiError):
    """410: the resourceVersion is too old to list or watch from."""


class InvalidError(ApiError):
    """422: the object would be invalid, or a policy refuses it."""


class ThrottledError(ApiError):
    """429: the server asks for a pause of `retry_after` seconds."""


class RightsError(ApiError, Unavailable):
    """401, or a ForbiddenError: the fault lies with our token or rights, never with the object."""


class ForbiddenError(RightsError):
    """403 by the authorizer or a proxy: a right is missing, perhaps for one subresource alone."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: RightsError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: ThrottledError,
}


_BY_AUTHORIZER = re.compile(r'[^:]*forbidden: User "')
"""Begins the message of a 403 for missing rights; a policy, quota or webhook says its own name there."""


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""


def api_error(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The error for a failed answer; `body` is a metav1.Status or whatever a proxy said."""
    foreign = False
    try:
        said = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        foreign, said = True, _Status(message=body[:200].decode(errors="replace"))
    pause = float(retry_after) if retry_after and retry_after.isdigit() else None
    kind = _BY_STATUS.get(status, ApiError)
    if status == 403 and (foreign or _BY_AUTHORIZER.match(said.message)):
        kind = ForbiddenError
    return kind(
        status=status, reason=said.reason, message=said.message or f"HTTP {status}", retry_after=pause
    )


class _VersionInfo(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """One page of a list: items undecoded."""

    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta


_page_of = decoder_of(Page)
_object_of = decoder_of(_Object)


class Client:
    """An async context manager over one connection pool. `writes` counts our writes by (verb, resource).

    `last_form`: the last answer of `form()`, which an upgrade of the cluster changes.
    """

    def __init__(self, access: Access, *, timeout: float = 20.0) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None
        self.writes: Counter[tuple[str, str]] = Counter()
        self.last_form = Form.FULL
        self._limits: dict[str, int] = {}  # objects of a page by path, where fewer than PAGE

    async def __aenter__(self) -> Self:
        self._session = self._access.session(
            connections=CONNECTIONS,
            timeout=self._timeout,
            headers={"User-Agent": "queuer", "Accept": "application/json"},
            read_bufsize=1 << 18,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """Body of a GET."""
        return await self._request("GET", path, params=params)

    async def pages(self, path: str, *, selector: str = "") -> AsyncIterator[Page]:
        """All pages of a consistent list. Raises GoneError if it takes so long that its snapshot is compacted.

        A page that did not come in time halves those of the next list, a whole list doubles them again.
        """
        params = {"labelSelector": selector} if selector else {}
        limit = self._limits.get(path, PAGE)
        while True:
            try:
                page = _page_of(await self.get(path, params={**params, "limit": str(limit)}))
            except Unavailable as error:
                if isinstance(error.__cause__, TimeoutError | aiohttp.ClientPayloadError):
                    self._limits[path] = max(_SMALLEST_PAGE, limit // 2)
                raise
            yield page
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        if limit * 2 < PAGE:
            self._limits[path] = limit * 2
        else:
            self._limits.pop(path, None)

    @asynccontextmanager
    async def watch(
        self, path: str, *, resource_version: str, selector: str = "", seconds: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch as an iterator of JSON lines. It ends normally when the server closes it after `seconds`.

        No line is read for longer than the caller waits: put a timeout around each step to notice a dead stream.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        } | ({"labelSelector": selector} if selector else {})
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=None)
        async with self._open("GET", path, params=params, limits=limits) as response:
            yield _lines(response.content)

    async def merge_patch(self, path: str, body: Mapping[str, Any], *, resource: str = "") -> str:
        """Send a JSON merge patch; returns the new resourceVersion. `resource` names the write in `writes`.

        Put `metadata.resourceVersion` into `body` to make it a compare-and-set: ConflictError otherwise.
        """
        return await self._patch(path, body, form="merge-patch", resource=resource)

    async def json_patch(self, path: str, body: Sequence[Mapping[str, Any]], *, resource: str = "") -> str:
        """Send a JSON Patch (RFC 6902); returns the new resourceVersion. InvalidError where one of its tests fails."""
        return await self._patch(path, body, form="json-patch", resource=resource)

    async def remove_finalizer(self, path: str, name: str, *, uid: str, resource: str = "") -> None:
        """Take a finalizer off an object, if it is there. ConflictError where another has its name by now.

        The server has no precondition for a PATCH: a uid in its body that is not the object's is an invalid change.
        """
        body = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [name]}}
        try:
            await self._patch(path, body, form="strategic-merge-patch", resource=resource)
        except InvalidError as error:
            if "metadata.uid: " not in error.message:
                raise
            raise ConflictError(status=409, reason="Conflict", message=error.message) from error

    async def create(self, path: str, body: Mapping[str, Any], *, resource: str = "") -> bytes:
        """POST an object; returns what the server made of it."""
        self.writes["create", resource] += 1
        return await self._request(
            "POST",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )

    async def delete(self, path: str, *, uid: str, resource: str = "") -> None:
        """DELETE an object with the grace that it has. ConflictError where another has its name by now."""
        self.writes["delete", resource] += 1
        body = json.dumps({"preconditions": {"uid": uid}}).encode()
        await self._request("DELETE", path, body=body, headers={"Content-Type": "application/json"})

    async def _patch(self, path: str, body: Any, *, form: str, resource: str) -> str:
        self.writes["patch", resource] += 1
        answer = await self._request(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body=json.dumps(body).encode(),
            headers={"Content-Type": f"application/{form}+json", "Accept": _METADATA_ONLY},
        )
        return _object_of(answer).metadata.resource_version

    async def form(self) -> Form:
        """The form that Queuer has here, by the server's version. Raises KubernetesTooOld."""
        said = msgspec.json.decode(await self.get("/version"), type=_VersionInfo)
        self.last_form = form_of(said.git_version)
        return self.last_form

    async def server_time(self) -> float | None:
        """The API server's clock, epoch seconds without their fraction; None where it does not say."""
        async with self._open("GET", "/version") as response:
            said = response.headers.get("Date")
        return None if said is None else parsedate_to_datetime(said).timestamp()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        async with self._open(method, path, params=params, body=body, headers=headers) as response:
            return await response.read()

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use the client as an async context manager"
        try:
            async with self._session.request(
                method,
                self._access.url + path,
                params=params,
                data=body,
                headers=headers,
                timeout=limits or self._timeout,
            ) as response:
                if response.status >= 400:
                    raise api_error(
                        response.status,
                        await response.read(),
                        retry_after=response.headers.get("Retry-After"),
                    )
                yield response
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            said = str(error) or type(error).__name__
            raise Unavailable(f"{method} {path}: the API server does not answer: {said}") from error


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length up to `_LONGEST_LINE`; aiohttp's own line reader stops at its buffer's size."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        rest += chunk
        *lines, tail = rest.split(b"\n")
        for line in lines:
            if line:
                yield bytes(line)
        if len(tail) > _LONGEST_LINE:
            raise Unavailable(f"a watch event is longer than {_LONGEST_LINE} bytes")
        rest = tail
