"""Queues with their configuration, live amounts, headroom, line and history, and how they compare."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from queuer.api.deps import PREFIX, Asking, Engine, Settings, Snapshot, Standing, one_view
from queuer.api.http.times import Instant
from queuer.api.live.controller import controller
from queuer.api.queues import fair, headroom, models, pending, views
from queuer.api.queues import history as past
from queuer.api.words import instant
from queuer.domain.queue import ROOT
from queuer.store import lookup, reads

router = APIRouter(prefix=PREFIX, tags=["queues"])
MAX_PAGE = 1000
_NO_CYCLE = "No cycle has seen this queue yet."


@router.get("/queues")
async def list_queues(snapshot: Snapshot, settings: Settings) -> models.QueueList:
    """All queues, parents before children, with amounts of their subtrees from one moment."""
    return await views.queues(snapshot, stale_after=settings.stale_after)


@router.get("/queues/{path}")
async def get_queue(snapshot: Snapshot, path: str) -> models.Queue:
    """One queue by its path, e.g. `root.research.team-a`."""
    return await views.queue(snapshot, path)


@router.get("/queues/{path}/headroom")
async def get_headroom(
    engine: Engine,
    standing: Standing,
    settings: Settings,
    path: str,
    shape: Annotated[str | None, Query(description="One pod, e.g. `nvidia.com/gpu:8,cpu:16`.")] = None,
) -> models.Headroom:
    """How much one job may start now by resource and flavor, what is its own, and what keeps it from more.

    A probe job gets it from the decision on the newest stored cycle. Nobody is evicted for it, and nothing reserved.
    """
    async with one_view(engine) as connection:
        await views.check_queue(connection, path)
        row = await standing.read(connection)
        leader = await controller(connection, stale_after=settings.stale_after)
    found = await standing.ask(row, lambda number, there: headroom.told(number, there, path, shape))
    if found is None:
        found = models.Headroom(queue=path, text=_NO_CYCLE, rows=[], cycle=None, as_of=None)
    return found.model_copy(update={"controller": leader})


@router.get("/queues/{path}/pending")
async def get_pending(
    request: Request,
    response: Response,
    engine: Engine,
    standing: Standing,
    asker: Asking,
    settings: Settings,
    *,
    path: str,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> models.Pending:
    """Who waits in a queue and below, in the order of the last cycle.

    Jobs of namespaces that the caller may read in full, runs of others between them as counts and amounts.
    """
    after = None if cursor is None else pending.Anchor.read(cursor)
    async with one_view(engine) as connection:
        row = await standing.read(connection)
    known = await standing.ask(row, lambda number, there: (number, pending.ranks(number, there)))
    number, ranks = known or (None, None)
    async with one_view(engine) as connection:
        await views.check_queue(connection, path)
        everything = await asker.reads_everything()
        readable = None if everything else await asker.readable(await reads.namespaces(connection))
        items, end = await pending.page(connection, path, ranks, readable=readable, limit=limit, after=after)
        page = models.Pending(
            items=items,
            next=None if end is None else str(end),
            cycle=number,
            controller=await controller(connection, stale_after=settings.stale_after),
            as_of=instant(await lookup.now(connection)),
        )
    if page.next is not None:
        response.headers["Link"] = f'<{request.url.include_query_params(cursor=page.next)}>; rel="next"'
    return page


@router.get("/queues/{path}/history")
async def get_history(
    snapshot: Snapshot,
    path: str,
    *,
    step: Annotated[str | None, Query(description="A duration: minutes, or whole hours.")] = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> models.History:
    """What a queue with all below it used and waited for, and how long who started had waited."""
    await views.check_queue(snapshot, path)
    asked = past.window(step, since, until, now=await lookup.now(snapshot))
    return await past.history(snapshot, path, asked)


@router.get("/queue-history")
async def get_tree_history(
    snapshot: Snapshot, at: Annotated[Instant, Query(description="A time that is past.")]
) -> models.PastTree:
    """What all queues used and waited for at a past time: the last minute, or hour, up to it that is kept."""
    return await past.tree(snapshot, at, now=await lookup.now(snapshot))


@router.get("/fair-share")
async def get_fair_share(
    engine: Engine, standing: Standing, settings: Settings, root: str = ROOT
) -> models.FairShare:
    """The factors by which the order compares queues, and who has what starved queues lack."""
    async with one_view(engine) as connection:
        await views.check_queue(connection, root)
        row = await standing.read(connection)
        leader = await controller(connection, stale_after=settings.stale_after)
    found = await standing.ask(row, lambda number, there: fair.told(number, there, root))
    if found is None:
        found = models.FairShare(root=root, items=[], deficits=[], pairs=[], cycle=None, as_of=None)
    return found.model_copy(update={"controller": leader})
