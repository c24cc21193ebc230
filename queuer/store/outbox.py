"""Effects that are committed and not yet known to have reached the API server.

The applier reads them by sequence, patches, and reports in batches. Reporting twice changes nothing, so every step
may be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.workload import State
from queuer.store.codec import execute_rows
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.tables import EntryKind, Outcome

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
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(seq bigint, outcome text,
            resource_version text, message text)
    ), open AS (
        SELECT DISTINCT ON (r.seq) r.* FROM r CROSS JOIN LATERAL
            (SELECT done_at FROM outbox WHERE seq = r.seq FOR UPDATE) AS o
        WHERE o.done_at IS NULL
    ), done AS (
        UPDATE outbox o SET done_at = to_timestamp(:at), outcome = r.outcome,
            resource_version = r.resource_version, message = r.message
        FROM open r WHERE o.seq = r.seq
        RETURNING o.seq, o.kind, o.uid, o.admission_id, o.outcome
    ), applied AS (
        SELECT DISTINCT ON (uid) * FROM done WHERE outcome = 'applied' ORDER BY uid, seq DESC
    ), placed AS (
        UPDATE workload w SET
            state = CASE WHEN a.kind = 'admit' AND w.state = 'Admitted' THEN 'Placing' ELSE w.state END
        FROM applied a WHERE w.uid = a.uid AND w.admission_id = a.admission_id
        RETURNING w.uid, w.state, w.queue
    )
    SELECT done.seq, done.kind, done.uid, done.outcome, placed.state, placed.queue
    FROM done LEFT JOIN placed USING (uid) ORDER BY done.seq
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One PATCH to send."""

    kind: EntryKind
    uid: str
    admission_id: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A committed effect. `cycle` is None where no cycle asked for it; `at` is the commit's time in seconds."""

    seq: int
    kind: EntryKind
    uid: str
    admission_id: str
    epoch: int
    cycle: int | None
    patch: Mapping[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How an entry ended. `resource_version`: the job's new one after a PATCH; `message`: what the API server said."""

    entry: Entry
    outcome: Outcome
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
    return [_entry(row) for row in await connection.execute(_UNDONE)]


async def done(
    connection: AsyncConnection, epoch: int, results: Sequence[Result], *, at: float
) -> frozenset[int]:
    """Report ends that came to light `at` this time; answers the sequence numbers that were open until now.

    Repeating it is harmless. An applied admission makes its workload Placing and records the job's resourceVersion;
    every other consequence is the caller's decision.
    """
    if not results:
        return frozenset()
    await check_epoch(connection, epoch)
    found = await execute_rows(connection, _DONE, map(_reported, results), at=at)
    append(connection, [_placing(row, at=at) for row in found if _became_placing(row)])
    return frozenset(row.seq for row in found)


def _reported(result: Result) -> Mapping[str, Any]:
    return {
        "seq": result.entry.seq,
        "outcome": result.outcome,
        "resource_version": result.resource_version,
        "message": result.message,
    }


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        seq=row.seq,
        kind=EntryKind(row.kind),
        uid=row.uid,
        admission_id=str(row.admission_id),
        epoch=row.epoch,
        cycle=row.cycle,
        patch=row.patch,
        at=row.at.timestamp(),
    )


def _became_placing(row: Row[Any]) -> bool:
    return (row.kind, row.outcome, row.state) == (EntryKind.ADMIT, Outcome.APPLIED, State.PLACING)


def _placing(row: Row[Any], *, at: float) -> Event:
    data = {"from": State.ADMITTED, "to": State.PLACING}
    return Event(at=at, type="workload.state", uid=row.uid, queue=row.queue, data=data)
