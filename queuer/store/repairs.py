"""Puts the ledger right where it is not what the leader charges, each time with an audit row and an event.

A row that has changed when a repair comes is left alone: a step of the workload was quicker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import rows_json
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.ledger import LedgerRow

_CLOSE = text("""
    UPDATE ledger l SET closed = greatest(to_timestamp(:at), l.opened)
    FROM (
        SELECT open.id, r.uid, r.pod_set FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS r(uid text, pod_set text, attempt int, amounts jsonb)
        CROSS JOIN LATERAL (SELECT id FROM ledger WHERE uid = r.uid AND pod_set = r.pod_set AND closed IS NULL
            AND attempt = r.attempt AND amounts = r.amounts FOR UPDATE) AS open
    ) AS seen WHERE l.id = seen.id
    RETURNING l.uid, l.pod_set
""")
_OPEN = text("""
    INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened)
    SELECT r.uid, r.attempt, r.queue, r.pod_set, r.flavor, r.count, r.amounts, to_timestamp(:at)
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, attempt int, queue text, pod_set text,
        flavor text, count int, amounts jsonb)
    CROSS JOIN LATERAL (SELECT FROM workload
        WHERE uid = r.uid AND attempt = r.attempt AND admission_id IS NOT NULL FOR UPDATE) AS holder
    ON CONFLICT (uid, pod_set) WHERE closed IS NULL DO NOTHING
    RETURNING uid, pod_set
""")
_AUDIT = text("""
    INSERT INTO audit (at, actor, source, action, reason, detail)
    SELECT to_timestamp(:at), :actor, 'controller', 'ledger.repair', r.reason, r.detail
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(reason text, detail jsonb)
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A pod set's open row as it was seen, and as it is to be; None = none. One of them at least is given."""

    found: LedgerRow | None
    wanted: LedgerRow | None

    @property
    def key(self) -> tuple[str, str]:
        """Uid and pod set."""
        row = self.wanted or self.found
        assert row is not None
        return row.uid, row.pod_set

    @property
    def reason(self) -> str:
        """The fault."""
        if self.wanted is None:
            return "charged, but nobody holds it"
        return "held, but not charged" if self.found is None else "charged otherwise than held"


async def repair(
    connection: AsyncConnection, epoch: int, repairs: Sequence[Repair], *, at: float, actor: str
) -> list[Repair]:
    """Close what nobody holds, open what somebody holds, replace what differs; answers what was done.

    Raises LeadershipLost.
    """
    await check_epoch(connection, epoch)
    seen = [repair.found for repair in repairs if repair.found is not None]
    closed = await _run(connection, _CLOSE, rows_json(seen), at=at)
    open_now = [r for r in repairs if r.wanted is not None and (r.found is None or r.key in closed)]
    opened = await _run(connection, _OPEN, rows_json(r.wanted for r in open_now), at=at)
    done = [r for r in repairs if r.key in (opened if r.found is None else closed)]
    told = rows_json({"reason": r.reason, "detail": _detail(r)} for r in done)
    await connection.execute(_AUDIT, {"rows": told, "at": at, "actor": actor})
    append(connection, [_event(r, at=at) for r in done])
    return done


async def _run(connection: AsyncConnection, statement: Any, rows: str, *, at: float) -> set[tuple[str, str]]:
    found = await connection.execute(statement, {"rows": rows, "at": at})
    return {(row.uid, row.pod_set) for row in found}


def _detail(repair: Repair) -> Mapping[str, Any]:
    uid, pod_set = repair.key
    return {"uid": uid, "podSet": pod_set, "before": _held(repair.found), "after": _held(repair.wanted)}


def _held(row: LedgerRow | None) -> Mapping[str, Any] | None:
    return None if row is None else {"pods": row.count, "flavor": row.flavor, "amounts": row.amounts}


def _event(repair: Repair, *, at: float) -> Event:
    row = repair.wanted or repair.found
    assert row is not None
    data = {**_detail(repair), "reason": repair.reason}
    return Event(at=at, type="workload.recharged", uid=row.uid, queue=row.queue, data=data)
