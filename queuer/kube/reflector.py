"""Keeps a local copy of all objects of one kind: list in pages, watch with bookmarks, and never lose a deletion.

After a gap that the server cannot bridge (410 Gone) everything is listed again, and objects that disappeared meanwhile
are reported as DELETED. Admission queues that forget that leak quota. A lost event leaves no trace, so everything is
listed again each minute anyway; an unchanged object costs no more than reading it. Model: client-go's Reflector.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from queuer.domain.backoff import BackOff
from queuer.domain.errors import QueuerError
from queuer.kube.client import ApiError, Client, GoneError
from queuer.kube.decoding import decoder_of
from queuer.kube.objects import Meta, Resource

log = structlog.get_logger(part="reflector")


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _HasIdentity(msgspec.Struct, frozen=True):
    metadata: _Identity


T = TypeVar("T", bound=Any)


class ChangeKind(StrEnum):
    """The kind of a change to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """One change. `old`: what was known before, None for ADDED; `object` of DELETED is the last that was seen."""

    kind: ChangeKind
    object: T
    old: T | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ErrorStatus(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


_event_of = decoder_of(_Event)
_identified = decoder_of(_HasIdentity)
_error_of = decoder_of(_ErrorStatus)
_PAUSES = BackOff(first=0.1, longest=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds. `silence`: no event, not even a bookmark (each minute), for so long = the watch is opened anew.

    `relist`: from list to list; longer where else more than `share` of the time would go into listing.
    """

    silence: float = 90.0
    relist: float = 60.0
    share: float = 0.05
    pauses: BackOff = _PAUSES


class Reflector(Generic[T]):
    """A local copy of one collection. `on_change` is called in the event loop, synchronously: mark dirty, no more.

    `items`: objects by uid. `synced` is set after the first full list. `stale_since`: monotonic time since when no
    connection to the server could be held; None while the copy is live. `undecodable`: how many objects came that could
    not be read or taken over, and are missing here or are as they were before.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[T],
        *,
        on_change: Callable[[Change[T]], None],
        selector: str = "",
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.stale_since: float | None = clock()
        self.undecodable = 0
        self._client = client
        self._decode = decoder_of(kind)
        self._on_change = on_change
        self._selector = selector
        self._timing = timing or Timing()
        self._clock = clock
        self._random = random.Random(seed)
        self._items: dict[str, T] = {}
        self._version = ""
        self._due = -inf  # when to list again
        self._heard = False  # whether the last watch told anything

    @property
    def items(self) -> Mapping[str, T]:
        """All known objects by uid."""
        return self._items

    async def run(self) -> None:
        """List and watch until cancelled, with pauses that grow while watches neither tell anything nor hold."""
        failures = 0
        while True:
            opened, asked_for, self._heard = inf, None, False
            try:
                if not self._version or self._clock() >= self._due:
                    await self._list()
                opened = self._clock()
                await self._watch()
            except GoneError:
                log.info("list again: the server forgot where we were", resource=self.resource.plural)
                self._version, self._heard = "", False  # listing is dear, whatever was told before
            except Exception as error:  # noqa: BLE001 -- no kind of object may end the watches of the others
                asked_for = self._interrupted(error)
            held = self._clock() - opened > self._timing.pauses.after(failures + 1)
            failures = 1 if self._heard or held else failures + 1
            pause = self._timing.pauses.after(failures)
            await asyncio.sleep(asked_for or pause * (0.5 + self._random.random()))

    def _interrupted(self, error: Exception) -> float | None:
        """Note a failure; the pause that the server asked for, if it did."""
        if self.stale_since is None:
            self.stale_since = self._clock()
        expected = isinstance(error, QueuerError)
        log.warning(
            "watch interrupted", resource=self.resource.plural, said=str(error) or repr(error),
            exc_info=not expected,
        )  # fmt: skip
        if not expected:
            self._version = ""
        asked_for: float | None = getattr(error, "retry_after", None)
        return asked_for

    async def _list(self) -> None:
        """Take over a full list; what is not in it any more is reported deleted."""
        began = self._clock()
        self._due = began + self._timing.relist  # where listing fails, the watch goes on until then
        seen: set[str] = set()
        version = ""
        async for page in self._client.pages(self.resource.collection, selector=self._selector):
            version = page.metadata.resource_version
            for raw in page.items or ():
                uid = self._put(raw)
                if uid:
                    seen.add(uid)
        for uid in [uid for uid in self._items if uid not in seen]:
            self._drop(uid)
        took = self._clock() - began
        self._version, self._due = version, began + max(self._timing.relist, took / self._timing.share)
        self.stale_since = None
        self.synced.set()

    async def _watch(self) -> None:
        """One watch connection, until the server ends it: when the next list is due."""
        seconds = max(1, ceil(self._due - self._clock()))
        async with self._client.watch(
            self.resource.collection, resource_version=self._version, selector=self._selector, seconds=seconds
        ) as lines:
            self.stale_since = None
            while True:
                try:
                    async with asyncio.timeout(self._timing.silence):
                        line = await anext(lines, None)
                except TimeoutError:
                    # A dead stream, or a kind of which nothing ever changed: the server sends no bookmarks for it.
                    return
                if line is None:
                    return
                self._take(line)

    def _take(self, line: bytes) -> None:
        event = _event_of(line)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(event.object)
            case "DELETED":
                self._drop(_identified(event.object).metadata.uid, last=event.object)
            case "BOOKMARK":
                pass
            case _:
                said = _error_of(event.object)
                kind = GoneError if said.code == 410 else ApiError
                raise kind(status=said.code, reason=said.reason, message=said.message or "watch failed")
        self._version = _identified(event.object).metadata.resource_version or self._version
        self._heard = True

    def _put(self, raw: msgspec.Raw) -> str:
        """Take over one object; returns its uid, "" where it is not known (which is logged, not fatal)."""
        own = _Identity()
        try:
            own = _identified(raw).metadata
            old = self._items.get(own.uid)
            if old is None or old.metadata.resource_version != own.resource_version:
                new = self._decode(raw)
                self._items[own.uid] = new
                kind = ChangeKind.ADDED if old is None else ChangeKind.MODIFIED
                self._on_change(Change(kind=kind, object=new, old=old))
        except Exception as error:  # noqa: BLE001 -- one object never stops the others
            self._not_understood(own, error)
        return own.uid if own.uid in self._items else ""

    def _drop(self, uid: str, *, last: msgspec.Raw | None = None) -> None:
        old = self._items.pop(uid, None)
        if old is None:
            return
        try:
            final = self._decode(last) if last is not None else old
        except msgspec.MsgspecError:
            final = old
        try:
            self._on_change(Change(kind=ChangeKind.DELETED, object=final, old=old))
        except Exception as error:  # noqa: BLE001 -- as above
            self._not_understood(old.metadata, error)

    def _not_understood(self, own: _Identity | Meta, error: Exception) -> None:
        self.undecodable += 1
        log.error(
            "object not understood", resource=self.resource.plural, object=f"{own.namespace}/{own.name}",
            said=str(error) or repr(error), exc_info=not isinstance(error, msgspec.MsgspecError),
        )  # fmt: skip
