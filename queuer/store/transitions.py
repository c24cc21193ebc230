"""Steps of workloads: the only statements that write a state over another one.

`queuer.domain.workload.TRANSITIONS` has the legal steps. Each statement compares the state and the attempt that
the leader saw, and writes what it is given. A workload that is not as the leader saw it stops the whole transaction, so
that nothing is built on a false picture. Jobs that wait are written by `workloads.intake` instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.assignments import Assignment
from queuer.domain.errors import Conflict
from queuer.domain.workload import State
from queuer.store import ledger, outbox
from queuer.store.codec import assignment_json, execute_rows
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.ledger import LedgerRow

_STEP = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, before text, attempt int, after text,
            at double precision, cause text, hosts jsonb, returns boolean, runs boolean, leaves boolean, ends boolean)
    ), old AS (
        SELECT r.*, w.queue, w.admission_id FROM r CROSS JOIN LATERAL
            (SELECT state, attempt, queue, admission_id FROM workload WHERE uid = r.uid FOR UPDATE) AS w
        WHERE w.state = r.before AND w.attempt = r.attempt
    ), changed AS (
        UPDATE workload w SET
            state = r.after,
            attempt = w.attempt + r.returns::int,
            admission_id = CASE WHEN r.returns THEN NULL ELSE w.admission_id END,
            admitted_at = CASE WHEN r.returns THEN NULL ELSE w.admitted_at END,
            landed_at = CASE WHEN r.returns THEN NULL
                WHEN r.runs THEN coalesce(w.landed_at, to_timestamp(r.at)) ELSE w.landed_at END,
            finished_at = CASE WHEN r.ends THEN to_timestamp(r.at) END
        FROM old r WHERE w.uid = r.uid
    ), admissions AS (
        UPDATE admission a SET
            hosts = coalesce(r.hosts, a.hosts),
            landed_at = CASE WHEN r.runs THEN coalesce(a.landed_at, to_timestamp(r.at)) ELSE a.landed_at END,
            ended_at = CASE WHEN r.returns OR r.ends THEN to_timestamp(r.at) END,
            end_cause = CASE WHEN r.returns OR r.ends OR r.leaves
                THEN coalesce(nullif(r.cause, ''), a.end_cause, lower(r.after)) END
        FROM old r WHERE a.id = r.admission_id
    )
    SELECT uid, queue FROM old
""")
_ADMIT = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, uid text, attempt int,
            assignments jsonb, domains jsonb, before text, after text, hit boolean)
    ), old AS (
        SELECT r.*, w.token FROM r CROSS JOIN LATERAL
            (SELECT state, attempt, deleted_at, token FROM workload WHERE uid = r.uid FOR UPDATE) AS w
        WHERE w.state = r.before AND w.attempt = r.attempt AND w.deleted_at IS NULL
    ), admitted AS (
        UPDATE workload w SET state = old.after, admission_id = old.id, admitted_at = to_timestamp(:at),
            token = NULL, explanation = NULL, reason_since = NULL, not_asked = NULL
        FROM old WHERE w.uid = old.uid
        RETURNING w.queue, old.*
    ), written AS (
        INSERT INTO admission (id, uid, attempt, epoch, cycle, assignments, domains, at, hit)
        SELECT id, uid, attempt, :epoch, :cycle, assignments, domains, to_timestamp(:at), hit FROM admitted
    ), told AS (
        INSERT INTO reason_transition (uid, at, from_token, token, text, params, cycle)
        SELECT uid, to_timestamp(:at), token, NULL, '', '{}', :cycle FROM admitted WHERE token IS NOT NULL
    )
    SELECT uid, queue FROM admitted
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A step of one workload. `attempt`: the attempt that it was in before. `cause`: why it is evicted or ends, e.g.
    `landing-timeout`, or the rule of a plan; `beneficiary`: the uid it is evicted for; `note`: a sentence for its
    owner. `hosts`: its pods by pod set and node, None = as before.
    """

    uid: str
    before: State
    attempt: int
    after: State
    at: float
    cause: str = ""
    beneficiary: str | None = None
    note: str = ""
    hosts: Mapping[str, Mapping[str, int]] | None = None

    @property
    def returns(self) -> bool:
        """Whether the workload goes back to its queue: its attempt is over."""
        return self.after.waiting and not self.before.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAdmission:
    """A gang that starts. `id`: a fresh UUID, also in the job's annotation; `attempt`, `before`: as the leader saw the
    workload. `charges`: what it holds from now on. `hit`: whether it starts inside the range that it was last told,
    None = it was told none.
    """

    id: str
    uid: str
    attempt: int
    assignments: tuple[Assignment, ...]
    charges: tuple[LedgerRow, ...]
    domains: tuple[str, ...] = ()
    before: State = State.QUEUED
    hit: bool | None = None


async def take(
    connection: AsyncConnection, epoch: int, steps: Sequence[Transition], *, cycle: int | None = None
) -> None:
    """Take steps, at most one per workload.

    Into Queued or Held: the attempt is over and everything it held is returned. Into Running: landed. Into Succeeded or
    Failed: finished, while the ledger stays open until `ledger.close`. Raises LeadershipLost; IllegalTransition; and
    Conflict naming each workload that is not as the leader saw it.
    """
    if not steps:
        return
    await check_epoch(connection, epoch)
    found = _all_of(steps, await execute_rows(connection, _STEP, map(_row, steps)))
    for at in sorted({step.at for step in steps if step.returns}):
        uids = [step.uid for step in steps if step.returns and step.at == at]
        await ledger.release(connection, uids, at=at)
        await outbox.withdraw(connection, uids, at=at)
    append(connection, [_event(step, found[step.uid], cycle=cycle) for step in steps])


async def admit(
    connection: AsyncConnection, epoch: int, admissions: Sequence[NewAdmission], *, at: float, cycle: int
) -> None:
    """Start gangs and charge them. Raises as `take` does."""
    if not admissions:
        return
    await check_epoch(connection, epoch)
    rows = [_admission(admission) for admission in admissions]
    admitted = await execute_rows(connection, _ADMIT, rows, epoch=epoch, cycle=cycle, at=at)
    queues = _all_of(admissions, admitted)
    await ledger.charge(connection, [row for admission in admissions for row in admission.charges])
    append(
        connection,
        [
            Event(
                at=at, type="workload.state", uid=a.uid, queue=queues[a.uid],
                data={"from": a.before, "to": State.ADMITTED, "attempt": a.attempt, "cycle": cycle,
                      "domains": a.domains},
            )
            for a in admissions
        ],
    )  # fmt: skip


async def tell_lost(
    connection: AsyncConnection, epoch: int, lost: Sequence[tuple[str, str, str]], *, at: float
) -> None:
    """Gangs that run on with pods missing: uid, queue, and a sentence, "" = all are back. Raises LeadershipLost."""
    if lost:
        await check_epoch(connection, epoch)
        append(
            connection,
            [
                Event(
                    at=at,
                    type="workload.lost" if note else "workload.whole",
                    uid=uid,
                    queue=queue,
                    data={"note": note} if note else {},
                )
                for uid, queue, note in lost
            ],
        )


def _row(step: Transition) -> dict[str, Any]:
    after = step.before.to(step.after)
    return {
        "uid": step.uid, "before": step.before, "attempt": step.attempt, "after": after, "at": step.at,
        "cause": step.cause, "hosts": step.hosts, "returns": step.returns, "runs": after is State.RUNNING,
        "leaves": after is State.EVICTING, "ends": after.ended,
    }  # fmt: skip


def _admission(admission: NewAdmission) -> dict[str, Any]:
    return {
        "id": admission.id, "uid": admission.uid, "attempt": admission.attempt, "domains": admission.domains,
        "assignments": [assignment_json(a) for a in admission.assignments], "before": admission.before,
        "after": admission.before.to(State.ADMITTED), "hit": admission.hit,
    }  # fmt: skip


def _all_of(wanted: Sequence[Transition | NewAdmission], written: Sequence[Row[Any]]) -> dict[str, str]:
    """The queue of each workload. Raises Conflict naming those that were not written."""
    queues = {row.uid: row.queue for row in written}
    if missing := [row for row in wanted if row.uid not in queues]:
        said = "; ".join(f"{row.uid} is not {row.before} at attempt {row.attempt}" for row in missing[:5])
        raise Conflict(said, uids=[row.uid for row in missing])
    return queues


def _event(step: Transition, queue: str, *, cycle: int | None) -> Event:
    data: dict[str, Any] = {"from": step.before, "to": step.after, "attempt": step.attempt}
    if step.cause:
        data["cause"] = step.cause
    if step.note or step.beneficiary:
        data |= {"beneficiary": step.beneficiary, "note": step.note, "cycle": cycle}
    return Event(at=step.at, type="workload.state", uid=step.uid, queue=queue, data=data)
