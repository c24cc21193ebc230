"""Queues with their configuration and live amounts."""

from __future__ import annotations

from fastapi import APIRouter

from queuer.api.deps import PREFIX, Settings, Snapshot
from queuer.api.queues import views
from queuer.api.queues.models import Queue, QueueList

router = APIRouter(prefix=PREFIX, tags=["queues"])


@router.get("/queues")
async def list_queues(snapshot: Snapshot, settings: Settings) -> QueueList:
    """All queues, parents before children, with amounts of their subtrees from one moment."""
    return await views.queues(snapshot, stale_after=settings.stale_after)


@router.get("/queues/{path}")
async def get_queue(snapshot: Snapshot, path: str) -> Queue:
    """One queue by its path, e.g. `root.research.team-a`."""
    return await views.queue(snapshot, path)
