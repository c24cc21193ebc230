"""Jobs as they were seen and what is known of them. Each write is a statement or two for many workloads.

States of workloads that wait are written here with their jobs, all other steps in `transitions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.override import Override
from queuer.domain.reasons import Explanation
from queuer.domain.workload import State, Workload
from queuer.store import reasons
from queuer.store.codec import execute_rows, explanation_of, instant, record_of, workload_of, workload_row
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.tables import NotAsked

T = TypeVar("T")

_INTAKE = text("""
    INSERT INTO workload AS w (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted,
        required, preferred, max_runtime, estimate, hold, pod_sets, state, not_asked)
    SELECT r.uid, r.kind, r.namespace, r.name, r.queue, r.user_name, r.priority, r.preemptible,
        to_timestamp(r.submitted), r.required, r.preferred, r.max_runtime, r.estimate, r.hold, r.pod_sets,
        r.state, r.not_asked
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, kind text, namespace text, name text,
        queue text, user_name text, priority int, preemptible boolean, submitted double precision,
        required text, preferred text, max_runtime double precision, estimate double precision, hold boolean,
        pod_sets jsonb, state text, not_asked text)
    ON CONFLICT (uid) DO UPDATE SET queue = excluded.queue, user_name = excluded.user_name,
        submitted = greatest(w.submitted, excluded.submitted),
        priority = excluded.priority, preemptible = excluded.preemptible, required = excluded.required,
        preferred = excluded.preferred, max_runtime = excluded.max_runtime, estimate = excluded.estimate,
        hold = excluded.hold, pod_sets = excluded.pod_sets, state = excluded.state, not_asked = excluded.not_asked,
        override = CASE WHEN w.deleted_at IS NULL THEN w.override END,
        deleted_at = NULL, finished_at = NULL, admission_id = NULL, admitted_at = NULL, landed_at = NULL,
        attempt = w.attempt + (w.admission_id IS NOT NULL)::int
    WHERE w.state = ANY(:waiting)
        OR w.deleted_at IS NOT NULL AND NOT EXISTS (SELECT FROM ledger WHERE uid = w.uid AND closed IS NULL)
    RETURNING w.uid, w.attempt, (w.xmax = 0) AS is_new
""")
# The trace of an edit that another follows at once: its event, and the reasons told since.
_REPLACED = text("""
    WITH replaced AS (
        SELECT last.* FROM unnest(CAST(:uids AS text[])) AS u(uid) CROSS JOIN LATERAL (
            SELECT id, uid, type, at FROM event WHERE uid = u.uid ORDER BY id DESC LIMIT 1
        ) AS last
        WHERE last.type = 'workload.edited' AND last.at > to_timestamp(:at) - make_interval(secs => :pause)
    ), events AS (
        DELETE FROM event USING replaced WHERE event.id = replaced.id
    )
    DELETE FROM reason_transition r USING replaced WHERE r.uid = replaced.uid AND r.at >= replaced.at
""")
_SET_BACK = text("""
    UPDATE workload w SET avoid = r.avoid, first = r.first, failures = r.failures, rest = to_timestamp(r.rest)
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, avoid jsonb, first boolean, failures int,
        rest double precision)
    WHERE w.uid = r.uid
""")
_FORGET = text("""
    UPDATE workload SET deleted_at = :at WHERE uid = ANY(:uids) AND deleted_at IS NULL
    RETURNING uid, queue, state
""")
# Two parts, each by its index: an OR of them would read the whole history.
_LOAD = text("""
    SELECT * FROM (
        SELECT * FROM workload WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL
        UNION ALL
        SELECT w.* FROM (SELECT DISTINCT uid FROM ledger WHERE closed IS NULL) AS held JOIN workload w USING (uid)
        WHERE w.state IN ('Succeeded', 'Failed') OR w.deleted_at IS NOT NULL
    ) AS live ORDER BY submitted, uid
""")

_RUNS = text("""
    SELECT w.*, extract(epoch FROM w.finished_at - coalesce(w.landed_at, w.admitted_at))::float8 AS seconds
    FROM (
        SELECT * FROM workload WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :count
    ) AS w CROSS JOIN LATERAL (SELECT end_cause FROM admission WHERE id = w.admission_id) AS a
    WHERE a.end_cause IN ('succeeded', 'failed')
    ORDER BY w.finished_at DESC
""")

_WAITING = [state for state in State if state.waiting]
_PAUSE = 10.0
"""Seconds between two edits of a job within which only the later one is told: a loop of edits fills no table."""
_AT_ONCE = 500
"""Rows that are made records of at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A job as it is now.

    `state`: Queued or Held. `not_asked`: None = it is decided on. `edited`: it, or a rule that it is under, was
    changed; else it was only looked at again.
    """

    workload: Workload
    state: State = State.QUEUED
    not_asked: NotAsked | None = None
    explanation: Explanation | None = None
    edited: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """The traces that earlier admissions left with a workload. `avoid`: nodes on which it failed to land, until when.
    `first`: it was interrupted by a failure not its own. `failures`: starts that failed in a row. `rest`: not offered
    until then.
    """

    uid: str
    avoid: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    first: bool = False
    failures: int = 0
    rest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkload:
    """A workload with all that is known of it. Times are seconds; `explanation` as `codec.explanation_json`."""

    workload: Workload
    state: State
    attempt: int
    admission_id: str | None = None
    explanation: Mapping[str, Any] | None = None
    reason_since: float | None = None
    admitted_at: float | None = None
    landed_at: float | None = None
    finished_at: float | None = None
    deleted_at: float | None = None
    setback: Setback
    not_asked: NotAsked | None = None
    override: Override | None = None

    @property
    def explained(self) -> Explanation | None:
        """The explanation as a record. None where it cannot be read, such as a token of a newer version."""
        try:
            return None if self.explanation is None else explanation_of(self.explanation)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


async def intake(
    connection: AsyncConnection, epoch: int, rows: Sequence[Intake], *, at: float
) -> dict[str, int]:
    """Take in new jobs and edits of waiting ones; answers the attempt of each that waits now, by uid.

    A job that holds something or ended stays as it is recorded, and is not answered. One that was taken for gone and
    is there after all waits again. The last of several rows of a uid counts. An
    explanation of None says that it has not been looked at since.
    """
    if not rows:
        return {}
    await check_epoch(connection, epoch)
    latest = {row.workload.uid: row for row in rows}
    taken = await execute_rows(connection, _INTAKE, map(_intake_row, latest.values()), waiting=_WAITING)
    new = frozenset(row.uid for row in taken if row.is_new)
    edited = [row.uid for row in taken if not row.is_new and latest[row.uid].edited]
    if edited:
        await connection.execute(_REPLACED, {"uids": edited, "at": at, "pause": _PAUSE})
    await reasons.record(connection, {row.uid: latest[row.uid].explanation for row in taken}, at=at)
    append(
        connection,
        [
            Event(at=at, type=f"workload.{'submitted' if row.uid in new else 'edited'}", uid=row.uid,
                  queue=latest[row.uid].workload.queue, data={"state": latest[row.uid].state})
            for row in taken
            if row.uid in new or latest[row.uid].edited
        ],
    )  # fmt: skip
    return {row.uid: row.attempt for row in taken}


async def set_back(connection: AsyncConnection, epoch: int, setbacks: Sequence[Setback]) -> None:
    """Write down what earlier admissions left, in place of what was written before. Unknown uids are passed over."""
    if not setbacks:
        return
    await check_epoch(connection, epoch)
    await execute_rows(connection, _SET_BACK, setbacks)


async def explain(
    connection: AsyncConnection,
    epoch: int,
    explanations: Mapping[str, Explanation | None],
    *,
    at: float,
    cycle: int | None = None,
) -> frozenset[str]:
    """Store reasons, of a cycle or found beside it (misconfigured, on hold); answers uids whose token changed."""
    if not explanations:
        return frozenset()
    await check_epoch(connection, epoch)
    return await reasons.record(connection, explanations, at=at, cycle=cycle)


async def forget(connection: AsyncConnection, epoch: int, uids: Sequence[str], at: float) -> int:
    """The job objects are gone: no candidates any more, history kept, still charged while the ledger is open."""
    if not uids:
        return 0
    await check_epoch(connection, epoch)
    gone = (await connection.execute(_FORGET, {"uids": list(uids), "at": instant(at)})).all()
    events = [
        Event(at=at, type="workload.deleted", uid=row.uid, queue=row.queue, data={"state": row.state})
        for row in gone
    ]
    append(connection, events)
    return len(gone)


async def load_live(
    connection: AsyncConnection, *, unread: dict[str, Exception] | None = None
) -> list[StoredWorkload]:
    """All workloads that wait, run or still hold something, by submit time.

    A row that cannot be read is left out, and put into `unread` by its uid with the error.
    """
    found, rows = list[StoredWorkload](), (await connection.execute(_LOAD)).all()
    for begin in range(0, len(rows), _AT_ONCE):
        found += _readable(rows[begin : begin + _AT_ONCE], stored_of, {} if unread is None else unread)
        await asyncio.sleep(0)  # others have the loop in between: probes, connections that are being made
    return found


async def load_runs(connection: AsyncConnection, *, count: int) -> list[tuple[Workload, float]]:
    """Of the last `count` jobs that ended, those that ran until then, with their seconds, the oldest first. A row that
    cannot be read is left out.
    """
    found = (await connection.execute(_RUNS, {"count": count})).all()
    return list(_readable(reversed(found), lambda row: (workload_of(row), row.seconds), {}))


def _readable(
    rows: Iterable[Row[Any]], read: Callable[[Row[Any]], T], unread: dict[str, Exception]
) -> Iterator[T]:
    for row in rows:
        try:
            yield read(row)
        except (TypeError, ValueError) as error:
            unread[row.uid] = error


def stored_of(row: Row[Any]) -> StoredWorkload:
    """A StoredWorkload from a whole row of the table."""
    own = {
        "workload": workload_of(row),
        "setback": record_of(Setback, row),
        "override": _settings(row.override),
    }
    return record_of(StoredWorkload, row, **own)


def _settings(override: Any) -> Any:
    """An override in its present form. A version before wrote one author for both settings."""
    if not isinstance(override, dict) or "by" not in override:
        return override
    hold, priority = override.pop("hold", None), override.pop("priority", None)
    values = {"hold": hold, "priority": priority}
    return {name: value if value is None else {"value": value, **override} for name, value in values.items()}


def _intake_row(row: Intake) -> dict[str, Any]:
    return workload_row(row.workload) | {"state": row.state, "not_asked": row.not_asked}
