"""Effects that are committed and not yet known to have reached the API server.

The applier reads them by sequence, patches, and reports in batches. Reporting twice changes nothing, so every step
may be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import execute_rows, instant, record_of
from queuer.store.leader import check_epoch
from queuer.store.tables import EntryKind, EntryOutcome

_COLUMNS = "seq, kind, uid, admission_id, epoch, cycle, patch, at"
_PUT = text("""
    INSERT INTO outbox (kind, uid, admission_id, epoch, cycle, patch, at)
    SELECT r.kind, r.uid, r.admission_id, :epoch, :cycle, r.patch, to_timestamp(:at)
    FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb))
        AS (kind text, uid text, admission_id uuid, patch jsonb)) WITH ORDINALITY
        AS r(kind, uid, admission_id, patch, number)
    ORDER BY r.number
    RETURNING seq, kind, admission_id
""")
_UNDONE = text(f"SELECT {_COLUMNS} FROM outbox WHERE done_at IS NULL ORDER BY seq")
_DONE = text("""
    UPDATE outbox o SET done_at = to_timestamp(:at), outcome = r.outcome, resource_version = r.resource_version,
        message = r.message
    FROM (
        SELECT DISTINCT ON (r.seq) r.* FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(seq bigint, outcome text,
            resource_version text, message text) CROSS JOIN LATERAL
            (SELECT done_at FROM outbox WHERE seq = r.seq FOR UPDATE) AS o
        WHERE o.done_at IS NULL
    ) AS r WHERE o.seq = r.seq
    RETURNING o.seq
""")
_WITHDRAW = text("""
    UPDATE outbox SET done_at = :at, outcome = 'withdrawn' WHERE uid = ANY(:uids) AND done_at IS NULL
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One PATCH to send."""

    kind: EntryKind
    uid: str
    admission_id: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Effect):
    """A committed effect. `cycle` is None where no cycle asked for it; `at` is the commit's time in seconds."""

    seq: int
    epoch: int
    cycle: int | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How an entry ended. `resource_version`: the job's new one after a PATCH; `message`: what the API server said."""

    entry: Entry
    outcome: EntryOutcome
    resource_version: str | None = None
    message: str | None = None


async def put(
    connection: AsyncConnection,
    epoch: int,
    effects: Sequence[Effect],
    *,
    at: float,
    cycle: int | None = None,
) -> tuple[Entry, ...]:
    """Commit to effects, in this order. An admission that has such an effect open is an IntegrityError.

    Admission ids are UUIDs in their usual lower-case form.
    """
    if not effects:
        return ()
    await check_epoch(connection, epoch)
    found = await execute_rows(connection, _PUT, effects, epoch=epoch, cycle=cycle, at=at)
    numbers = {(row.kind, str(row.admission_id)): row.seq for row in found}
    return tuple(
        Entry(
            seq=numbers[effect.kind, effect.admission_id],
            kind=effect.kind,
            uid=effect.uid,
            admission_id=effect.admission_id,
            epoch=epoch,
            cycle=cycle,
            patch=effect.patch,
            at=at,
        )
        for effect in effects
    )


async def undone(connection: AsyncConnection) -> list[Entry]:
    """All entries whose end is not known, of any epoch, by sequence."""
    return [record_of(Entry, row) for row in await connection.execute(_UNDONE)]


async def done(
    connection: AsyncConnection, epoch: int, results: Sequence[Result], *, at: float
) -> frozenset[int]:
    """Report ends that came to light `at` this time; answers the sequence numbers that were open until now.

    Repeating it is harmless. The caller decides what follows for the workload.
    """
    if not results:
        return frozenset()
    await check_epoch(connection, epoch)
    found = await execute_rows(connection, _DONE, map(_reported, results), at=at)
    return frozenset(row.seq for row in found)


async def withdraw(connection: AsyncConnection, uids: Sequence[str], *, at: float) -> None:
    """Take back what is open of these workloads, inside a transaction that has checked its epoch."""
    await connection.execute(_WITHDRAW, {"uids": list(uids), "at": instant(at)})


def _reported(result: Result) -> Mapping[str, Any]:
    return {
        "seq": result.entry.seq,
        "outcome": result.outcome,
        "resource_version": result.resource_version,
        "message": result.message,
    }
