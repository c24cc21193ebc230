"""Small reads for the rows that a page shows: where admissions are, and what the newest cycle saw."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import Resources, add
from queuer.domain.queue import ROOT
from queuer.store.codec import record_of

_DOMAINS = text("SELECT id, domains FROM admission WHERE id = ANY(:ids)")
_HELD = text(
    "SELECT uid, pod_set, count AS pods, amounts FROM ledger WHERE closed IS NULL AND uid = ANY(:uids)"
)
_FAILURES = text("""
    SELECT DISTINCT ON (uid) uid, data->>'note' AS note FROM event
    WHERE uid = ANY(:uids) AND data->>'to' IN ('Failed', 'Succeeded') ORDER BY uid, id DESC
""")
_HITS = text("""
    SELECT count(*) AS told, count(*) FILTER (WHERE hit) AS hits FROM admission
    WHERE hit IS NOT NULL AND at > now() - make_interval(days => :days)
""")
_NEWEST = text("""
    SELECT id, finished_at, status, capacity, stats->'out' AS out,
        coalesce((stats->'unmanaged')::int, 0) AS unmanaged, coalesce(stats->'reserved', '{}') AS reserved
    FROM cycle ORDER BY id DESC LIMIT 1
""")
_QUEUE = text("SELECT EXISTS (SELECT FROM queue WHERE path = :path)")
_NOW = text("SELECT extract(epoch FROM now())::float8")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestCycle:
    """`capacity`: allocatable amounts by flavor; `unplaceable`: what of it is free on nodes that take no pods, being
    `cordoned` or `not_ready`. `reserved`: what is free on other nodes and held for waiting jobs. Base units.
    `unmanaged`: suspended jobs with a queue label in namespaces that are not managed.
    """

    id: int
    finished_at: float
    status: str
    capacity: Mapping[str, Resources]
    unplaceable: Resources
    reserved: Resources
    cordoned: int = 0
    not_ready: int = 0
    unmanaged: int = 0


async def domains(connection: AsyncConnection, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Topology domains by admission id."""
    if not ids:
        return {}
    found = await connection.execute(_DOMAINS, {"ids": [UUID(id) for id in ids]})
    return {str(row.id): tuple(row.domains) for row in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A workload's holding: pods by pod set, and amounts of all of them together in base units."""

    counts: dict[str, int]
    amounts: Resources


async def held(connection: AsyncConnection, uids: Collection[str]) -> dict[str, Held]:
    """By uid what workloads hold now, of those that do."""
    found: dict[str, Held] = {}
    for row in await connection.execute(_HELD, {"uids": list(uids)}):
        known = found.setdefault(row.uid, Held(counts={}, amounts={}))
        found[row.uid] = Held(
            counts={**known.counts, row.pod_set: row.pods}, amounts=add(known.amounts, row.amounts)
        )
    return found


async def failures(connection: AsyncConnection, uids: Collection[str]) -> dict[str, str]:
    """By uid the cause of which ended workloads failed or lost work, where there is one."""
    found = await connection.execute(_FAILURES, {"uids": list(uids)}) if uids else ()
    return {row.uid: row.note for row in found if row.note}


async def hits(connection: AsyncConnection, *, days: int = 7) -> tuple[int, int]:
    """How many starts of these days had been told a range, and how many of them fell inside."""
    row = (await connection.execute(_HITS, {"days": days})).one()
    return row.told, row.hits


async def newest_cycle(connection: AsyncConnection) -> NewestCycle | None:
    """The newest committed decision, None before the first."""
    row = (await connection.execute(_NEWEST)).one_or_none()
    if row is None:
        return None
    out = row.out or {}
    return record_of(
        NewestCycle, row, unplaceable=out.get("free", {}),
        cordoned=out.get("cordoned", 0), not_ready=out.get("notReady", 0),
    )  # fmt: skip


async def has_queue(connection: AsyncConnection, path: str) -> bool:
    """Whether there is a queue of this path; `root` always is."""
    return path == ROOT or bool((await connection.execute(_QUEUE, {"path": path})).scalar_one())


async def now(connection: AsyncConnection) -> float:
    """The database's time at the start of the transaction: all ages of one answer are counted from it."""
    return float((await connection.execute(_NOW)).scalar_one())
