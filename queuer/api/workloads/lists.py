"""`GET /workloads`: slim rows in pages, or counts and amounts of those that are alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query

from queuer.api.controller import Leader
from queuer.api.deps import PREFIX, Snapshot, Visible
from queuer.api.http.lists import (
    Cursor,
    Limit,
    QueueAndBelow,
    check_times,
    make_cursor,
    queue_of,
    read_cursor,
    standing,
    word,
    words,
)
from queuer.api.http.parameters import check_queue
from queuer.api.models import Instant
from queuer.api.workloads import models, views
from queuer.domain.errors import InvalidInput
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State
from queuer.store import listing
from queuer.store.listing import By, Order, Wanted
from queuer.store.workloads import StoredWorkload

router = APIRouter(prefix=PREFIX, tags=["workloads"])
LIVE = tuple(state for state in State if not state.ended)
_KEYS: dict[Order, Callable[[StoredWorkload], Any]] = {
    Order.SUBMITTED: lambda stored: stored.workload.submitted,
    Order.PRIORITY: lambda stored: stored.workload.priority,
    Order.NAME: lambda stored: stored.workload.name,
    Order.QUEUE: lambda stored: stored.workload.queue,
    Order.USER: lambda stored: stored.workload.user,
}
_KINDS: dict[Order, type] = {Order.SUBMITTED: float, Order.PRIORITY: int}
"""Of keys; others are texts."""
_PATTERN = f"`*` stands for any text; it is looked for among live jobs and the newest {listing.RECENT:,}."


@router.get("/workloads")
async def list_workloads(
    namespaces: Visible,
    leader: Leader,
    snapshot: Snapshot,
    *,
    queue: QueueAndBelow = None,
    namespace: Annotated[str | None, Query(max_length=253)] = None,
    name: Annotated[str | None, Query(max_length=253, description=_PATTERN)] = None,
    user: Annotated[str | None, Query(max_length=1024, description=_PATTERN)] = None,
    state: Annotated[str | None, Query(description="Comma-separated states.")] = None,
    reason: Annotated[str | None, Query(description="Comma-separated reason tokens.")] = None,
    unstartable: Annotated[
        bool | None, Query(description="Live jobs that can never start as they are, or those that might.")
    ] = None,
    verdict: Annotated[
        str | None, Query(description="Comma-separated verdicts of the reasons of jobs that wait.")
    ] = None,
    since: Annotated[Instant | None, Query(description="Submitted then or later.")] = None,
    until: Annotated[Instant | None, Query(description="Submitted before then.")] = None,
    deleted: Annotated[bool, Query(description="Also jobs whose object is gone.")] = False,
    sort: Annotated[
        str, Query(max_length=20, description="`submitted`, or of live jobs another key; `-` = falling.")
    ] = "-submitted",
    group_by: Annotated[
        By | None, Query(alias="groupBy", description="Groups of live jobs instead of the jobs.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.WorkloadList:
    """Workloads of the namespaces that the caller may read, the newest submitted first.

    Pages are stable while workloads come and go. Orders other than by submit time, and groups, are of live jobs.
    """
    check_times(since, until)
    order = word(sort.removeprefix("-"), Order, field="sort")
    wanted = Wanted(
        namespaces=namespaces,
        queue=queue_of(queue),
        namespace=namespace,
        name=name,
        user=user,
        states=words(state, State, field="state"),
        tokens=words(reason, Token, field="reason"),
        unstartable=unstartable,
        verdicts=words(verdict, Verdict, field="verdict"),
        since=None if since is None else since.timestamp(),
        until=None if until is None else until.timestamp(),
        deleted=deleted,
    )
    if group_by is not None or order is not Order.SUBMITTED:
        wanted = _live(wanted)
    after = None if cursor is None else read_cursor(cursor, sort, _KINDS.get(order, str))
    if wanted.queue is not None:
        await check_queue(snapshot, wanted.queue)
    more: dict[str, Any] = {
        "controller": leader,
        **await standing(snapshot),
        "others": await listing.others(snapshot, wanted),
    }
    if group_by is not None:
        found, total = await listing.groups(snapshot, wanted, group_by, count=limit)
        groups = [models.WorkloadGroup.from_record(group) for group in found]
        return models.WorkloadList(items=[], next=None, groups=groups, groups_total=total, **more)
    rising = not sort.startswith("-")
    page = await listing.workloads(snapshot, wanted, order=order, rising=rising, after=after, count=limit + 1)
    last = page[limit - 1] if len(page) > limit else None
    following = None if last is None else make_cursor(sort, _KEYS[order](last), last.workload.uid)
    return models.WorkloadList(items=await views.rows(snapshot, page[:limit]), next=following, **more)


def _live(wanted: Wanted) -> Wanted:
    """The same of live jobs. Raises InvalidInput where others are asked for."""
    problem = "goes with groups and orders of live jobs alone"
    if wanted.deleted:
        raise InvalidInput.at("deleted", f"true: {problem}", "leave it out")
    ended = [state for state in wanted.states if state.ended]
    if ended:
        hint = f"allowed: {', '.join(LIVE)}"
        raise InvalidInput.at("state", f"{ended[0]}: {problem}", hint)
    return wanted if wanted.states else replace(wanted, states=LIVE)
