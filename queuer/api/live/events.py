"""What happened, numbered: steps of jobs, changes of queues.

Who does not read a namespace is told of none of its jobs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from queuer.api.deps import PREFIX, Snapshot, Visible
from queuer.api.http.lines import LINES
from queuer.api.http.lists import Fields, Limit, Page, QueueAndBelow, answer, chosen, queue_of, standing
from queuer.api.http.times import Instant
from queuer.api.models import Model
from queuer.api.queues.views import check_queue
from queuer.api.words import instant
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.store import events

router = APIRouter(prefix=PREFIX, tags=["live"])


class EventItem(Model):
    """`type`: `workload.<what>`, `queue.<what>`, …; `uid`: the job it is about."""

    id: int
    at: datetime
    type: str
    uid: str | None
    queue: str | None
    data: dict[str, Any]


class EventList(Page):
    """A page. It may be short, or empty, while `next` says that there is more."""

    items: list[EventItem]
    next: int | None = Field(
        description="The `cursor` of the next page; `after`, or `before`, means the same."
    )


@router.get("/events", response_model=EventList, responses=LINES)
async def list_events(
    request: Request,
    namespaces: Visible,
    snapshot: Snapshot,
    *,
    after: Annotated[int | None, Query(ge=0, description="Later than this event, oldest first.")] = None,
    before: Annotated[int | None, Query(ge=0, description="Earlier than this event, newest first.")] = None,
    type: Annotated[str | None, Query(max_length=63, description="A type, or its first word.")] = None,
    queue: QueueAndBelow = None,
    uid: str | None = None,
    since: Annotated[Instant | None, Query(description="Happened then or later.")] = None,
    until: Annotated[Instant | None, Query(description="Happened before then.")] = None,
    fields: Fields = None,
    limit: Limit = 100,
    cursor: Annotated[int | None, Query(ge=0, description="`next` of the page before.")] = None,
) -> Response:
    """Events that the caller may see: the newest first, or with `after` in the order in which they happened."""
    if after is not None and before is not None:
        raise InvalidInput(
            FieldProblem(field="before", message="goes not with after", hint="give one of them")
        )
    forward, below, columns = after is not None, queue_of(queue), chosen(fields, EventItem)
    edge = cursor if cursor is not None else after if forward else before
    if below is not None:
        await check_queue(snapshot, below)
    found = await events.page(
        snapshot,
        after=edge if forward else None,
        before=None if forward else edge,
        type=type,
        queue=below,
        uid=uid,
        since=since,
        until=until,
        namespaces=namespaces,
        count=limit,
    )
    items = [
        EventItem(id=id, at=instant(e.at), type=e.type, uid=e.uid, queue=e.queue, data=dict(e.data))
        for id, e in found.rows
    ]
    page = EventList(items=items, next=found.next, **await standing(snapshot))
    return answer(request, page, fields=columns, following=page.next, exports=True)
