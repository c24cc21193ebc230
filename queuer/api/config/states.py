"""Hold, drain and open a queue: a changeset of one field, planned and applied in one transaction.

Whatever else of a tree changes is one document (`tree`, `changesets`): its rules hold between queues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

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
from queuer.store.changeset import Changeset
from queuer.store.engine import begin
from queuer.store.tables import DraftState

router = APIRouter(prefix=PREFIX, tags=["queues"], route_class=Idempotent)


Planner = Callable[[AsyncConnection], Awaitable[Changeset]]


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
        actor, way = self.asker.caller.name, source(self.request)

        async def sound(connection: AsyncConnection) -> Changeset:
            writer = self.settings.writer(actor)
            changeset = await store.plan_state(connection, path, state, writer=writer)
            check(changeset)
            return changeset

        async with one_view(self.engine) as connection:
            await check_queue(connection, path)
            seen = await Seen.of(connection, await sound(connection), self.newest)
        # Before anything is applied: it may fail, and takes its time.
        draft = await drafted(seen, self.newest, actor=actor, source=way, root=path)
        answer = await visible(planned(draft), self.asker)
        made = None if self.dry_run else await self._apply(sound, actor, way, why)
        if made is not None:
            done = planned(replace(draft, state=DraftState.APPLIED, revision=made.revision), made=made)
            told = {name: getattr(answer, name) for name in models.Report.model_fields}
            answer = done.model_copy(update={**told, "id": str(made.revision)})
        warn(self.response, answer.warnings)
        return answer.model_copy(
            update={"id": None if made is None else answer.id, "planned": None, "expires": None}
        )

    async def _apply(
        self, sound: Planner, actor: str, way: str, why: models.ReasonGiven | None
    ) -> history.Applied | None:
        """What was applied; None where it is so already."""
        async with begin(self.engine) as connection:
            await store.lock(connection)
            changeset = await sound(connection)
            if not changeset.changes:
                return None
            reason = why.reason if why is not None else ""
            revision = await store.apply(connection, changeset, actor=actor, source=way, reason=reason)
            return await history.one(connection, revision)


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
