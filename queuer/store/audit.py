"""The audit: pages of deeds with actor and reason, newest first, and refusals.

Writers of other deeds have inserts of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.changeset import Change, changes_of
from queuer.store.codec import record_of, to_json

SCAN = 10_000
"""Rows that one page looks at, at most."""
_LAST = 2**63 - 1

# An entry is about the queues that its changeset changes, or about the one that its detail names. Who administers
# queues sees what an entry says of these, of those below them and of those above, by which they are bound; flavors,
# repairs and refusals are for who may read the whole audit, and so is a reason that speaks of other queues, too.
_PAGE = text("""
    WITH seen AS MATERIALIZED (
        SELECT a.*, c.changes FROM audit a LEFT JOIN changeset c USING (revision)
        WHERE a.id < :before AND (CAST(:actor AS text) IS NULL OR a.actor = :actor)
            AND a.at >= coalesce(CAST(:since AS timestamptz), '-infinity')
            AND a.at < coalesce(CAST(:until AS timestamptz), 'infinity')
        ORDER BY a.id DESC LIMIT :scan
    ), told AS (
        SELECT id, s.at, s.actor, s.source, s.action, s.revision,
            CASE WHEN jsonb_array_length(coalesce(s.changes, '[]')) = jsonb_array_length(about.changes) THEN s.reason
                ELSE '' END AS reason, about.queues, about.changes,
            CASE WHEN s.detail->'command' IN (SELECT to_jsonb(id) FROM command WHERE done_at IS NULL)
                THEN s.detail || '{"outcome": "ordered"}' ELSE s.detail END AS detail
        FROM seen s CROSS JOIN LATERAL (
            SELECT coalesce(array_agg(name) FILTER (WHERE queue), '{}') AS queues,
                   coalesce(jsonb_agg(change) FILTER (WHERE change IS NOT NULL), '[]') AS changes
            FROM (SELECT ch->>'name' AS name, ch->>'kind' = 'queue' AS queue, ch AS change
                      FROM jsonb_array_elements(coalesce(s.changes, '[]')) AS ch
                  UNION ALL SELECT s.detail->>'queue', true, NULL WHERE s.detail ? 'queue') AS object
            WHERE CAST(:paths AS text[]) IS NULL OR queue AND EXISTS (
                SELECT FROM unnest(CAST(:paths AS text[])) AS p
                WHERE name = p OR starts_with(name, p || '.') OR (change IS NOT NULL AND starts_with(p, name || '.')))
        ) AS about CROSS JOIN LATERAL (
            SELECT coalesce(s.detail->>'namespace' = ANY(CAST(:readable AS text[])), true) AS named
        ) AS job
        WHERE (CAST(:paths AS text[]) IS NULL OR about.queues <> '{}')
          AND (CAST(:namespace AS text) IS NULL OR named AND s.detail->>'namespace' = :namespace)
          AND (CAST(:target AS text) IS NULL OR named AND s.detail->>'uid' = :target
              OR EXISTS (SELECT FROM unnest(about.queues) AS q WHERE q = :target OR starts_with(q, :target || '.')))
        ORDER BY id DESC LIMIT :count
    ), looked AS (SELECT count(*) AS rows, min(id) AS last FROM seen)
    SELECT looked.rows, looked.last, told.* FROM looked LEFT JOIN told ON true ORDER BY told.id DESC
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One deed. `queues`: those it is about; `revision`: the configuration that it made, by these `changes`; `detail`:
    JSON values, with the outcome `ordered` while a command is not carried out. Those that the reader may not see are
    not among them.
    """

    id: int
    at: float
    actor: str
    source: str
    action: str
    reason: str
    revision: int | None
    queues: tuple[str, ...]
    changes: tuple[Change, ...]
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Entries, newest first. `next`: the id to go on before; None = there is nothing more."""

    rows: tuple[Entry, ...]
    next: int | None


async def page(
    connection: AsyncConnection,
    *,
    before: int | None = None,
    target: str | None = None,
    namespace: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    paths: Collection[str] | None = None,
    readable: Collection[str] | None = None,
    count: int = 100,
) -> AuditPage:
    """`target`: a queue with all below it, or the uid of a job; `namespace`: of the jobs. `paths`: what is about these
    queues, those below them, and changes of those above them alone, None = all. `readable`: namespaces, by whose jobs
    `target` and `namespace` find deeds, None = all. A page may be short although `next` says that there is more.
    """
    values = {
        "before": _LAST if before is None else min(before, _LAST),
        "target": target,
        "namespace": namespace,
        "actor": actor,
        "since": since,
        "until": until,
        "paths": None if paths is None else sorted(paths),
        "readable": None if readable is None else sorted(readable),
        "scan": max(SCAN, count + 1)
        if any(given is not None for given in (paths, target, namespace))
        else count + 1,
        "count": count + 1,
    }
    found = (await connection.execute(_PAGE, values)).all()
    rows = [
        record_of(Entry, row, queues=tuple(sorted(row.queues)), changes=changes_of(row.changes))
        for row in found
        if row.id is not None
    ]
    if len(rows) > count:
        return AuditPage(rows=tuple(rows[:count]), next=rows[count - 1].id)
    exhausted = found[0].rows < values["scan"]
    return AuditPage(rows=tuple(rows), next=None if exhausted else found[0].last)


_DENY = text("""
    INSERT INTO audit (actor, source, action, reason, detail)
    VALUES (:actor, :source, 'denied', '', CAST(:detail AS jsonb))
""")


async def deny(connection: AsyncConnection, *, actor: str, source: str, detail: Mapping[str, Any]) -> None:
    """Record one refusal: an attacker who looks for a way in should be seen.

    `detail`: the right that is missing, and the request.
    """
    await connection.execute(_DENY, {"actor": actor, "source": source, "detail": to_json(detail)})
