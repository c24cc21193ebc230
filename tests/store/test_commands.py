"""Commands are put with an audit row, read in order while they are due, and answered once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.commands import take_up
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import NotFound
from queuer.domain.events import ORDERED, event_text
from queuer.domain.override import Override, Setting
from queuer.store import commands, events, inherited, reads, workloads
from queuer.store.commands import Command, CommandAnswer, NewCommand
from queuer.store.engine import begin
from queuer.store.leader import LeadershipLost
from queuer.store.tables import CommandOutcome, CommandVerb
from tests.store.support import NOW, Eviction, applied, come, evict, intake_of, start, workload
from tests.waiting import beside, until


@pytest.fixture
async def jobs(engine: AsyncEngine, epoch: int) -> AsyncEngine:
    """Two jobs that wait. A term has begun."""
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE leader SET since = now()"))
        await come(connection, epoch, workload("a"), workload("b"))
    return engine


async def _put(connection: AsyncConnection, *rows: NewCommand) -> list[Command]:
    return await commands.add(connection, rows, actor="alice", source="cli", reason="node maintenance")


async def test_a_command_is_read_until_it_is_answered_and_told_as_an_event(
    jobs: AsyncEngine, epoch: int
) -> None:
    async with begin(jobs) as connection:
        assert not await commands.waiting(connection)
        await _put(
            connection,
            NewCommand(verb=CommandVerb.EVICT, uid="b", administers="root.a", arguments={"hold": True}),
            NewCommand(verb=CommandVerb.HOLD, uid="a"),
        )
    async with begin(jobs) as connection:
        assert await commands.waiting(connection)
        first, second = await commands.undone(connection, count=9)
        assert (first.verb, first.uid, first.arguments) == (CommandVerb.EVICT, "b", {"hold": True})
        assert (first.administers, second.administers) == ("root.a", None)
        told = CommandAnswer(id=second.id, uid="a", outcome=CommandOutcome.DONE, message="held")
        await commands.answer(connection, epoch, [told], at=NOW)
    async with begin(jobs) as connection:
        again = CommandAnswer(id=second.id, uid="a", outcome=CommandOutcome.REFUSED, message="too late")
        await commands.answer(connection, epoch, [again], at=NOW)
        assert [found.id for found in await commands.undone(connection, count=9)] == [first.id]
        kept = await commands.one(connection, second.id)
        assert (kept.outcome, kept.message, kept.done_at) == (CommandOutcome.DONE, "held", NOW)
        audit = (await connection.execute(text("SELECT actor, action, reason, detail FROM audit"))).all()
        assert [(row.actor, row.action, row.detail["uid"]) for row in audit] == [
            ("alice", "workload.evict", "b"), ("alice", "workload.hold", "a"),
        ]  # fmt: skip
        happened = [e for _, e in await events.read(connection, after=0) if e.type == "workload.command"]
    assert [(e.uid, e.queue, e.data["by"], e.data["outcome"]) for e in happened] == [
        ("a", "root.a", "alice", "done")
    ]


async def test_what_is_due_later_waits_and_what_nobody_took_up_expires(jobs: AsyncEngine) -> None:
    async with begin(jobs) as connection:
        later, old = await _put(
            connection,
            NewCommand(verb=CommandVerb.EVICT, uid="a", delay=600.0),
            NewCommand(verb=CommandVerb.HOLD, uid="b"),
        )
        assert later.due == pytest.approx(later.at + 600.0)
        assert [found.id for found in await commands.undone(connection, count=9)] == [old.id]
        await connection.execute(text("UPDATE command SET due = due - interval '601 s'"))
        taken = {found.id: found.expired for found in await commands.undone(connection, count=9)}
        assert taken == {later.id: False, old.id: True}
        assert not (await commands.one(connection, old.id)).expired, "a leader may be at it this moment"
        await connection.execute(text("UPDATE command SET due = due - interval '30 s'"))
        assert (await commands.one(connection, old.id)).expired


async def test_only_the_leader_answers(jobs: AsyncEngine, epoch: int) -> None:
    async with begin(jobs) as connection:
        [put] = await _put(connection, NewCommand(verb=CommandVerb.HOLD, uid="a"))
    told = CommandAnswer(id=put.id, uid="a", outcome=CommandOutcome.DONE, message="held")
    with pytest.raises(LeadershipLost):
        async with begin(jobs) as connection:
            await commands.answer(connection, epoch - 1, [told], at=NOW)
    with pytest.raises(NotFound):
        async with begin(jobs) as connection:
            await commands.one(connection, 10**9)


async def test_an_override_outlives_edits_and_ends_with_the_job(jobs: AsyncEngine, epoch: int) -> None:
    made = Override(hold=Setting(value=True, by="alice", at=NOW, reason="why"))
    async with begin(jobs) as connection:
        await commands.put_overrides(connection, epoch, {"a": (made, 7)})
        edited = intake_of(workload("a", priority=9))
        await workloads.intake(connection, epoch, [edited], at=NOW)
        stored = await reads.workload(connection, "a")
        assert (stored.override, stored.workload.priority) == (made, 9)
        await workloads.forget(connection, epoch, ["a"], NOW)
        await workloads.intake(connection, epoch, [edited], at=NOW)
        assert (await reads.workload(connection, "a")).override is None
        await commands.put_overrides(connection, epoch, {"b": (None, 1)})
        assert (await reads.workload(connection, "b")).override is None
        older = '{"hold": true, "priority": null, "by": "alice", "at": %s, "reason": "why", "administered": false}'
        await connection.execute(text(f"UPDATE workload SET override = '{older % NOW}' WHERE uid = 'b'"))
        assert (await reads.workload(connection, "b")).override == made, "as an older version wrote it"


async def test_a_job_has_one_open_command_of_a_verb_beside_those_of_its_administrators(
    jobs: AsyncEngine, epoch: int
) -> None:
    """H5: a loop of holds is a row at a time, and stands in no administrator's way."""
    hold = NewCommand(verb=CommandVerb.HOLD, uid="a")
    async with begin(jobs) as connection:
        [first] = await _put(connection, hold)
    async with begin(jobs) as connection:
        assert await _put(connection, hold) == []
        other, theirs = await _put(
            connection, NewCommand(verb=CommandVerb.RELEASE, uid="a"), replace(hold, administers="root.a")
        )
        assert len((await connection.execute(text("SELECT FROM audit"))).all()) == 3
        told = CommandAnswer(id=first.id, uid="a", outcome=CommandOutcome.DONE, message="held")
        await commands.answer(connection, epoch, [told], at=NOW)
        [second] = await _put(connection, hold)
        assert [c.id for c in await commands.undone(connection, count=9)] == [other.id, theirs.id, second.id]
        await connection.execute(text("UPDATE command SET due = due - interval '601 s'"))
        assert len(await _put(connection, hold)) == 1, "one that nobody took up stands in no way"


async def test_namespaces_take_turns_and_workloads_that_are_left_alone_take_none(
    engine: AsyncEngine, epoch: int
) -> None:
    """H5: an administrator's eviction waits behind nobody's flood, nor behind commands on quarantined jobs."""
    flood = [workload(f"a{n}") for n in range(6)]
    rest = [workload("b", namespace="team-b"), workload("c", namespace="team-c")]
    async with begin(engine) as connection:
        await come(connection, epoch, *flood, *rest)
        await _put(connection, *(NewCommand(verb=CommandVerb.HOLD, uid=made.uid) for made in (*flood, *rest)))
        found = await commands.undone(connection, count=4, but=["a0", "b"])
        assert [command.uid for command in found] == ["a1", "c", "a2", "a3"]
        await connection.execute(text("UPDATE command SET due = due - interval '601 s' WHERE uid = 'b'"))
        found = await commands.undone(connection, count=9, but=["b"])
        assert [command.uid for command in found if command.expired] == ["b"], "it is answered by that"


async def test_an_eviction_for_later_is_told_at_its_order_once(jobs: AsyncEngine) -> None:
    """As an event with the time, and to the leader, which tells it on the job; one that is due at once is not."""
    async with begin(jobs) as connection:
        made = await _put(
            connection,
            NewCommand(verb=CommandVerb.EVICT, uid="a", administers="root.a", delay=600.0),
            NewCommand(verb=CommandVerb.EVICT, uid="b", administers="root.a"),
        )
    async with begin(jobs) as connection:
        (told,) = [e for _, e in await events.read(connection, after=0) if e.type == ORDERED]
    assert (told.uid, told.queue, told.data["command"]) == ("a", "root.a", made[0].id)
    assert datetime.fromisoformat(told.data["due"]).timestamp() == pytest.approx(made[0].due, abs=1)
    text = event_text(told.type, told.data)
    assert text.startswith("to be evicted at ")
    assert text.endswith(' UTC by order of alice: "node maintenance"')
    heard: list[str] = []
    state = ClusterState()
    async with beside(take_up.follow(jobs, state, ordered=lambda o: heard.append(o.text), every=0.01)):
        await until(lambda: heard)
        later = NewCommand(verb=CommandVerb.EVICT, uid="b", administers="root.a", delay=60.0)
        async with begin(jobs) as connection:
            await _put(connection, later)
        await until(lambda: len(heard) > 1)
    assert heard[0] == text
    assert len(heard) == 2


async def test_an_order_that_is_committed_after_a_later_one_is_told(jobs: AsyncEngine) -> None:
    heard: list[str] = []
    order = NewCommand(verb=CommandVerb.EVICT, uid="a", administers="root.a", delay=600.0)
    async with asyncio.TaskGroup() as group:
        follows = group.create_task(
            take_up.follow(jobs, ClusterState(), ordered=lambda o: heard.append(o.uid), every=0.01)
        )
        async with begin(jobs) as slow:
            await _put(slow, order)
            async with begin(jobs) as quick:
                await _put(quick, replace(order, uid="b"))
            await until(lambda: heard)
        await until(lambda: len(heard) > 1)
        follows.cancel()
    assert heard == ["b", "a"]


async def test_a_new_term_knows_all_open_orders_and_tells_only_those_that_nobody_may_have_told(
    jobs: AsyncEngine,
) -> None:
    """Each failover would write an Event on each job that is to be evicted one day, or leave an order on it that is
    over.
    """
    order = NewCommand(verb=CommandVerb.EVICT, uid="a", administers="root.a", delay=600.0)
    async with begin(jobs) as connection:
        old, _, over, _ = await _put(
            connection, order, *(replace(order, uid="b", delay=delay) for delay in (600.0, 9.0, 0.0))
        )
        await connection.execute(
            text("UPDATE command SET at = at - interval '2 min' WHERE id = :id"), {"id": old.id}
        )
        await connection.execute(
            text("UPDATE command SET at = at - interval '1 h', due = due - interval '1 h' WHERE id = :id"),
            {"id": over.id},
        )
        known = await commands.orders(connection, known=())
        assert [(each.uid, each.news) for each in known] == [("a", False), ("b", True), ("b", False)]
        assert [each.id for each in await commands.orders(connection, known=[old.id])] == [
            each.id for each in known[1:]
        ]


@pytest.mark.parametrize(
    ("verb", "displacers"), [(CommandVerb.PRIORITISE, {}), (CommandVerb.HOLD, {"w1": "w9"})]
)
async def test_whom_another_priority_was_displaced_by_is_forgotten(
    engine: AsyncEngine, epoch: int, verb: CommandVerb, displacers: dict[str, str]
) -> None:
    """A new leader keeps nobody behind a gang that displaced it by a priority it no longer has."""
    async with begin(engine) as connection:
        await applied(connection, epoch, await start(connection, epoch, workload("w1")))
        gone = Eviction(uid="w1", cause="preempt", beneficiary="w9")
        await evict(connection, epoch, [gone], at=NOW + 9)
        [put] = await _put(connection, NewCommand(verb=verb, uid="w1"))
    async with begin(engine) as connection:
        assert await inherited.load_displacers(connection, ["w1"]) == {"w1": "w9"}
        told = CommandAnswer(id=put.id, uid="w1", outcome=CommandOutcome.DONE, message="done")
        await commands.answer(connection, epoch, [told], at=NOW + 20)
        assert await inherited.load_displacers(connection, ["w1"]) == displacers
