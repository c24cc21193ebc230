"""No table grows for ever: each is either a picture of now, or history with an age after which it goes.

The leader calls `prune` now and then, rule by rule, each in a transaction of its own. A call deletes at most
one batch, found by an index. So it holds no lock for long, and takes as long on millions of rows as on none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import execute_rows
from queuer.store.leader import check_epoch

DAY = 86_400.0
BATCH = 5_000
"""Rows that one call deletes at most; a full batch means: call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rows of `table` whose `age` is older than `days` go. `key`: its primary key.

    `age`, `only` (an SQL expression and a condition): as an index of the table has them.
    """

    table: str
    key: str
    age: str
    days: int
    only: str = "true"


RULES = (
    # First what hangs on workloads; what is left goes with its workload (ON DELETE CASCADE).
    Rule(table="reason_transition", key="id", age="at", days=90),
    Rule(table="outbox", key="seq", age="done_at", days=7),
    Rule(table="command", key="id", age="done_at", days=30),
    Rule(table="event", key="id", age="at", days=30),
    Rule(table="cycle", key="id", age="started_at", days=14),
    Rule(table="ledger", key="id", age="closed", days=400),
    Rule(
        table="workload",
        key="uid",
        age="coalesce(deleted_at, finished_at)",
        only="""(state IN ('Succeeded', 'Failed') OR deleted_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM ledger WHERE ledger.uid = workload.uid AND closed IS NULL)""",
        days=90,
    ),
    Rule(table="usage_rollup", key="queue, seconds, at", age="at", only="seconds = 60", days=2),
    Rule(table="usage_rollup", key="queue, seconds, at", age="at", only="seconds = 3600", days=90),
    Rule(table="session", key="digest", age="expires", days=1),
    # Audit rows of changesets stay as long as these.
    Rule(table="audit", key="id", age="at", only="revision IS NULL", days=400),
    Rule(table="draft", key="id", age="at", days=1),
)


_SIZES = text("""
    SELECT relname, pg_total_relation_size(oid) AS bytes FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
""")
_SET_APART = text("""
    UPDATE workload w SET namespace = r.name || '@'
        || to_char(to_timestamp(r.made) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(name text, made double precision)
    WHERE w.namespace = r.name AND w.submitted < to_timestamp(r.made)
        AND (w.state IN ('Succeeded', 'Failed') OR w.deleted_at IS NOT NULL)
    RETURNING w.uid
""")


class Bound(StrEnum):
    """Other causes that keep a table from growing for ever."""

    ONE_ROW = "it has one row"
    CONFIGURATION = "it is the present configuration"
    ADMINS = "it grows with what administrators do: revert needs all of it"
    WORKLOAD = "its rows go with their workload"
    CYCLE = "each cycle replaces it"


KEPT: Mapping[str, Bound] = MappingProxyType(
    {
        "configuration": Bound.ONE_ROW,
        "leader": Bound.ONE_ROW,
        "topology": Bound.ONE_ROW,
        "stored_cycle": Bound.ONE_ROW,
        "heartbeat": Bound.ONE_ROW,
        "queue": Bound.CONFIGURATION,
        "queue_quota": Bound.CONFIGURATION,
        "flavor": Bound.CONFIGURATION,
        "changeset": Bound.ADMINS,
        "admission": Bound.WORKLOAD,
        "bond": Bound.CYCLE,
        "reservation": Bound.CYCLE,
    }
)
"""Tables without a rule of their own, and why they need none."""


async def prune(
    connection: AsyncConnection, epoch: int, rule: Rule, *, now: float, batch: int = BATCH
) -> int:
    """Delete up to `batch` rows that are outdated by this rule, the oldest first; answers how many went."""
    await check_epoch(connection, epoch)
    statement = text(
        f"DELETE FROM {rule.table} WHERE ({rule.key}) IN (SELECT {rule.key} FROM {rule.table} "
        f"WHERE {rule.age} < to_timestamp(:before) AND {rule.only} ORDER BY {rule.age} LIMIT :batch)"
    )
    values = {"before": now - rule.days * DAY, "batch": batch}
    return (await connection.execute(statement, values)).rowcount


async def sizes(connection: AsyncConnection) -> dict[str, int]:
    """Bytes by table, with indexes and long values; asked of the files, not of the rows."""
    return {row.relname: row.bytes for row in await connection.execute(_SIZES)}


async def set_apart(connection: AsyncConnection, epoch: int, made: Mapping[str, float]) -> int:
    """Take the history of a former namespace from the one that has its name now; answers how many workloads it was.

    `made`: when each namespace was made, in seconds. Jobs that were submitted before belong to `NAME@TIME` from now on:
    no right on a namespace reaches them, only the right on all.
    """
    await check_epoch(connection, epoch)
    rows = ({"name": name, "made": at} for name, at in made.items())
    return len(await execute_rows(connection, _SET_APART, rows))
