"""Holdings: a record for each workload with open ledger rows, with the facts that decide whether it may be evicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quota import Account, charge_of

_OPEN = text("""
    SELECT l.uid, l.queue, l.flavor, l.amounts, extract(epoch FROM l.opened)::float8 AS opened,
        w.namespace, w.kind, w.name, coalesce(w.preemptible, true) AS preemptible,
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
    found: dict[str, list[Holding]] = {}
    for row in await connection.execute(_OPEN):
        found.setdefault(row.uid, []).append(
            Holding(
                uid=row.uid,
                kind=row.kind or "",
                namespace=row.namespace or "",
                name=row.name or "",
                queue=row.queue,
                preemptible=row.preemptible,
                leaving=row.leaving,
                since=row.opened,
                charge=charge_of({row.flavor: row.amounts}),
            )
        )
    return [_together(parts) for parts in found.values()]


def _together(parts: list[Holding]) -> Holding:
    first = min(parts, key=lambda part: part.since)
    if len(parts) == 1:
        return first
    total: dict[Account, int] = {}
    for part in parts:
        for account, amount in part.charge.items():
            total[account] = total.get(account, 0) + amount
    return Holding(
        uid=first.uid, kind=first.kind, namespace=first.namespace, name=first.name, queue=first.queue,
        preemptible=first.preemptible, leaving=first.leaving, since=first.since, charge=total,
    )  # fmt: skip
