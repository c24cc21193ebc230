"""Workloads: a slim, paged list, and each with everything that is known of it and why it waits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response

from queuer.api import views
from queuer.api.cursor import read_cursor
from queuer.api.deps import PREFIX, Engine, NewestCycle, Snapshot, one_view
from queuer.api.models import Explanation, WorkloadDetail, WorkloadList
from queuer.api.newest import Newest
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.stored import StoredRow

W = TypeVar("W", bound=StrEnum)

router = APIRouter(prefix=PREFIX, tags=["workloads"])
MAX_PAGE = 1000
_PARAMETERS = frozenset({"queue", "namespace", "name", "state", "reason", "deleted", "limit", "cursor"})


@router.get("/workloads")
async def list_workloads(
    request: Request,
    response: Response,
    snapshot: Snapshot,
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
    """Workloads, the newest submitted first. Pages are stable while workloads come and go."""
    _refuse_unknown(request)
    page = await views.workloads(
        snapshot,
        queue=queue,
        namespace=namespace,
        name=name,
        states=_states(state),
        token=None if reason is None else _word(reason, Token, field="reason"),
        deleted=deleted,
        limit=limit,
        after=None if cursor is None else read_cursor(cursor),
    )
    if page.next is not None:
        url = request.url.include_query_params(cursor=page.next)
        response.headers["Link"] = f'<{url}>; rel="next"'
    return page


@router.get("/workloads/by-ref/{namespace}/{kind}/{name}")
async def get_workload_by_reference(
    engine: Engine, newest: NewestCycle, namespace: str, kind: str, name: str
) -> WorkloadDetail:
    """The newest workload of a job's name; `kind` as in its manifest (any case)."""
    async with one_view(engine) as connection:
        found = await views.workload_by_reference(connection, namespace=namespace, kind=kind, name=name)
        row = await newest.read(connection)
    return await _explained(found, newest, row)


@router.get("/workloads/{uid}")
async def get_workload(engine: Engine, newest: NewestCycle, uid: str) -> WorkloadDetail:
    """One workload by the job's uid; ended ones too, while they are kept."""
    async with one_view(engine) as connection:
        found = await views.workload(connection, uid)
        row = await newest.read(connection)
    return await _explained(found, newest, row)


@router.get("/workloads/{uid}/explanation")
async def get_explanation(engine: Engine, newest: NewestCycle, uid: str) -> Explanation:
    """Why it waits: one primary reason with its numbers, all others that hold, what would let it start."""
    return (await get_workload(engine, newest, uid)).explanation


async def _explained(found: WorkloadDetail, newest: Newest, row: StoredRow | None) -> WorkloadDetail:
    """With all that the newest cycle has to say, worked out when no connection is held any more."""
    if found.state is not State.QUEUED or found.explanation.primary is None:
        return found
    return views.explained(found, await newest.explain(row, found.uid))


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


def _refuse_unknown(request: Request) -> None:
    unknown = [key for key in request.query_params if key not in _PARAMETERS]
    if unknown:
        raise InvalidInput(
            *(
                FieldProblem(field=key, message="unknown parameter", hint=nearest(key, _PARAMETERS))
                for key in unknown
            )
        )
