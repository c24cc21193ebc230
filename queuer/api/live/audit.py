"""Who did what and why. Who may `get audit` sees all of it, who administers queues what is about these alone."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.deps import PREFIX, Asking, Snapshot
from queuer.api.http.lines import LINES, lines, link_to, wants_lines
from queuer.api.identity.rights import Asker, Forbidden, Resource, Right, Verb
from queuer.api.models import Model
from queuer.api.words import instant
from queuer.domain.queue import ROOT
from queuer.store import audit, events, lookup
from queuer.store.config import load_config

router = APIRouter(prefix=PREFIX, tags=["live"])
_ALL = Right(verb=Verb.GET, resource=Resource.AUDIT)


class AuditEntry(Model):
    """One deed. `queues`: those it is about; `revision`: of the changeset that it applied."""

    id: int
    at: datetime
    actor: str
    source: str
    action: str
    reason: str
    revision: int | None
    queues: list[str]
    detail: dict[str, Any]


class AuditList(Model):
    """A page, newest first. It may be short, or empty, while `next` says that there is more."""

    as_of: datetime
    seq: int = Field(description="The newest event.")
    items: list[AuditEntry]
    next: int | None = Field(description="What to give as `after` for the next page.")


@router.get("/audit", response_model=AuditList, responses=LINES)
async def list_audit(
    snapshot: Snapshot,
    asker: Asking,
    request: Request,
    response: Response,
    *,
    target: Annotated[
        str | None, Query(max_length=253, description="A queue with all below it, or the uid of a job.")
    ] = None,
    actor: Annotated[str | None, Query(max_length=1024)] = None,
    after: Annotated[int | None, Query(ge=0, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditList | Response:
    """Entries that the caller may see, the newest first."""
    found = await audit.page(
        snapshot,
        before=after,
        target=target,
        actor=actor,
        paths=await _administered(asker, snapshot),
        count=limit,
    )
    items = [
        AuditEntry(
            id=row.id,
            at=instant(row.at),
            actor=row.actor,
            source=row.source,
            action=row.action,
            reason=row.reason,
            revision=row.revision,
            queues=list(row.queues),
            detail=dict(row.detail),
        )
        for row in found.rows
    ]
    link = link_to(request, "after", found.next)
    if wants_lines(request):
        return lines(items, link)
    if link is not None:
        response.headers["Link"] = link
    now, seq = await lookup.now(snapshot), await events.newest(snapshot)
    return AuditList(as_of=instant(now), seq=seq, items=items, next=found.next)


async def _administered(asker: Asker, connection: AsyncConnection) -> Collection[str] | None:
    """The queues whose entries the caller sees; None = all entries. Raises Forbidden for who administers none."""
    if await asker.may(_ALL):
        return None
    config = await load_config(connection)
    found = await asker.administered({ROOT, *(queue.path for queue in config.tree)})
    if not found:
        raise Forbidden(asker.caller, _ALL)
    return found
