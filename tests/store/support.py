"""Builders of records for tests of the store, and steps of workloads as rounds take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.assignments import Assignment, Bond, Reservation
from queuer.domain.document import TreeDocument, parse
from queuer.domain.queue import ManagedBy
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import PodSet, State, Workload
from queuer.store import cycles, outbox, queues, transitions, workloads
from queuer.store.cycles import CycleRecord
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Effect, Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome
from queuer.store.transitions import NewAdmission, Transition
from queuer.store.workloads import Intake

NOW = 1_763_700_000.0
GPU = "nvidia.com/gpu"


def document(queues: Mapping[str, Any] | None = None, **fields: Any) -> TreeDocument:
    """A QueueTree document of these queues."""
    return parse({"apiVersion": "queuer.dev/v1", "kind": "QueueTree", "queues": queues or {}, **fields})


async def wish(connection: AsyncConnection, desired: TreeDocument, writer: ManagedBy = ManagedBy.API) -> int:
    """Plan and apply at once."""
    planned = await queues.plan(connection, desired, writer=writer)
    return await queues.apply(connection, planned, actor="alice", source="test", reason="because")


async def take_office(connection: AsyncConnection) -> int:
    """Raise the epoch as a new leader does."""
    raised = await connection.execute(text("UPDATE leader SET epoch = epoch + 1 RETURNING epoch"))
    return int(raised.scalar_one())


def workload(uid: str, *, queue: str = "root.a", pods: int = 1, gpus: int = 1, **fields: Any) -> Workload:
    """A Job of `pods` pods with `gpus` GPUs each."""
    given: dict[str, Any] = {
        "kind": "Job",
        "namespace": "team-a",
        "name": uid,
        "submitted": NOW,
        "pod_sets": (PodSet(name="main", count=pods, requests={GPU: gpus, "cpu": 4000, "pods": 1}),),
    }
    return Workload(uid=uid, queue=queue, **{**given, **fields})


def intake_of(made: Workload, **fields: Any) -> Intake:
    """A job as it came in."""
    return Intake(workload=made, **fields)


def ledger_row(uid: str, **fields: Any) -> LedgerRow:
    """An open row of one pod."""
    given: dict[str, Any] = {
        "attempt": 1, "queue": "root.a", "pod_set": "main", "flavor": "default", "count": 1, "amounts": {GPU: 1},
        "opened": NOW,
    }  # fmt: skip
    return LedgerRow(uid=uid, **{**given, **fields})


def admission(made: Workload, *, attempt: int = 1, flavor: str = "default") -> NewAdmission:
    """An admission of the whole gang onto one host."""
    return NewAdmission(
        id=str(UUID(int=uuid4().int)),
        uid=made.uid,
        attempt=attempt,
        assignments=tuple(
            Assignment(pod_set=p.name, flavor=flavor, nodes={"n1": p.count}) for p in made.pod_sets
        ),
        charges=tuple(
            ledger_row(
                made.uid, attempt=attempt, queue=made.queue, pod_set=p.name, flavor=flavor, count=p.count,
                amounts={name: amount * p.count for name, amount in p.requests.items()},
            )
            for p in made.pod_sets
        ),
        domains=("r01",),
    )  # fmt: skip


async def come(
    connection: AsyncConnection, epoch: int, *made: Workload, at: float = NOW
) -> Mapping[str, int]:
    """Jobs come in, or change."""
    return await workloads.intake(connection, epoch, [intake_of(one) for one in made], at=at)


async def start(
    connection: AsyncConnection, epoch: int, *made: Workload, at: float = NOW
) -> tuple[Entry, ...]:
    """Jobs come in, and the first cycle admits them."""
    await come(connection, epoch, *made, at=at)
    admissions = [admission(one) for one in made]
    return await commit_cycle(connection, epoch=epoch, record=cycle(1, at=at), admissions=admissions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A gang to send back; see `transitions.Transition`."""

    uid: str
    cause: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    beneficiary: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step from whatever state the workload is in."""

    uid: str
    state: State
    at: float
    cause: str = ""
    note: str = ""
    hosts: Mapping[str, Mapping[str, int]] | None = None


async def take_steps(connection: AsyncConnection, epoch: int, steps: Sequence[Step]) -> list[State]:
    """Take steps; answers the states before."""
    found = await _known(connection, [step.uid for step in steps])
    taken = [
        Transition(
            uid=s.uid, before=State(found[s.uid].state), attempt=found[s.uid].attempt, after=s.state, at=s.at,
            cause=s.cause, note=s.note, hosts=s.hosts,
        )
        for s in steps
    ]  # fmt: skip
    await transitions.take(connection, epoch, taken)
    return [step.before for step in taken]


async def take_step(
    connection: AsyncConnection, epoch: int, uid: str, state: State, *, at: float = NOW, **said: Any
) -> State:
    """Take one; answers the state before."""
    [before] = await take_steps(connection, epoch, [Step(uid=uid, state=state, at=at, **said)])
    return before


async def evict(
    connection: AsyncConnection,
    epoch: int,
    evictions: Sequence[Eviction],
    *,
    at: float,
    cycle: int | None = None,
) -> tuple[Entry, ...]:
    """Evict, as a round does."""
    found = await _known(connection, [eviction.uid for eviction in evictions])
    steps = [
        Transition(
            uid=e.uid, before=State(found[e.uid].state), attempt=found[e.uid].attempt, after=State.EVICTING,
            at=at, cause=e.cause, beneficiary=e.beneficiary, note=e.note,
        )
        for e in evictions
    ]  # fmt: skip
    await transitions.take(connection, epoch, steps, cycle=cycle)
    effects = [
        Effect(kind=EntryKind.EVICT, uid=e.uid, admission_id=str(found[e.uid].admission_id), patch=e.patch)
        for e in evictions
    ]
    return await outbox.put(connection, epoch, effects, at=at, cycle=cycle)


async def applied(
    connection: AsyncConnection, epoch: int, entries: Sequence[Entry], *, at: float = NOW
) -> None:
    """The PATCHes of these admissions went through."""
    await outbox.done(
        connection, epoch, [Result(entry=e, outcome=EntryOutcome.APPLIED) for e in entries], at=at
    )
    await take_steps(connection, epoch, [Step(uid=e.uid, state=State.PLACING, at=at) for e in entries])


async def commit_cycle(
    connection: AsyncConnection,
    *,
    epoch: int,
    record: CycleRecord,
    admissions: Sequence[NewAdmission] = (),
    evictions: Sequence[Eviction] = (),
    bonds: Sequence[Bond] = (),
    reservations: Sequence[Reservation] = (),
    explanations: Mapping[str, Explanation] | None = None,
) -> tuple[Entry, ...]:
    """Write a whole cycle, as a round with a decision does."""
    at = record.finished_at
    await cycles.record(connection, epoch, record, admitted=len(admissions), evicted=len(evictions))
    entries = await evict(connection, epoch, evictions, at=at, cycle=record.id)
    new = [replace(a, charges=tuple(replace(row, opened=at) for row in a.charges)) for a in admissions]
    await transitions.admit(connection, epoch, new, at=at, cycle=record.id)
    await cycles.write_held(connection, epoch, bonds, reservations)
    await workloads.explain(connection, epoch, explanations or {}, at=at, cycle=record.id)
    patch = {"spec": {"suspend": False}}
    starts = [Effect(kind=EntryKind.ADMIT, uid=a.uid, admission_id=a.id, patch=patch) for a in new]
    return (*entries, *await outbox.put(connection, epoch, starts, at=at, cycle=record.id))


async def _known(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, Row[Any]]:
    found = await connection.execute(
        text("SELECT uid, state, attempt, admission_id FROM workload WHERE uid = ANY(:uids)"),
        {"uids": list(uids)},
    )
    return {row.uid: row for row in found}


def cycle(number: int, *, at: float = NOW, waiting: int = 0) -> CycleRecord:
    """A cycle that took 10 ms."""
    return CycleRecord(
        id=number,
        started_at=at - 0.01,
        finished_at=at,
        trigger="job",
        status="GREEDY",
        waiting=waiting,
        stats={"turns": 1, "out": {"cordoned": 1, "notReady": 0, "free": {GPU: 8}}},
        capacity={"default": {GPU: 64}},
    )


def waits(token: Token = Token.WAITING_FOR_QUOTA, sentence: str = "no quota", **params: Any) -> Explanation:
    """Why something waits."""
    return Explanation(primary=Reason(token=token, said=sentence, params=params))
