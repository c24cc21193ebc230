"""The book of who holds what: a row per pod set and attempt, open from admission until the pods are gone.

Usage is the sum of open rows, never a counter, so no crash can leave it wrong by more than what an open row says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.past_use import HORIZON
from queuer.domain.quantity import Resources, add
from queuer.domain.quota import Account, charge_of
from queuer.store.codec import execute_rows, instant, record_of, seconds
from queuer.store.leader import check_epoch

_OPEN = text("""
    INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened)
    SELECT r.uid, r.attempt, r.queue, r.pod_set, r.flavor, r.count, r.amounts, to_timestamp(r.opened)
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, attempt int, queue text, pod_set text,
        flavor text, count int, amounts jsonb, opened double precision)
    WHERE r.count > 0
""")
_CLOSE = text("""
    UPDATE ledger SET closed = greatest(:at, opened)
    WHERE closed IS NULL AND uid = ANY(:uids)
    RETURNING uid
""")
_CLOSE_SETS = text("""
    UPDATE ledger l SET closed = greatest(to_timestamp(old.opened), l.opened)
    FROM (
        SELECT open.id, r.opened
        FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, pod_set text, opened double precision)
        CROSS JOIN LATERAL (SELECT id FROM ledger
            WHERE uid = r.uid AND pod_set = r.pod_set AND closed IS NULL FOR UPDATE) AS open
    ) AS old
    WHERE l.id = old.id
""")
_USAGE = text("""
    SELECT queue, flavor, held.key AS resource, sum(held.value::bigint)::bigint AS amount
    FROM ledger CROSS JOIN LATERAL jsonb_each_text(amounts) AS held
    WHERE closed IS NULL
    GROUP BY queue, flavor, held.key
""")
# exp2 has no operator; a power below 2^-1000 would be an error instead of 0.
_PAST = text("""
    SELECT h.half_life, held.queue, amount.key AS resource, sum(amount.value::bigint * (
        power(2.0, greatest(-1000, least(0, extract(epoch FROM held.closed) - :now) / h.half_life))
        - power(2.0, greatest(-1000, least(0, extract(epoch FROM held.opened) - :now) / h.half_life)))) AS average
    FROM unnest(CAST(:half_lives AS double precision[])) AS h(half_life)
    CROSS JOIN LATERAL (
        SELECT queue, amounts, opened, to_timestamp(:now) AS closed FROM ledger WHERE closed IS NULL AND :open
        UNION ALL
        SELECT queue, amounts, opened, closed FROM ledger
        WHERE closed IS NOT NULL AND closed <= to_timestamp(:until)
            AND closed > to_timestamp(greatest(:after, :now - :horizon * h.half_life))
    ) AS held CROSS JOIN LATERAL jsonb_each_text(held.amounts) AS amount
    GROUP BY h.half_life, held.queue, amount.key
""")
_FIRST_CLOSED = text("SELECT min(closed) FROM ledger WHERE closed IS NOT NULL")
_HELD = text("""
    SELECT uid, pod_set, coalesce(sum(count) FILTER (WHERE closed IS NULL), 0)::int AS pods
    FROM (SELECT DISTINCT uid, attempt FROM ledger WHERE closed IS NULL) AS held JOIN ledger USING (uid, attempt)
    GROUP BY uid, pod_set
""")
_OPEN_ROWS = text("""
    SELECT uid, attempt, queue, pod_set, flavor, count, amounts, opened
    FROM ledger WHERE closed IS NULL ORDER BY id
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """The charge of one pod set of one attempt. `amounts`: all `count` pods together, base units."""

    uid: str
    attempt: int
    queue: str
    pod_set: str
    flavor: str
    count: int
    amounts: Resources
    opened: float


async def charge(connection: AsyncConnection, rows: Sequence[LedgerRow]) -> None:
    """Open rows, inside a transaction that has checked its epoch. A pod set of a workload has one open row at most: a
    second one is an IntegrityError.
    """
    await execute_rows(connection, _OPEN, rows)


async def recharge(connection: AsyncConnection, epoch: int, rows: Sequence[LedgerRow]) -> None:
    """Replace the open rows of these pod sets, when live pods differ from the charge; `count` 0 only closes."""
    if rows:
        await check_epoch(connection, epoch)
        await execute_rows(connection, _CLOSE_SETS, rows)
        await charge(connection, rows)


async def close(connection: AsyncConnection, epoch: int, uids: Sequence[str], at: float) -> frozenset[str]:
    """Return everything that these workloads hold. Idempotent; answers the uids that held something."""
    if not uids:
        return frozenset()
    await check_epoch(connection, epoch)
    return await release(connection, uids, at=at)


async def release(connection: AsyncConnection, uids: Sequence[str], *, at: float) -> frozenset[str]:
    """`close` inside a transaction that has checked its epoch."""
    closed = await connection.execute(_CLOSE, {"uids": list(uids), "at": instant(at)})
    return frozenset(closed.scalars())


async def usage(connection: AsyncConnection) -> dict[str, dict[str, dict[str, int]]]:
    """Sum of open rows by queue, flavor and resource; queues that hold nothing are absent."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for row in await connection.execute(_USAGE):
        found.setdefault(row.queue, {}).setdefault(row.flavor, {})[row.resource] = row.amount
    return found


async def past_use(
    connection: AsyncConnection,
    half_lives: Iterable[float],
    *,
    now: float,
    after: float = 0.0,
    until: float = inf,
) -> dict[float, dict[str, dict[str, float]]]:
    """Decayed average use by half-life, queue and resource, see `queuer.domain.past_use`; exact at `now`.

    One sum over the rows that were closed after `after` up to `until`, and, where that is for ever, those still open.
    Rows from before `HORIZON` half-lives ago, or that retention has deleted, count nothing.
    """
    found: dict[float, dict[str, dict[str, float]]] = {h: {} for h in half_lives}
    if found:
        values = {"half_lives": list(found), "now": now, "horizon": HORIZON}
        values |= {"after": after, "until": until, "open": until == inf}
        for row in await connection.execute(_PAST, values):
            found[row.half_life].setdefault(row.queue, {})[row.resource] = float(row.average)
    return found


async def first_closed(connection: AsyncConnection) -> float | None:
    """When the oldest row that is kept was closed."""
    return seconds((await connection.execute(_FIRST_CLOSED)).scalar_one())


async def load_held(connection: AsyncConnection) -> dict[str, dict[str, int]]:
    """Charged pods by uid and pod set: 0 where all were given back; a set that never had a row is absent."""
    found: dict[str, dict[str, int]] = {}
    for row in await connection.execute(_HELD):
        found.setdefault(row.uid, {})[row.pod_set] = row.pods
    return found


async def load_open(connection: AsyncConnection) -> list[LedgerRow]:
    """All open rows, oldest first, as they are: an amount may be no number."""
    return [
        LedgerRow(**{**row._mapping, "opened": row.opened.timestamp()})
        for row in await connection.execute(_OPEN_ROWS)
    ]


_HOLDINGS = text("""
    SELECT l.uid, l.queue, l.flavor, l.amounts, l.opened AS since, coalesce(w.namespace, '') AS namespace,
        coalesce(w.kind, '') AS kind, coalesce(w.name, '') AS name, coalesce(w.preemptible, true) AS preemptible,
        coalesce(w.state IN ('Evicting', 'Succeeded', 'Failed') OR w.deleted_at IS NOT NULL, true) AS leaving
    FROM ledger l LEFT JOIN workload w ON w.uid = l.uid
    WHERE l.closed IS NULL ORDER BY l.id
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The holding of one workload. `since`: when it got the first of it, in seconds; `leaving`: it is on its way out,
    and still counted.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    preemptible: bool
    leaving: bool
    since: float
    charge: Mapping[Account, int]


async def holdings(connection: AsyncConnection) -> list[Holding]:
    """Everybody who holds anything."""
    found: dict[str, list[Row[Any]]] = {}
    for row in await connection.execute(_HOLDINGS):
        found.setdefault(row.uid, []).append(row)
    return [_together(rows) for rows in found.values()]


def _together(rows: list[Row[Any]]) -> Holding:
    parts: dict[str, Resources] = {}
    for row in rows:
        parts[row.flavor] = add(parts.get(row.flavor, {}), row.amounts)
    return record_of(Holding, min(rows, key=lambda row: row.since), charge=charge_of(parts))
