"""What happened, numbered: steps of jobs, changes of queues.

Who does not read a namespace is told of none of its jobs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from queuer.api.deps import PREFIX, Asking, Snapshot
from queuer.api.http.lines import LINES, lines, link_to, wants_lines
from queuer.api.models import Model
from queuer.api.queues.views import check_queue
from queuer.api.words import instant
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.store import events, lookup, reads

router = APIRouter(prefix=PREFIX, tags=["live"])


class EventItem(Model):
    """`type`: `workload.<what>`, `queue.<what>`, …; `uid`: the job it is about."""

    id: int
    at: datetime
    type: str
    uid: str | None
    queue: str | None
    data: dict[str, Any]


class EventList(Model):
    """A page. It may be short, or empty, while `next` says that there is more."""

    as_of: datetime
    seq: int = Field(description="The newest event of all, shown or not: go on with `after` from here.")
    items: list[EventItem]
    next: int | None = Field(description="What to give as `after`, or `before`, for the next page.")


@router.get("/events", response_model=EventList, responses=LINES)
async def list_events(
    snapshot: Snapshot,
    asker: Asking,
    request: Request,
    response: Response,
    *,
    after: Annotated[int | None, Query(ge=0, description="Later than this event, oldest first.")] = None,
    before: Annotated[int | None, Query(ge=0, description="Earlier than this event, newest first.")] = None,
    type: Annotated[str | None, Query(max_length=63, description="A type, or its first word.")] = None,
    queue: Annotated[str | None, Query(description="This queue and all below it.")] = None,
    uid: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EventList | Response:
    """Events that the caller may see: the newest first, or with `after` in the order in which they happened."""
    if after is not None and before is not None:
        raise InvalidInput(
            FieldProblem(field="before", message="goes not with after", hint="give one of them")
        )
    if queue is not None:
        await check_queue(snapshot, queue)
    found = await events.page(
        snapshot,
        after=after,
        before=before,
        type=type,
        queue=queue,
        uid=uid,
        namespaces=None
        if await asker.reads_everything()
        else await asker.readable(await reads.namespaces(snapshot)),
        count=limit,
    )
    items = [
        EventItem(id=id, at=instant(e.at), type=e.type, uid=e.uid, queue=e.queue, data=dict(e.data))
        for id, e in found.rows
    ]
    link = link_to(request, "before" if after is None else "after", found.next)
    if wants_lines(request):
        return lines(items, link)
    if link is not None:
        response.headers["Link"] = link
    now, seq = await lookup.now(snapshot), await events.newest(snapshot)
    return EventList(as_of=instant(now), seq=seq, items=items, next=found.next)
