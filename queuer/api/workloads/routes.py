"""Workloads: a slim, paged list, and each with everything that is known of it and why it waits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.cycles.newest import Newest
from queuer.api.deps import PREFIX, Asking, Engine, NewestCycle, Settings, Snapshot, one_view
from queuer.api.http.cursor import read_cursor
from queuer.api.identity.rights import Asker, Resource, Right, Verb
from queuer.api.queues.views import check_queue
from queuer.api.workloads import redact, views
from queuer.api.workloads.models import Explanation, Timeline, WorkloadDetail, WorkloadList
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store import reads
from queuer.store.reads import no_workload
from queuer.store.stored import StoredRow

W = TypeVar("W", bound=StrEnum)

router = APIRouter(prefix=PREFIX, tags=["workloads"])
MAX_PAGE = 1000


@router.get("/workloads")
async def list_workloads(
    request: Request,
    response: Response,
    snapshot: Snapshot,
    asker: Asking,
    settings: Settings,
    *,
    queue: Annotated[str | None, Query(description="This queue and all below it.")] = None,
    namespace: str | None = None,
    name: str | None = None,
    state: Annotated[str | None, Query(description="Comma-separated states.")] = None,
    reason: Annotated[str | None, Query(description="A reason token.")] = None,
    deleted: Annotated[bool, Query(description="Also jobs whose object is gone.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> WorkloadList:
    """Workloads of the namespaces that the caller may read, the newest submitted first.

    Pages are stable while workloads come and go.
    """
    if queue is not None:
        await check_queue(snapshot, queue)
    page = await views.workloads(
        snapshot,
        namespaces=await _readable(asker, snapshot),
        queue=queue,
        namespace=namespace,
        name=name,
        states=_states(state),
        token=None if reason is None else _word(reason, Token, field="reason"),
        deleted=deleted,
        limit=limit,
        stale_after=settings.stale_after,
        after=None if cursor is None else read_cursor(cursor),
    )
    if page.next is not None:
        url = request.url.include_query_params(cursor=page.next)
        response.headers["Link"] = f'<{url}>; rel="next"'
    return page


@router.get("/workloads/by-ref/{namespace}/{kind}/{name}")
async def get_workload_by_reference(
    engine: Engine,
    newest: NewestCycle,
    asker: Asking,
    settings: Settings,
    namespace: str,
    kind: str,
    name: str,
) -> WorkloadDetail:
    """The newest workload of a job's name; `kind` as in its manifest (any case)."""
    await asker.require(Right(verb=Verb.GET, resource=Resource.WORKLOADS, namespace=namespace))
    async with one_view(engine) as connection:
        found = await views.workload_by_reference(
            connection, namespace=namespace, kind=kind, name=name, stale_after=settings.stale_after
        )
        row = await newest.read(connection)
    return await _explained(found, newest, row, asker)


@router.get("/workloads/{uid}")
async def get_workload(
    engine: Engine, newest: NewestCycle, asker: Asking, settings: Settings, uid: str
) -> WorkloadDetail:
    """One workload by the job's uid; ended ones too, while they are kept."""
    async with one_view(engine) as connection:
        found = await views.workload(connection, uid, stale_after=settings.stale_after)
        row = await newest.read(connection)
    if not await asker.reads(found.namespace):
        raise no_workload(uid)  # as if there were none: whether a uid exists is its owner's to know
    return await _explained(found, newest, row, asker)


@router.get("/workloads/{uid}/timeline")
async def get_timeline(snapshot: Snapshot, asker: Asking, uid: str) -> Timeline:
    """Its states and the reasons for which it waited, as spans, and the cycles that decided about it."""
    namespace, found = await views.past(snapshot, uid)
    if not await asker.reads(namespace):
        raise no_workload(uid)
    return found


@router.get("/workloads/{uid}/explanation")
async def get_explanation(
    engine: Engine, newest: NewestCycle, asker: Asking, settings: Settings, uid: str
) -> Explanation:
    """Why it waits: one primary reason with its numbers, all others that hold, what would let it start."""
    return (await get_workload(engine, newest, asker, settings, uid)).explanation


async def _readable(asker: Asker, connection: AsyncConnection) -> frozenset[str] | None:
    """The namespaces whose jobs the caller sees; None: all."""
    if await asker.reads_everything():
        return None
    return await asker.readable(await reads.namespaces(connection))


async def _explained(
    found: WorkloadDetail, newest: Newest, row: StoredRow | None, asker: Asker
) -> WorkloadDetail:
    """With all that the newest cycle has to say, worked out when no connection is held any more."""
    waits = found.state is State.QUEUED and found.explanation.primary is not None
    return await redact.answer(found, await newest.explain(row, found.uid) if waits else None, asker)


def _states(text: str | None) -> tuple[State, ...]:
    return tuple(_word(part, State, field="state") for part in (text or "").split(",") if part)


def _word(text: str, words: type[W], *, field: str) -> W:
    try:
        return words(text)
    except ValueError as error:
        problem = FieldProblem(
            field=field, message=f"{text!r} is not one of the words", hint=nearest(text, words)
        )
        raise InvalidInput(problem) from error
