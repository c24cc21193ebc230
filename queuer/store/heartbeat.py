"""One row in which the leader says that it is there, and what it did last: how others notice a controller that hangs.

It is not the leader's row: that one is locked by every decision, and nothing may wait for this.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import instant, record_of
from queuer.store.leader import check_epoch

_COLUMNS = (
    "holder, epoch, phase, at, round_at, away_at, unguarded, cycle, cycle_at, cycle_seconds, waiting, status"
)
_WRITE = text(f"""
    INSERT INTO heartbeat ({_COLUMNS}) VALUES (:holder, :epoch, :phase, :at, :round_at, :away_at, :unguarded,
        :cycle, :cycle_at, :cycle_seconds, :waiting, :status)
    ON CONFLICT (id) DO UPDATE SET ({_COLUMNS}) = (SELECT {", ".join(f"excluded.{c}" for c in _COLUMNS.split(", "))})
    RETURNING extract(epoch FROM clock_timestamp())::float8
""")
_READ = text(f"SELECT {_COLUMNS} FROM heartbeat WHERE id = 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCycle:
    """The decision that was concluded last. `at`: when, in seconds; `took`: seconds that it was thought about;
    `waiting`: workloads it left waiting; `status`: a word of `SolveStatus`.
    """

    id: int
    at: float
    took: float
    waiting: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Times in seconds. `at`: when it was written; `round_at`: when the controller's loop last went round.

    An old `at` says that nobody leads, an old `round_at` beside it that the leader hangs. `away_at`: since when the API
    server has not answered it, None while it does. `unguarded`: why nothing new is admitted, while a policy of the
    guard is missing or changed, or Queuer refuses the Kubernetes version. `cycle` is None until the leader has
    concluded its first.
    """

    holder: str
    epoch: int
    phase: str
    at: float
    round_at: float
    away_at: float | None = None
    unguarded: str | None = None
    cycle: LastCycle | None = None


async def write(connection: AsyncConnection, beat: Heartbeat) -> float:
    """Put this heartbeat in the place of the last one. Answers the database's time. Raises LeadershipLost."""
    await check_epoch(connection, beat.epoch)
    cycle = beat.cycle
    values = asdict(beat) | {
        "at": instant(beat.at),
        "round_at": instant(beat.round_at),
        "away_at": None if beat.away_at is None else instant(beat.away_at),
        "cycle": None if cycle is None else cycle.id,
        "cycle_at": None if cycle is None else instant(cycle.at),
        "cycle_seconds": None if cycle is None else cycle.took,
        "waiting": None if cycle is None else cycle.waiting,
        "status": None if cycle is None else cycle.status,
    }
    return float((await connection.execute(_WRITE, values)).scalar_one())


async def read(connection: AsyncConnection) -> Heartbeat | None:
    """The last heartbeat of whoever led last; None before the first."""
    row = (await connection.execute(_READ)).one_or_none()
    if row is None:
        return None
    cycle = None
    if row.cycle is not None:
        cycle = record_of(LastCycle, row, id=row.cycle, at=row.cycle_at.timestamp(), took=row.cycle_seconds)
    return record_of(Heartbeat, row, cycle=cycle)
