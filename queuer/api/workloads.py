"""Workloads: a slim, paged list, and each with everything that is known of it and why it waits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response

from queuer.api import views
from queuer.api.cursor import read_cursor
from queuer.api.deps import PREFIX, Snapshot
from queuer.api.models import Explanation, WorkloadDetail, WorkloadList
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.reasons import Token
from queuer.domain.workload import State

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
    snapshot: Snapshot, namespace: str, kind: str, name: str
) -> WorkloadDetail:
    """The newest workload of a job's name; `kind` as in its manifest (any case)."""
    return await views.workload_by_reference(snapshot, namespace=namespace, kind=kind, name=name)


@router.get("/workloads/{uid}")
async def get_workload(snapshot: Snapshot, uid: str) -> WorkloadDetail:
    """One workload by the job's uid; ended ones too, while they are kept."""
    return await views.workload(snapshot, uid)


@router.get("/workloads/{uid}/explanation")
async def get_explanation(snapshot: Snapshot, uid: str) -> Explanation:
    """Why it waits: one primary reason with its numbers, all others that hold, what would let it start."""
    return (await views.workload(snapshot, uid)).explanation


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
