"""`/stream`: what changes, as it changes, in ids and small figures. Clients that need more read it from the lists.

Rights are looked at anew twice a minute: a token that has ended, or a right that was taken, ends what it showed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse

from queuer.api.deps import PREFIX, Asking, asking
from queuer.api.http.problems import code_of
from queuer.api.identity.rights import Asker, Unauthenticated
from queuer.api.live.feed import Batch, Feed, Follower, Topic, message
from queuer.domain.errors import InvalidInput, Unavailable
from queuer.domain.fields import nearest

router = APIRouter(prefix=PREFIX, tags=["live"])
AGAIN = 30.0
"""Seconds between two looks at rights. Identities keep answers for up to as long again."""
QUIET = 15.0
"""Seconds without news after which a `beat` keeps proxies from closing, and says that the server is there."""
ROWS = 100
"""Jobs of one message."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # which nginx would do


class Viewer:
    """One caller's view, until it is asked anew."""

    def __init__(self, request: Request, asker: Asker) -> None:
        self._request, self._asker = request, asker
        self._known: dict[str, bool] = {}
        self._asked = time.monotonic()

    @property
    def due(self) -> float:
        """Seconds until the caller is asked for anew."""
        return max(0.0, self._asked + AGAIN - time.monotonic())

    async def again(self) -> None:
        """The caller, whose known rights have lapsed. Raises Unauthenticated, Unavailable."""
        self._asker = await asking(self._request)
        self._known.clear()
        self._asked = time.monotonic()

    async def jobs(self, batch: Batch) -> list[dict[str, Any]]:
        """The jobs of namespaces that the caller reads."""
        fresh = batch.jobs.keys() - self._known.keys()
        if fresh:
            seen = await self._asker.readable(fresh)
            self._known |= {space: space in seen for space in fresh}
        return [
            {"uid": job.uid, "state": job.state, "reason": job.token, "gone": job.gone}
            for space, jobs in batch.jobs.items()
            if self._known[space]
            for job in jobs
        ]


def _topics(
    topics: Annotated[str, Query(max_length=100, description="Comma-separated topics.")] = ",".join(Topic),
) -> frozenset[Topic]:
    words = [part for part in topics.split(",") if part]
    wrong = [word for word in words if word not in set(Topic)]
    if wrong or not words:
        problem = f"{wrong[0]!r} is not one of the topics" if wrong else "no topic is named"
        hint = nearest(wrong[0] if wrong else "", Topic)
        raise InvalidInput.at("topics", problem, hint)
    return frozenset(map(Topic, words))


async def _follower(
    request: Request,
    asker: Asking,
    _topics: Annotated[frozenset[Topic], Depends(_topics)],
    *,
    after: Annotated[int | None, Query(ge=0, description="The `seq` of a list.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> AsyncIterator[Follower]:
    feed = cast(Feed, request.app.state.feed)
    since = after if last_event_id is None else last_event_id
    async with feed.followed(asker.caller.party, after=since) as follower:
        yield follower


class EventStream(StreamingResponse):
    """Events that are encoded already; FastAPI's own would encode them for each follower anew."""

    media_type = "text/event-stream"


@router.get("/stream", response_class=EventStream)
async def get_stream(
    request: Request,
    asker: Asking,
    topics: Annotated[frozenset[Topic], Depends(_topics)],
    follower: Annotated[Follower, Depends(_follower)],
) -> EventStream:
    """Server-sent events of the topics, from `Last-Event-ID` or `after` on. `reset`: read these topics anew.
    `beat`: up to its id all is told.
    """
    return EventStream(_told(follower, topics, Viewer(request, asker)), headers=_HEADERS)


async def _told(follower: Follower, topics: frozenset[Topic], viewer: Viewer) -> AsyncIterator[bytes]:
    """Messages, those of a batch together where they are at hand together."""
    if follower.too_old:
        yield _reset(topics, "too old")
    if follower.starts is not None:
        yield _reached(follower.starts)
    try:
        while not follower.ended:
            batch = await follower.next(min(viewer.due, QUIET))
            if not viewer.due:
                await viewer.again()
            if batch is None:
                yield message("beat", {})
            else:
                if told := b"".join(data for topic, data in batch.told.items() if topic in topics):
                    yield told
                yield await _rest(batch, topics, viewer)
    except (Unauthenticated, Unavailable) as error:
        yield message("end", {"why": error.message, "code": code_of(error)})
        return
    if follower.ended == "slow":
        yield _reset(topics, "slow")


async def _rest(batch: Batch, topics: frozenset[Topic], viewer: Viewer) -> bytes:
    """The part of a batch that is not for everybody. The id comes last: who breaks off before it gets all of
    it again.
    """
    found, anew = list[bytes](), batch.anew & topics
    if Topic.WORKLOADS in topics and (jobs := await viewer.jobs(batch)):
        if len(jobs) > ROWS:
            anew |= {Topic.WORKLOADS}
        else:
            found.append(message(Topic.WORKLOADS, {"workloads": jobs}))
    if anew:
        found.append(_reset(anew, "many changes"))
    return b"".join((*found, _reached(batch.id)))


def _reset(topics: frozenset[Topic], why: str) -> bytes:
    return message("reset", {"topics": sorted(topics), "why": why})


def _reached(event: int) -> bytes:
    return format_sse_event(event="beat", data_str="{}", id=str(event))
