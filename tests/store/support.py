"""Builders of records for tests of the store. Nothing here knows how the store works."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import PodSet, Workload
from queuer.store.cycles import Charge, CycleRecord, NewAdmission
from queuer.store.workloads import Intake

NOW = 1_763_700_000.0
GPU = "nvidia.com/gpu"


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


def admission(made: Workload, *, attempt: int = 1, flavor: str = "default") -> NewAdmission:
    """An admission of the whole gang onto one host."""
    return NewAdmission(
        id=str(UUID(int=uuid4().int)),
        uid=made.uid,
        attempt=attempt,
        assignments=tuple(
            {"podSet": p.name, "flavor": flavor, "nodes": {"n1": p.count}, "selector": {}, "hosts": None}
            for p in made.pod_sets
        ),
        charges=tuple(
            Charge(
                pod_set=p.name,
                flavor=flavor,
                count=p.count,
                amounts={name: amount * p.count for name, amount in p.requests.items()},
            )
            for p in made.pod_sets
        ),
        patch={"spec": {"suspend": False}},
        domains=("r01",),
    )


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
