"""Queues with their configuration, live amounts, headroom, line and history, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from queuer.api.controller import Leader
from queuer.api.deps import PREFIX, Asking, Engine, Latest, Snapshot, Visible, one_view
from queuer.api.http.lists import (
    MOST,
    Cursor,
    Limit,
    QueueAndBelow,
    make_cursor,
    queue_of,
    read_cursor,
    words,
)
from queuer.api.http.parameters import check_queue, no_queue
from queuer.api.identity.rights import Asker, masked_for, reading
from queuer.api.models import Instant, instant
from queuer.api.queues import headroom, models, pending, views
from queuer.api.queues import history as past
from queuer.api.queues.pending import RankCache
from queuer.api.queues.tree_cache import Tree
from queuer.domain.queue import ROOT, QueueState
from queuer.solver import ask
from queuer.store import lookup

router = APIRouter(prefix=PREFIX, tags=["queues"])
_NO_CYCLE = "No cycle has seen this queue yet."


@router.get("/queues")
async def list_queues(
    tree: Tree,
    asker: Asking,
    leader: Leader,
    *,
    queue: QueueAndBelow = None,
    state: Annotated[str | None, Query(description="Comma-separated states that are in force.")] = None,
    limit: Annotated[int | None, Query(ge=1, le=MOST, description="Default: all.")] = None,
    cursor: Cursor = None,
) -> models.QueueList:
    """Queues, parents before children, with amounts of their subtrees from one moment."""
    below = queue_of(queue)
    states = words(state, QueueState, field="state")
    after = None if cursor is None else views.place(read_cursor(cursor, "path", str)[0])
    there = await tree()
    config = there.view.config
    if below is not None and below not in there.queues:
        raise no_queue(config.tree, below)
    meant = [
        found
        for path, found in there.queues.items()
        if (below is None or below in config.tree.lineage(path))
        and (not states or found.effective_state in states)
    ]
    rest = [found for found in meant if after is None or views.place(found.path) > after]
    items = rest[:limit]
    return models.QueueList(
        items=await _told(asker, items),
        next=make_cursor("path", items[-1].path) if len(rest) > len(items) else None,
        revision=config.revision,
        controller=leader,
        **there.standing,
    )


@router.get("/queues/{path}")
async def get_queue(tree: Tree, asker: Asking, path: str) -> models.QueueDetail:
    """One queue by its path, e.g. `root.research.team-a`."""
    there = await tree()
    if path not in there.queues:
        raise no_queue(there.view.config.tree, path)
    (masked_for,) = await _told(asker, [there.queues[path]])
    may = [*models.QueueVerb] if await asker.administers(path) else []
    return models.QueueDetail(**masked_for.model_dump(), may=may)


async def _told(asker: Asker, queues: Sequence[models.Queue]) -> list[models.Queue]:
    """Without the people that they name, but for who administers them."""
    said = {each.path: {"access": each.access, "placement": each.placement} for each in queues}
    found = await masked_for(asker, said)
    return [
        each if found[each.path] == said[each.path] else each.model_copy(update=found[each.path])
        for each in queues
    ]


@router.get("/queues/{path}/headroom")
async def get_headroom(
    engine: Engine,
    asker: Asking,
    latest: Latest,
    leader: Leader,
    path: str,
    shape: Annotated[str | None, Query(description="One pod, e.g. `nvidia.com/gpu:8,cpu:16`.")] = None,
    user: Annotated[str | None, Query(max_length=512, description="Whose job. Default: who asks.")] = None,
) -> models.Headroom:
    """How much one job may start now by resource and flavor, what is its own, and what keeps it from more.

    A probe job gets it from the decision on the newest stored cycle. Nobody is evicted for it, and nothing reserved.
    """
    caller = asker.caller
    who = headroom.Who(user=caller.name, groups=caller.groups)
    if user not in (None, caller.name):
        await asker.require(reading())
        who = headroom.Who(user=user or "", groups=None)
    async with one_view(engine) as connection:
        await check_queue(connection, path)
    table = await latest.ask(ask.QueueHeadroom(queue=path, shape=shape, user=who.user), party=caller.party)
    found = None if table is None else headroom.headroom_of(table, path, who)
    if found is None:
        found = models.Headroom(queue=path, text=_NO_CYCLE, rows=[], cycle=None, as_of=None)
    return found.model_copy(update={"controller": leader})


@router.get("/queues/{path}/pending")
async def get_pending(
    engine: Engine,
    ranks: RankCache,
    readable: Visible,
    leader: Leader,
    *,
    path: str,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.Pending:
    """The jobs that wait in a queue and below, in the order of the last cycle.

    Jobs of namespaces that the caller may read in full, runs of others between them as counts and amounts.
    """
    after = None if cursor is None else read_cursor(cursor, pending.ORDER, int)
    known = await ranks()
    placed = None if known is None else known.value
    async with one_view(engine) as connection:
        await check_queue(connection, path)
        items, end = await pending.page(connection, path, placed, readable=readable, limit=limit, after=after)
        return models.Pending(
            items=items,
            next=end,
            cycle=None if known is None else known.cycle,
            controller=leader,
            as_of=instant(await lookup.now(connection)),
        )


@router.get("/queues/{path}/history")
async def get_history(
    snapshot: Snapshot,
    path: str,
    *,
    step: Annotated[str | None, Query(description="A duration: minutes, or whole hours.")] = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> models.History:
    """The use and demand of a queue with all below it, and the waits of jobs that started."""
    await check_queue(snapshot, path)
    asked = past.window(step, since, until, now=await lookup.now(snapshot))
    return await past.history(snapshot, path, asked)


@router.get("/queue-history")
async def get_tree_history(
    snapshot: Snapshot, at: Annotated[Instant, Query(description="A time that is past.")]
) -> models.PastTree:
    """The use and demand of all queues at a past time: the last kept minute, or hour, up to it."""
    return await past.tree(snapshot, at, now=await lookup.now(snapshot))


@router.get("/fair-share")
async def get_fair_share(
    engine: Engine, asker: Asking, latest: Latest, leader: Leader, root: str = ROOT
) -> models.FairShare:
    """The factors by which the order compares queues, and who has what starved queues lack."""
    async with one_view(engine) as connection:
        await check_queue(connection, root)
    table = await latest.ask(ask.FairShare(root=root), party=asker.caller.party)
    if table is None:
        found = models.FairShare(root=root, items=[], deficits=[], pairs=[], cycle=None, as_of=None)
    else:
        found = views.fair_share(table, root)
    return found.model_copy(update={"controller": leader})
