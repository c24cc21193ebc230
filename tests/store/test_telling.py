"""A decision's words about many waiting jobs reach the database without rewriting every row each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.cycle.build import FEW, Builder
from queuer.controller.cycle.judge import DecisionRequest, judge
from queuer.controller.ledger.commit import write
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live, live_of
from queuer.controller.memory.state import ClusterState
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.solver.records import Pending, Snapshot
from queuer.store import workloads
from queuer.store.engine import begin
from tests.solver.make import plan_of
from tests.store.support import NOW, come, intake_of, workload
from tests.unit.make import keep

RETELL = 30.0


class Patches:
    """A cluster without ResourceQuotas, where nobody starts."""

    def resource_quotas(self) -> tuple[()]:
        return ()


class Waiting:
    """Many that wait, in memory and in the store."""

    def __init__(self, engine: AsyncEngine, epoch: int) -> None:
        self.engine, self.epoch, self.number = engine, epoch, 0
        self.state = ClusterState()
        self.state.configure(Rules(revision=0))
        self.made = [workload(f"w{n}") for n in range(FEW + 1)]

    async def come(self) -> None:
        async with begin(self.engine) as connection:
            await come(connection, self.epoch, *self.made)
        for one in self.made:
            self.state.put(Live(workload=one, state=State.QUEUED))

    async def decide(
        self, at: float, *, used: int, token: Token = Token.WAITING_FOR_QUOTA, **also: str
    ) -> int:
        """All are told this many are used. Answers how many rows were written."""
        params = {"queue": "root", "used": str(used), **also}
        reason = Reason(token=token, said=f"root uses {used} of 9.", params=params)
        return await self.tell(at, Explanation(primary=reason))

    async def tell(self, at: float, explanation: Explanation) -> int:
        """All are told the same. Answers how many rows were written."""
        plan = plan_of(explanations={one.uid: explanation for one in self.made})
        pending = tuple(Pending(workload=one) for one in self.made)
        snapshot = Snapshot(nodes=(), tree=self.state.rules.tree, pending=pending)
        self.number += 1
        request = DecisionRequest(snapshot=snapshot, cycle=self.number, at=NOW + at, trigger="time")
        patches = cast(Any, Patches())
        builder = Builder(state=self.state, patches=patches, epoch=self.epoch, new_id=str, retell=RETELL)
        judged = judge(request, plan, self.state, jobs=patches, now=NOW + at)
        found = builder.build(request, plan, judged, now=NOW + at)
        before = await self.versions()
        async with begin(self.engine) as connection:
            await write(connection, found, self.epoch)
        keep(self.state, found)
        after = await self.versions()
        return sum(before[uid] != version for uid, version in after.items())

    async def versions(self) -> dict[str, str]:
        """The version of every row."""
        async with begin(self.engine) as connection:
            rows = await connection.execute(text("SELECT uid, ctid::text FROM workload"))
        return {row.uid: row.ctid for row in rows}

    async def stored(self) -> set[tuple[str, str]]:
        """The different tokens and sentences in the store."""
        async with begin(self.engine) as connection:
            live = await workloads.load_live(connection)
        return {(e.primary.token, e.primary.text) for one in live if (e := one.explained) is not None}


async def test_rows_whose_figures_move_are_rewritten_now_and_then(engine: AsyncEngine, epoch: int) -> None:
    """Ten decisions in ten seconds are one write a row; the newest figures and a new token are in the store in time."""
    many = Waiting(engine, epoch)
    await many.come()
    assert await many.decide(0.0, used=0) == FEW + 1
    assert [await many.decide(float(n), used=n) for n in range(1, 10)] == [0] * 9
    assert await many.stored() == {("WaitingForQuota", "root uses 0 of 9.")}
    assert [await many.decide(RETELL + n, used=9) for n in (0.0, 0.5)] == [FEW, 1]
    assert await many.stored() == {("WaitingForQuota", "root uses 9 of 9.")}
    assert await many.decide(RETELL + 1, used=9, token=Token.SOLVER_DEFERRED) == FEW + 1
    assert await many.stored() == {("SolverDeferred", "root uses 9 of 9.")}
    for at, written in ((RETELL + 2, FEW + 1), (RETELL + 3, 0)):
        told = await many.decide(at, used=9, token=Token.SOLVER_DEFERRED, cause="Size")
        assert told == written


async def test_what_was_found_wrong_while_a_decision_was_made_stays_in_the_store(
    engine: AsyncEngine, epoch: int
) -> None:
    """Else a job that its owner must change would be told to wait until the next decision."""
    many = Waiting(engine, epoch)
    await many.come()
    wrong = Explanation(primary=Reason(token=Token.MISCONFIGURED, said="queue root.b does not exist"))
    edited = replace(many.made[0], queue="root.b")
    async with begin(engine) as connection:
        intake = replace(intake_of(edited), explanation=wrong)
        await workloads.intake(connection, epoch, [intake], at=NOW)
    many.state.put(Live(workload=edited, state=State.QUEUED, explanation=wrong))
    assert await many.decide(0.0, used=0) == FEW
    assert await many.stored() == {
        ("WaitingForQuota", "root uses 0 of 9."),
        ("Misconfigured", "queue root.b does not exist"),
    }


async def test_a_reason_that_holds_no_more_is_taken_off_a_job_that_does_not_start(
    engine: AsyncEngine, epoch: int
) -> None:
    """Else a running job is told until its end that the API server refuses to start it."""
    many = Waiting(engine, epoch)
    await many.come()
    await many.decide(0.0, used=0)
    changes = Round(many.state.live, now=1.0)
    for one in many.made:
        changes.put(one.uid, after=replace(many.state.live[one.uid], explanation=None))
    assert all(change.writes for change in changes.values())
    async with begin(engine) as connection:
        await write(connection, changes, epoch)
    assert await many.stored() == set()


async def test_figures_are_the_same_after_a_restart_and_not_written_again(
    engine: AsyncEngine, epoch: int
) -> None:
    """The sentence is made where it is read; a new leader does not rewrite thousands of rows that say the same."""
    figures = {"queue": "root.a", "resource": "cpu", "used": 1500, "limit": 4000, "held": 0, "asks": 3000}
    reason = Reason(Token.WAITING_FOR_QUOTA, figures)
    many = Waiting(engine, epoch)
    await many.come()
    assert await many.tell(0.0, Explanation(primary=reason)) == FEW + 1
    assert await many.stored() == {
        ("WaitingForQuota", "root.a uses 1.5 of 4 cpu (the limit); this job asks 3.")
    }
    async with begin(engine) as connection:
        for row in await workloads.load_live(connection):
            many.state.put(live_of(row, None, displacer=None))
    assert await many.tell(RETELL, Explanation(primary=reason)) == 0
    used = Reason(Token.WAITING_FOR_QUOTA, {**figures, "used": 2000})
    assert await many.tell(2 * RETELL, Explanation(primary=used)) == FEW
