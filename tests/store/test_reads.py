"""Views of the past: pages that do not skip, histories that are whole, and an end to all of it."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.errors import NotFound
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store import ledger, listing, reads, retention, workloads
from queuer.store.engine import DatabaseUnavailable, begin, make_engine
from queuer.store.listing import Wanted
from tests.store.support import (
    NOW,
    Step,
    admission,
    come,
    commit_cycle,
    cycle,
    intake_of,
    take_step,
    take_steps,
    waits,
    workload,
)

BATCH, DAY, RULES = retention.BATCH, retention.DAY, retention.RULES


async def test_filters(engine: AsyncEngine, epoch: int) -> None:
    """By state, subtree (a path is no prefix of its neighbour), namespace and reason; what is gone is left out."""
    rows = [
        intake_of(workload("a", queue="root.a")),
        intake_of(
            workload("ax", queue="root.a.x", namespace="other"), explanation=waits(Token.BEHIND_IN_QUEUE)
        ),
        intake_of(workload("ab", queue="root.ab"), state=State.HELD),
        intake_of(workload("gone", queue="root.a")),
    ]
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, rows, at=NOW)
        await workloads.forget(connection, epoch, ["gone"], NOW)

        async def found(**filters: object) -> set[str]:
            return {s.workload.uid for s in await listing.workloads(connection, Wanted(**filters))}  # type: ignore[arg-type]

        assert await found() == {"a", "ax", "ab"}
        assert await found(queue="root.a") == {"a", "ax"}
        assert await found(queue="root.a", deleted=True) == {"a", "ax", "gone"}
        assert await found(states=[State.HELD, State.RUNNING]) == {"ab"}
        assert await found(namespace="other") == {"ax"}
        assert await found(tokens=[Token.BEHIND_IN_QUEUE]) == {"ax"}
        assert await found(queue="root._") == set()


async def test_by_name_it_is_the_newest(engine: AsyncEngine, epoch: int) -> None:
    """A job that was deleted and made again has one name and two histories; the name means the present one."""
    old = workload("old", name="train")
    new = workload("new", name="train", submitted=NOW + 60)
    async with begin(engine) as connection:
        await come(connection, epoch, old, new)
        stored = await reads.by_reference(connection, namespace="team-a", name="train", kind="job")
        assert stored.workload.uid == "new"
        assert (await reads.workload(connection, "old")).workload == old
        with pytest.raises(NotFound, match="no PyTorchJob train was seen in namespace team-a"):
            await reads.by_reference(connection, namespace="team-a", name="train", kind="PyTorchJob")
        with pytest.raises(NotFound):
            await reads.workload(connection, "nobody")


async def test_a_timeline_tells_steps_and_reasons_in_order(engine: AsyncEngine, epoch: int) -> None:
    """From submission to the end, nothing left out."""
    made = workload("w1")
    async with begin(engine) as connection:
        await come(connection, epoch, made)
        record = cycle(1, at=NOW + 1)
        await commit_cycle(connection, epoch=epoch, record=record, explanations={"w1": waits()})
        await commit_cycle(connection, epoch=epoch, record=cycle(2, at=NOW + 9), admissions=[admission(made)])
        await take_step(connection, epoch, "w1", State.FAILED, at=NOW + 20, cause="BackoffLimitExceeded")
    async with begin(engine) as connection:
        moments = await reads.timeline(connection, "w1")
        (attempt,) = await reads.admissions(connection, "w1")
    told = [(m.at - NOW, m.what, m.data.get("to", m.data.get("token"))) for m in moments]
    assert told == [
        (0, "workload.submitted", None), (1, "reason", "WaitingForQuota"), (9, "workload.state", "Admitted"),
        (9, "reason", None), (20, "workload.state", "Failed"),
    ]  # fmt: skip
    assert (attempt.cycle, attempt.ended_at, attempt.end_cause) == (2, NOW + 20, "BackoffLimitExceeded")


async def test_old_history_goes_and_what_counts_stays(engine: AsyncEngine, epoch: int) -> None:
    """Retention never touches what waits, runs or is still charged, however old; a batch bounds each call."""
    uids = ["waits", "runs", "ended", "charged", "gone"]
    made = {uid: workload(uid) for uid in uids}
    async with begin(engine) as connection:
        await workloads.intake(
            connection, epoch, [intake_of(w, explanation=waits()) for w in made.values()], at=NOW
        )
        started = [admission(made[uid]) for uid in ("runs", "ended", "charged")]
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=started)
        ends = [Step(uid=uid, state=State.SUCCEEDED, at=NOW) for uid in ("ended", "charged")]
        await take_steps(connection, epoch, ends)
        await ledger.close(connection, epoch, ["ended"], NOW)
        await workloads.forget(connection, epoch, ["gone"], NOW)
        before = await ledger.usage(connection)
    nothing = await _pruned(engine, epoch, now=NOW + DAY)
    assert set(nothing.values()) == {0}
    gone = await _pruned(engine, epoch, now=NOW + 1000 * DAY, batch=4)
    async with begin(engine) as connection:
        assert gone["event"] == 4
        assert (gone["workload"], gone["ledger"], gone["cycle"], gone["outbox"]) == (2, 1, 1, 0)
        left = (await connection.execute(text("SELECT uid FROM workload ORDER BY uid"))).scalars().all()
        assert left == ["charged", "runs", "waits"]
        assert await ledger.usage(connection) == before


async def _pruned(engine: AsyncEngine, epoch: int, *, now: float, batch: int = BATCH) -> dict[str, int]:
    gone: dict[str, int] = {}
    for rule in RULES:
        async with begin(engine) as connection:
            gone[rule.table] = await retention.prune(connection, epoch, rule, now=now, batch=batch)
    return gone


async def test_a_broken_connection_has_one_name(engine: AsyncEngine, database_url: str) -> None:
    """Whether the server is gone before or in the middle, callers see DatabaseUnavailable, and can go on later."""

    async def break_in_the_middle() -> None:
        async with begin(engine) as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with begin(engine) as other:
                await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            await connection.execute(text("SELECT 1"))

    with pytest.raises(DatabaseUnavailable):
        await break_in_the_middle()
    async with begin(engine) as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    nowhere = make_engine("postgresql://queuer@127.0.0.1:1/queuer", name="queuer-test")
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL"):
        async with begin(nowhere) as connection:
            await connection.execute(text("SELECT 1"))
    await nowhere.dispose()


async def test_a_task_that_is_cancelled_ends_though_its_rollback_fails(engine: AsyncEngine) -> None:
    """Else a term of office would wait for ever for a task that it cancelled because the database had gone."""
    begun = asyncio.Event()

    async def work() -> None:
        async with begin(engine) as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with begin(engine) as other:
                await other.execute(text("SELECT pg_terminate_backend(:pid, 60000)"), {"pid": pid})
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_loop_of_edits_leaves_one_event(engine: AsyncEngine, epoch: int) -> None:
    """H4: a hold that is toggled for days fills no table, and the history ends as the job is."""
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w"))
        await workloads.explain(connection, epoch, {"w": waits(Token.WAITING_FOR_QUOTA)}, at=NOW + 1)
    for second in range(2, 60, 4):
        held, free = (
            intake_of(workload("w"), state=State.HELD, explanation=waits(Token.ON_HOLD)),
            intake_of(workload("w")),
        )
        async with begin(engine) as connection:
            await workloads.intake(connection, epoch, [held], at=NOW + second)
        async with begin(engine) as connection:
            await workloads.intake(connection, epoch, [free], at=NOW + second + 2)
    async with begin(engine) as connection:
        moments = await reads.timeline(connection, "w")
    told = [(m.at - NOW, m.what, m.data.get("token") or m.data.get("state")) for m in moments]
    assert told == [
        (0, "workload.submitted", "Queued"), (1, "reason", Token.WAITING_FOR_QUOTA),
        (60, "workload.edited", "Queued"), (60, "reason", None),
    ]  # fmt: skip


async def test_a_look_at_a_job_that_nobody_changed_is_no_event(engine: AsyncEngine, epoch: int) -> None:
    """As after a cordon: what may never start is judged anew, and only its reason is told if that is another."""
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w"))
    looked = intake_of(workload("w"), explanation=waits(Token.EXCEEDS_MAX_QUOTA), edited=False)
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [looked], at=NOW + 1)
    async with begin(engine) as connection:
        moments = await reads.timeline(connection, "w")
    told = [(m.what, m.data.get("token")) for m in moments]
    assert told == [("workload.submitted", None), ("reason", Token.EXCEEDS_MAX_QUOTA)]


async def test_edits_that_are_apart_are_all_told(engine: AsyncEngine, epoch: int) -> None:
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w"))
    for second in (20, 40):
        async with begin(engine) as connection:
            await come(connection, epoch, workload("w"), at=NOW + second)
    async with begin(engine) as connection:
        assert [m.at - NOW for m in await reads.timeline(connection, "w")] == [0, 20, 40]


async def test_a_history_is_read_to_its_end_by_its_newest_rows(engine: AsyncEngine, epoch: int) -> None:
    """H4: the timeline of a job takes a bounded amount of memory."""
    tokens = [Token.WAITING_FOR_QUOTA, Token.BEHIND_IN_QUEUE] * 3
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w"))
        for second, token in enumerate(tokens):
            await workloads.explain(connection, epoch, {"w": waits(token)}, at=NOW + second)
        moments = await reads.timeline(connection, "w", count=2)
    assert [m.at - NOW for m in moments if m.what == "reason"] == [4, 5]
