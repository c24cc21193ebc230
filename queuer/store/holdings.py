"""Holdings: a record for each workload with open ledger rows, with the facts that decide whether it may be evicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import Resources, add
from queuer.domain.quota import Account, charge_of
from queuer.store.codec import record_of

_OPEN = text("""
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
    for row in await connection.execute(_OPEN):
        found.setdefault(row.uid, []).append(row)
    return [_together(rows) for rows in found.values()]


def _together(rows: list[Row[Any]]) -> Holding:
    parts: dict[str, Resources] = {}
    for row in rows:
        parts[row.flavor] = add(parts.get(row.flavor, {}), row.amounts)
    return record_of(Holding, min(rows, key=lambda row: row.since), charge=charge_of(parts))
