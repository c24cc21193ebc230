"""Puts rows into the database the way the controller does, through the store's own functions."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.document import parse
from queuer.domain.nodes import Node, Topology
from queuer.domain.outside import Outside
from queuer.domain.queue import ManagedBy, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State, Workload
from queuer.solver.decide import decide
from queuer.solver.records import WITHOUT_SOLVER, Admitted, NodeState, Pending, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store import heartbeat, ledger, queues, stored, workloads
from queuer.store.engine import begin, conninfo
from queuer.store.heartbeat import Heartbeat, LastCycle
from queuer.store.tables import LEADER
from queuer.store.workloads import Intake
from tests.store import support
from tests.store.support import Eviction, Step, commit_cycle, evict, take_steps

GPU = support.GPU
RACK = "topology.kubernetes.io/rack"
NOW = support.NOW
A, B = "root.research.team-a", "root.research.team-b"
TREE: dict[str, Any] = {
    "apiVersion": "queuer.dev/v1",
    "kind": "QueueTree",
    "queues": {
        "root": {"quota": [{"resource": GPU, "limit": 100}]},
        "root.research": {"quota": [{"resource": GPU, "guaranteed": 64}], "policy": {"reclaim": True}},
        "root.research.team-a": {"namespaces": ["team-a"], "quota": [{"resource": GPU, "guaranteed": 32}]},
        "root.research.team-b": {"namespaces": ["team-b"], "quota": [{"resource": GPU, "guaranteed": 32}]},
    },
    "topology": {"levels": ["topology.kubernetes.io/rack"]},
}


def changed(**bodies: Any) -> dict[str, Any]:
    """`TREE` with other bodies of some queues below `root.research`; underscores stand for hyphens, None deletes."""
    document = copy.deepcopy(TREE)
    for name, body in bodies.items():
        path = "root.research." + name.replace("_", "-")
        if body is None:
            del document["queues"][path]
        else:
            document["queues"][path] = body
    return document


def waits(
    token: Token = Token.TOPOLOGY_PLACEMENT_FAILED, text: str = "no rack has 8 free nodes"
) -> Explanation:
    """A reason to wait, with another one that holds too."""
    return Explanation(
        primary=Reason(token=token, said=text, params={"level": "rack", "best": "r07", "free": "6"}),
        others=(Reason(token=Token.WAITING_FOR_QUOTA, said="48 of 64 are used"),),
        detail={"excluded": {"nodes": 2, "of": 8, "by": [{"why": "Full", "nodes": 2}]}},
    )


def two_racks(tree: QueueTree, *waiting: Workload, runs: Mapping[int, Workload] | None = None) -> Snapshot:
    """Two racks of two nodes of 8 GPUs, `n0` to `n3`. `runs`: by the number of its node."""
    held = {f"n{i}": made for i, made in (runs or {}).items()}
    per_node = {GPU: 8, "cpu": 64000, "pods": 9}
    nodes = (Node(name=f"n{i}", labels={RACK: f"r{i // 2}"}, allocatable=per_node) for i in range(4))
    return Snapshot(
        nodes=tuple(
            NodeState(node=node, used=held[node.name].demand if node.name in held else {}) for node in nodes
        ),
        tree=tree,
        topology=Topology(keys=(RACK,)),
        admitted=tuple(
            Admitted(
                workload=made, counts={"main": 1}, flavors={"main": "default"}, since=NOW - 60,
                bound={name: made.demand},
            )
            for name, made in held.items()
        ),
        pending=tuple(Pending(workload=made) for made in waiting),
    )  # fmt: skip


def decided_on(snapshot: Snapshot) -> StoredCycle:
    """A decision without CP-SAT, as it is stored."""
    plan = decide(snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER)
    return StoredCycle(snapshot=snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER, plan=plan)


@contextmanager
def leading(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold the lock of the leader: to readers a controller is there."""
    with psycopg.connect(conninfo(url), autocommit=True) as session:
        session.execute("SELECT pg_advisory_lock(%s)", [LEADER])
        yield session


@dataclass(slots=True)
class Author:
    """Writes as the leading controller; `epoch` is its own."""

    engine: AsyncEngine
    epoch: int
    cycles: int = 0

    @classmethod
    async def of(cls, engine: AsyncEngine) -> Author:
        """Take office."""
        async with begin(engine) as connection:
            author = cls(engine=engine, epoch=await support.take_office(connection))
        await author.beat()
        return author

    async def beat(
        self,
        *,
        silent: float = 0.0,
        away: float | None = None,
        unguarded: str | None = None,
        phase: str = "leading",
        cycle: LastCycle | None = None,
    ) -> None:
        """Give a sign of life, `silent` seconds ago; `away`: Kubernetes had not answered for so long by then."""
        at = time.time() - silent
        away_at = None if away is None else at - away
        sign = Heartbeat(
            holder="test",
            epoch=self.epoch,
            phase=phase,
            at=at,
            round_at=at,
            away_at=away_at,
            unguarded=unguarded,
            cycle=cycle,
        )
        async with begin(self.engine) as connection:
            await heartbeat.write(connection, sign)

    async def tree(
        self, document: Mapping[str, Any] = TREE, *, writer: ManagedBy = ManagedBy.API, reason: str = ""
    ) -> int:
        """Apply a tree document; answers the revision."""
        async with begin(self.engine) as connection:
            changeset = await queues.plan(connection, parse(document), writer=writer)
            return await queues.apply(connection, changeset, actor="test", source="test", reason=reason)

    async def submit(self, *made: Workload, state: State = State.QUEUED) -> None:
        """Take in jobs, not looked at yet."""
        rows = [support.intake_of(each, state=state) for each in made]
        async with begin(self.engine) as connection:
            await workloads.intake(connection, self.epoch, rows, at=NOW)

    async def misconfigured(self, made: Workload, text: str, **params: object) -> None:
        """Take in a job that can never start as it is."""
        reason = Explanation(primary=Reason(token=Token.MISCONFIGURED, params=params, said=text))
        row = Intake(workload=made, explanation=reason)
        async with begin(self.engine) as connection:
            await workloads.intake(connection, self.epoch, [row], at=NOW)

    async def cycle(
        self,
        *,
        admit: Sequence[Workload] = (),
        explain: Mapping[str, Explanation] | None = None,
        outside: Sequence[Outside] = (),
        **seen: object,
    ) -> None:
        """Commit a cycle. `outside`: pods that no queue pays for, as it saw them; `seen`: see `NewestCycle`."""
        self.cycles += 1
        record = support.cycle(self.cycles, at=NOW + self.cycles)
        async with begin(self.engine) as connection:
            await commit_cycle(
                connection,
                epoch=self.epoch,
                record=replace(record, stats={**record.stats, "outside": outside, **seen}),
                admissions=[support.admission(made) for made in admit],
                explanations=explain or {},
            )

    async def evict(self, eviction: Eviction) -> None:
        """Send a gang back."""
        async with begin(self.engine) as connection:
            await evict(connection, self.epoch, [eviction], at=NOW + 60)

    async def keep(self, body: bytes) -> None:
        """Keep the newest cycle as it was asked and answered."""
        row = stored.StoredRow(cycle=self.cycles, at=NOW + self.cycles, seed=0, body=body)
        async with begin(self.engine) as connection:
            await stored.put(connection, self.epoch, row)

    async def step(self, uid: str, state: State, *, at: float = NOW + 100, **more: Any) -> None:
        """Take a step. `more`: further fields of the Step."""
        async with begin(self.engine) as connection:
            change = Step(uid=uid, state=state, at=at, **more)
            await take_steps(connection, self.epoch, [change])

    async def gone(self, uid: str) -> None:
        """Its pods are gone: return what it holds."""
        async with begin(self.engine) as connection:
            await ledger.close(connection, self.epoch, [uid], NOW + 200)

    async def delete(self, uid: str) -> None:
        """Its job object is gone."""
        async with begin(self.engine) as connection:
            await workloads.forget(connection, self.epoch, [uid], NOW + 300)
