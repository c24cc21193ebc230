"""Hold, drain and open a queue: a changeset of one field, planned and applied in one transaction.

Whatever else of a tree changes is one document (`tree`, `changesets`): its rules hold between queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from queuer.api.config import models
from queuer.api.config.planning import Seen, drafted
from queuer.api.config.views import planned, visible
from queuer.api.config.writing import check, warn
from queuer.api.deps import PREFIX, Asking, Engine, NewestCycle, Settings, one_view, source
from queuer.api.http.idempotency import Idempotent
from queuer.api.queues.views import check_queue
from queuer.domain.queue import QueueState
from queuer.store import changesets as history
from queuer.store import queues as store
from queuer.store.engine import begin
from queuer.store.tables import DraftState

router = APIRouter(prefix=PREFIX, tags=["queues"], route_class=Idempotent)


@dataclass(frozen=True, slots=True)
class _Desk:
    """What each of these routes needs."""

    engine: Engine
    asker: Asking
    newest: NewestCycle
    settings: Settings
    request: Request
    response: Response
    dry_run: Annotated[bool, Query(alias="dryRun", description="Only say what would change.")] = False

    async def set(self, path: str, state: QueueState, why: models.ReasonGiven | None) -> models.Changeset:
        """The changeset with its report: applied, or planned where nothing was to change or to be kept."""
        await self.asker.require_administers(path)
        async with one_view(self.engine) as connection:
            await check_queue(connection, path)
        actor, way = self.asker.caller.name, source(self.request)
        made = None
        async with begin(self.engine) as connection:
            writer = self.settings.writer(actor)
            changeset = await store.plan_state(connection, path, state, writer=writer)
            check(changeset)
            seen = await Seen.of(connection, changeset, self.newest)
            if changeset.changes and not self.dry_run:
                reason = why.reason if why is not None else ""
                revision = await store.apply(connection, changeset, actor=actor, source=way, reason=reason)
                made = await history.one(connection, revision)
        draft = await drafted(seen, self.newest, actor=actor, source=way, root=path)
        if made is not None:
            draft = replace(draft, state=DraftState.APPLIED, revision=made.revision)
        answer = await visible(planned(draft, made=made), self.asker)
        warn(self.response, answer.warnings)
        id = None if made is None else str(made.revision)
        return answer.model_copy(update={"id": id, "planned": None, "expires": None})


Desk = Annotated[_Desk, Depends()]


@router.post("/queues/{path}:hold")
async def hold_queue(desk: Desk, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Start nothing new in a queue and below. What runs goes on, what comes is queued."""
    return await desk.set(path, QueueState.HELD, body)


@router.post("/queues/{path}:drain")
async def drain_queue(desk: Desk, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Start nothing new in a queue and below, and take no new jobs."""
    return await desk.set(path, QueueState.DRAINING, body)


@router.post("/queues/{path}:resume")
async def resume_queue(desk: Desk, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Open a queue again that is held or drains."""
    return await desk.set(path, QueueState.OPEN, body)
