"""No table grows for ever: each is either a picture of now, or history with an age after which it goes.

The leader calls `prune` now and then; one call deletes at most a batch per table, so it never holds locks for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.leader import check_epoch

DAY = 86_400.0
BATCH = 5_000
"""Rows of a table that one call deletes at most; a full batch means: call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rows of `table` whose `age` (an SQL expression, NULL = keep) is older than `days` go. `key`: its primary key."""

    table: str
    key: str
    age: str
    days: int


RULES = (
    # First what hangs on workloads; what is left goes with its workload (ON DELETE CASCADE).
    Rule(table="reason_transition", key="id", age="at", days=90),
    Rule(table="outbox", key="seq", age="done_at", days=7),
    Rule(table="event", key="id", age="at", days=30),
    Rule(table="cycle", key="id", age="started_at", days=14),
    Rule(table="ledger", key="id", age="closed", days=400),
    Rule(
        table="workload",
        key="uid",
        age="""CASE WHEN (state IN ('Succeeded', 'Failed') OR deleted_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM ledger WHERE ledger.uid = workload.uid AND closed IS NULL)
            THEN coalesce(deleted_at, finished_at) END""",
        days=90,
    ),
    Rule(table="audit", key="id", age="CASE WHEN revision IS NULL THEN at END", days=400),
)

KEPT: Mapping[str, str] = MappingProxyType(
    {
        "configuration": "one row",
        "leader": "one row",
        "topology": "one row",
        "stored_cycle": "one row",
        "queue": "the present configuration",
        "queue_quota": "the present configuration",
        "flavor": "the present configuration",
        "changeset": "grows with what admins do; revert needs it",
        "admission": "goes with its workload",
        "bond": "replaced by each cycle",
        "reservation": "replaced by each cycle",
    }
)
"""Tables without a rule of their own, and why."""


async def prune(
    connection: AsyncConnection,
    epoch: int,
    *,
    now: float,
    batch: int = BATCH,
) -> dict[str, int]:
    """Delete up to `batch` outdated rows per table; answers how many went."""
    await check_epoch(connection, epoch)
    gone = {}
    for rule in RULES:
        statement = text(
            f"DELETE FROM {rule.table} WHERE {rule.key} IN (SELECT {rule.key} FROM {rule.table} "
            f"WHERE {rule.age} < to_timestamp(:before) LIMIT :batch)"
        )
        values = {"before": now - rule.days * DAY, "batch": batch}
        gone[rule.table] = (await connection.execute(statement, values)).rowcount
    return gone
