"""Numbered events: steps of jobs, changes of queues.

Callers who may not read a namespace are told of none of its jobs.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from queuer.api.deps import PREFIX, Snapshot, Visible
from queuer.api.http.lists import Limit, Page, QueueAndBelow, check_times, queue_of, standing
from queuer.api.http.parameters import check_queue
from queuer.api.models import Instant, Model
from queuer.domain.errors import InvalidInput
from queuer.domain.events import check_type, event_text
from queuer.domain.workload import State
from queuer.store import events
from queuer.store.tables import CommandOutcome, CommandVerb

router = APIRouter(prefix=PREFIX, tags=["live"])


class EventData(Model):
    """The state afterwards, as far as the type of the event has it. A type may have more than is named here."""

    model_config = ConfigDict(extra="allow", serialize_by_alias=True)

    state: State | None = Field(default=None, description="Of a job that was submitted, edited or deleted.")
    begin: State | None = Field(default=None, alias="from", description="The state before a step.")
    to: State | None = Field(default=None, description="The state after it.")
    attempt: int | None = None
    cause: str | None = Field(default=None, description="Of a step that no job takes by itself.")
    note: str | None = Field(default=None, description="The same as a sentence.")
    beneficiary: str | None = Field(default=None, description="uid of the job for whose sake it was evicted.")
    cycle: int | None = Field(default=None, description="That decided it.")
    domains: list[str] | None = Field(default=None, description="Where it was admitted to.")
    command: int | None = Field(default=None, description="Id of a command.")
    verb: CommandVerb | None = None
    by: str | None = Field(default=None, description="Who gave it.")
    reason: str | None = Field(default=None, description="Why.")
    outcome: CommandOutcome | None = None
    message: str | None = Field(default=None, description="How it ended.")

    @model_serializer(mode="wrap")
    def _told(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what this type does not have."""
        return {name: value for name, value in serialize(self).items() if value is not None}


class EventJob(Model):
    """The name of the job."""

    kind: str
    namespace: str
    name: str


class EventItem(Model):
    """`type`: `workload.<what>`, `queue.<what>`, …; `uid`, `job`: the job it is about, its names while it is kept;
    `text`: what happened.
    """

    id: int
    at: Instant
    type: str
    uid: str | None
    job: EventJob | None
    queue: str | None
    text: str
    data: EventData


class EventList(Page):
    """A page. It may be short, or empty, while `next` says that there is more."""

    items: list[EventItem]
    next: int | None = Field(
        description="The `cursor` of the next page; `after`, or `before`, means the same."
    )


@router.get("/events")
async def list_events(
    namespaces: Visible,
    snapshot: Snapshot,
    *,
    after: Annotated[int | None, Query(ge=0, description="Later than this event, oldest first.")] = None,
    before: Annotated[int | None, Query(ge=0, description="Earlier than this event, newest first.")] = None,
    type: Annotated[str | None, Query(max_length=63, description="A type, or its first word.")] = None,
    queue: QueueAndBelow = None,
    uid: str | None = None,
    namespace: Annotated[
        str | None, Query(max_length=253, description="Only what is about jobs of this namespace.")
    ] = None,
    since: Annotated[Instant | None, Query(description="Happened then or later.")] = None,
    until: Annotated[Instant | None, Query(description="Happened before then.")] = None,
    limit: Limit = 100,
    cursor: Annotated[int | None, Query(ge=0, description="`next` of the page before.")] = None,
) -> EventList:
    """Events that the caller may see: the newest first, or with `after` in the order in which they happened."""
    if after is not None and before is not None:
        raise InvalidInput.at("before", "goes not with after", "give one of them")
    check_times(since, until)
    if type is not None:
        check_type(type)
    forward, below = after is not None, queue_of(queue)
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
        namespace=namespace,
        since=since,
        until=until,
        namespaces=namespaces,
        count=limit,
    )
    items = [
        EventItem.from_record(
            event, id=id, job=found.jobs.get(event.uid or ""), text=event_text(event.type, event.data)
        )
        for id, event in found.rows
    ]
    return EventList(items=items, next=found.next, **await standing(snapshot))
