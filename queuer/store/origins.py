"""Origins: the changesets by which queues came to be closed, or over a limit of theirs.

The tree says that it is so; whoever reads it wants to know since when, by whom and why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import parse_quantity
from queuer.domain.queue import QueueState
from queuer.domain.quota import Account
from queuer.store.codec import record_of
from queuer.store.usage import Amounts, TreeView

REASON = "CASE WHEN jsonb_array_length(changes) = 1 THEN reason ELSE '' END AS reason"
"""The reason of a changeset as anybody may have it: that of several objects speaks of them all."""
# `export_queue` leaves out the state of an open queue. Changesets are read back to the closing, and no further.
_LAST = text(f"""
    SELECT asked.queue, last.* FROM unnest(CAST(:queues AS text[])) AS asked(queue) CROSS JOIN LATERAL (
        SELECT extract(epoch FROM at)::float8 AS at, actor, {REASON}
        FROM changeset CROSS JOIN LATERAL jsonb_array_elements(changes) AS ch
        WHERE ch->>'kind' = 'queue' AND ch->>'name' = asked.queue AND ch->'after'->>'state' <> 'open'
            AND coalesce(ch->'before'->>'state', 'open') <> ch->'after'->>'state'
        ORDER BY revision DESC LIMIT 1
    ) AS last
""")
_CUTS = text(f"""
    SELECT extract(epoch FROM at)::float8 AS at, actor, {REASON}, ch->>'name' AS queue,
        ch->'before'->'quota' AS before, ch->'after'->'quota' AS after
    FROM changeset CROSS JOIN LATERAL jsonb_array_elements(changes) AS ch
    WHERE ch->>'kind' = 'queue' AND ch->>'name' = ANY(:queues)
        AND ch->'before'->'quota' IS DISTINCT FROM ch->'after'->'quota'
    ORDER BY revision DESC LIMIT :most
""")
MOST = 200
"""Changes of quota that are looked through, the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The change by which a queue was held or drained. `at`: in seconds; `reason`: "" where it is not for anybody."""

    queue: str
    at: float
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """`closed`: by the path of a queue that is held or drains itself. `cut`: by queue and account, the cut of a limit
    below which more is used now. A closing that is no longer known is missing, a cut is None.
    """

    closed: Mapping[str, Closing] = field(default_factory=dict)
    cut: Mapping[tuple[str, Account], Closing | None] = field(default_factory=dict)


def over_limit(amounts: Amounts) -> int:
    """How much more is used than the limit that is written on the queue."""
    return 0 if amounts.limit is None else max(0, amounts.used - amounts.limit)


async def origins(connection: AsyncConnection, view: TreeView, known: Origins | None = None) -> Origins:
    """Of all queues of a tree; nothing is read where none is closed or over its limit. `known`: the origins of another
    tree of the same revision.
    """
    closed = [q.queue.path for q in view.queues.values() if q.queue.state is not QueueState.OPEN]
    over = {
        (path, (amounts.flavor, amounts.resource))
        for path, queue in view.queues.items()
        for amounts in queue.amounts
        if over_limit(amounts)
    }
    looked = {} if known is None else known.cut
    unread = over - looked.keys()
    found = await _cuts(connection, unread) if unread else {}
    return Origins(
        closed=await closings(connection, closed) if known is None else known.closed,
        cut={account: found[account] if account in unread else looked[account] for account in over},
    )


async def _cuts(
    connection: AsyncConnection, over: Collection[tuple[str, Account]]
) -> dict[tuple[str, Account], Closing | None]:
    """The newest cut of each of these limits."""
    found: dict[tuple[str, Account], Closing | None] = dict.fromkeys(over)
    values = {"queues": sorted({path for path, _ in over}), "most": MOST}
    for row in await connection.execute(_CUTS, values):
        before, after = dict(_limits(row.before)), dict(_limits(row.after))
        for account, limit in after.items():
            key, was = (row.queue, account), before.get(account)
            if key in found and found[key] is None and (was is None or limit < was):
                found[key] = Closing(queue=row.queue, at=row.at, actor=row.actor, reason=row.reason)
    return found


def _limits(quota: list[dict[str, Any]] | None) -> Iterator[tuple[Account, int]]:
    for row in quota or ():
        if row.get("limit") is not None:
            resource = row["resource"]
            yield (row.get("flavor"), resource), parse_quantity(row["limit"], resource=resource)


async def closings(connection: AsyncConnection, queues: Collection[str]) -> dict[str, Closing]:
    """The newest one of each of these queues, which are not open."""
    if not queues:
        return {}
    found = await connection.execute(_LAST, {"queues": sorted(queues)})
    return {row.queue: record_of(Closing, row) for row in found}
