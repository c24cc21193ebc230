"""Closings: since when, by whom and why queues are held or drain, as the changesets have it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import record_of

REASON = "CASE WHEN jsonb_array_length(changes) = 1 THEN reason ELSE '' END AS reason"
"""The reason of a changeset as anybody may have it: that of several objects speaks of them all."""
# `export_queue` leaves out the state of an open queue.
_LAST = text(f"""
    SELECT DISTINCT ON (queue) queue, extract(epoch FROM at)::float8 AS at, actor, {REASON}
    FROM changeset CROSS JOIN LATERAL (
        SELECT ch->>'name' AS queue, coalesce(ch->'before'->>'state', 'open') AS before,
            coalesce(ch->'after'->>'state', 'open') AS after
        FROM jsonb_array_elements(changes) AS ch WHERE ch->>'kind' = 'queue'
    ) AS change
    WHERE queue = ANY(:queues) AND before <> after AND after <> 'open'
    ORDER BY queue, revision DESC
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The change by which a queue was held or drained. `at`: in seconds; `reason`: "" where it is not for anybody."""

    queue: str
    at: float
    actor: str
    reason: str


async def closings(connection: AsyncConnection, queues: Collection[str]) -> dict[str, Closing]:
    """The newest one of each of these queues, which are not open."""
    if not queues:
        return {}
    found = await connection.execute(_LAST, {"queues": sorted(queues)})
    return {row.queue: record_of(Closing, row) for row in found}
