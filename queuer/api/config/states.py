"""Hold, drain and open a queue: a changeset of one field, planned and applied by one request.

Every other change of a tree is one document (`tree`, `changesets`), as its rules hold between queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.views import applied, masked, planned, readable
from queuer.api.config.writing import Writes
from queuer.api.deps import PREFIX, one_view
from queuer.api.http.parameters import check_queue
from queuer.api.request_keys import RequestKey
from queuer.domain.queue import ManagedBy, QueueState
from queuer.store import changesets as history
from queuer.store import queues as store
from queuer.store.changeset import JudgedChangeset

router = APIRouter(prefix=PREFIX, tags=["queues"])


@dataclass(frozen=True, slots=True)
class _Switch:
    """Sets the state of a queue, for each of these routes."""

    desk: Writes
    key: RequestKey
    dry_run: Annotated[bool, Query(alias="dryRun", description="Only say what would change.")] = False

    async def set(self, path: str, state: QueueState, why: models.ReasonGiven | None) -> models.Changeset:
        """The changeset with its report: applied, or only told where nothing was to change or to be kept."""

        async def wish(connection: AsyncConnection, writer: ManagedBy) -> JudgedChangeset:
            await check_queue(connection, path)
            return await store.plan_state(connection, path, state, writer=writer)

        desk, made = self.desk, None
        draft = await desk.before(self.key) or await desk.plan(wish, root=path, key=self.key)
        seen = await readable(draft, desk.asker)
        if draft.revision is not None:
            async with one_view(desk.engine) as connection:
                made = await history.one(connection, draft.revision)
        elif not self.dry_run:
            made = await desk.carry_out(draft, wish, reason="" if why is None else why.reason)
            if made is None and await desk.before(self.key):
                return await self.set(path, state, why)  # the same request was carried out this moment
        if made is not None:
            return masked(applied(made, draft), seen)
        nothing = {"id": None, "planned": None, "expires": None}
        return masked(planned(draft).model_copy(update=nothing), seen)


Switch = Annotated[_Switch, Depends()]


@router.post("/queues/{path}:hold")
async def hold_queue(switch: Switch, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Start nothing new in a queue and below. What runs goes on, what comes is queued."""
    return await switch.set(path, QueueState.HELD, body)


@router.post("/queues/{path}:drain")
async def drain_queue(switch: Switch, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Start nothing new in a queue and below, and take no new jobs."""
    return await switch.set(path, QueueState.DRAINING, body)


@router.post("/queues/{path}:resume")
async def resume_queue(switch: Switch, path: str, body: models.ReasonGiven | None = None) -> models.Changeset:
    """Open a queue again that is held or drains."""
    return await switch.set(path, QueueState.OPEN, body)
