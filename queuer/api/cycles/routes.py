"""`GET /cycles`: the decisions that were committed, and the stored one made anew. For who may `get cycles`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from queuer.api.cycles import models
from queuer.api.deps import PREFIX, Asking, Engine, Latest, Snapshot, Visible, one_view
from queuer.api.http.lists import Cursor, Limit, check_times, make_cursor, read_cursor, standing
from queuer.api.identity.rights import Resource, Right, Verb
from queuer.api.models import Instant
from queuer.domain.errors import NotFound
from queuer.domain.events import event_text
from queuer.domain.quantity import add
from queuer.solver.ask import ReplayCycle
from queuer.store import pastcycles, stored

router = APIRouter(prefix=PREFIX, tags=["cycles"])
READ = Right(verb=Verb.GET, resource=Resource.CYCLES)
BUNDLE = "application/octet-stream"
MOST = 50
"""Jobs of a decision that are told."""
Number = Annotated[int, Path(ge=0, le=2**63 - 1)]


async def _allowed(asker: Asking) -> None:
    await asker.require(READ)


@router.get("/cycles", dependencies=[Depends(_allowed)])
async def list_cycles(
    snapshot: Snapshot,
    *,
    since: Annotated[Instant | None, Query(description="Started then or later.")] = None,
    until: Annotated[Instant | None, Query(description="Started before then.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.CycleList:
    """Decisions, newest first."""
    check_times(since, until)
    found = await pastcycles.page(
        snapshot,
        before=None if cursor is None else read_cursor(cursor, "id", int)[0],
        since=since,
        until=until,
        count=limit + 1,
    )
    newest = await stored.newest_number(snapshot)
    return models.CycleList(
        items=[models.Cycle.from_record(each, replayable=each.id == newest) for each in found[:limit]],
        next=make_cursor("id", found[limit - 1].id) if len(found) > limit else None,
        **await standing(snapshot),
    )


@router.get("/cycles/{id}", dependencies=[Depends(_allowed)])
async def get_cycle(namespaces: Visible, snapshot: Snapshot, id: Number) -> models.CycleDetail:
    """One decision, and whom it admitted and evicted."""
    found = await pastcycles.one(snapshot, id)
    if found is None:
        raise NotFound(f"no cycle {id} is kept", hint="queuer cycles lists those that are")
    moved = await pastcycles.decisions(snapshot, id, namespaces=namespaces, count=MOST)
    before, after = await pastcycles.beside(snapshot, id)
    return models.CycleDetail.from_record(
        found,
        replayable=id == await stored.newest_number(snapshot),
        decisions=[_decision(each) for each in moved],
        before=before,
        after=after,
    )


@router.get("/cycles/{id}/replay", dependencies=[Depends(_allowed)])
async def replay_cycle(engine: Engine, latest: Latest, id: Number) -> models.Replay:
    """Decide the stored cycle again and compare. Only the newest one is stored."""
    async with one_view(engine) as connection:
        row = await stored.newest(connection)
    found = await latest.ask_apart(ReplayCycle(), row) if row is not None and row.cycle == id else None
    if found is None:
        raise _not_stored(id, None if row is None else row.cycle)
    difference, seconds = found.difference, round(found.seconds, 3)
    return models.Replay(cycle=id, same=not difference, difference=difference, seconds=seconds)


@router.get(
    "/cycles/{id}/bundle",
    dependencies=[Depends(_allowed)],
    response_class=Response,
    responses={200: {"content": {BUNDLE: {}}}},
)
async def get_bundle(snapshot: Snapshot, id: Number) -> Response:
    """The decision's input and answer, as the file of which `queuer cycles replay FILE` makes it anew.

    Only the newest one is stored.
    """
    row = await stored.newest(snapshot)
    if row is None or row.cycle != id:
        raise _not_stored(id, None if row is None else row.cycle)
    name = f'attachment; filename="cycle-{id}.qcycle"'
    return Response(row.body, media_type=BUNDLE, headers={"Content-Disposition": name})


def _not_stored(id: int, number: int | None) -> NotFound:
    kept = "none is" if number is None else f"{number} is"
    return NotFound(
        f"cycle {id} is not stored: {kept}",
        hint="the controller keeps others as files, for queuer cycles replay",
    )


def _decision(found: pastcycles.Decision) -> models.Decision:
    amounts: dict[str, int] = {}
    for pod_set in found.pod_sets:
        amounts = add(amounts, pod_set["requests"], times=pod_set["count"])
    return models.Decision.from_record(
        found, to=found.data["to"], amounts=amounts, text=event_text("workload.state", found.data)
    )
