"""A cycle is committed whole or not at all, and what was committed can be loaded, replayed and undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.assignments import Assignment, Bond, Reservation
from queuer.domain.errors import Conflict
from queuer.domain.nodes import Requirement, SchedulingTerms, Toleration
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import IllegalTransition, PodSet, State
from queuer.store import heartbeat, inherited, ledger, outbox, stored, transitions, workloads
from queuer.store.codec import MOST_BYTES
from queuer.store.engine import begin
from queuer.store.events import read
from queuer.store.outbox import Result
from queuer.store.tables import EntryOutcome
from queuer.store.transitions import Transition
from queuer.store.workloads import Setback
from tests.store.support import (
    GPU,
    NOW,
    Eviction,
    Step,
    admission,
    applied,
    come,
    commit_cycle,
    cycle,
    intake_of,
    start,
    take_step,
    take_steps,
    waits,
    workload,
)


async def test_a_workload_comes_back_as_it_went_in(engine: AsyncEngine, epoch: int) -> None:
    """Every field of a workload survives the round trip, scheduling terms included."""
    terms = SchedulingTerms(
        node_selector={"gpu": "h100"},
        tolerations=(Toleration(key="gpu", operator="Exists"),),
        affinity=((Requirement(key="zone", operator="In", values=("a", "b")),), ()),
    )
    sets = (
        PodSet(name="master", count=1, requests={"cpu": 1500}, exclusive_host=True),
        PodSet(
            name="worker",
            count=4,
            min_count=2,
            requests={GPU: 8, "memory": 2**62},
            terms=terms,
            required="rack",
        ),
    )
    made = workload(
        "w1", kind="PyTorchJob", pod_sets=sets, submitted=NOW + 0.25, priority=-5, user="alice", preemptible=False,
        required="block", preferred="rack", max_runtime=3600.5, estimate=60.0, hold=True,
    )  # fmt: skip
    explanation = Explanation(
        primary=Reason(token=Token.ON_HOLD, said="held <b>", params={"queue": "root.a", "n": [1, "2"]}),
        others=(Reason(token=Token.WAITING_FOR_QUOTA, said="and quota"),),
        detail={"need": [{"count": 4}]},
    )
    row = intake_of(made, state=State.HELD, explanation=explanation)
    async with begin(engine) as connection:
        assert await workloads.intake(connection, epoch, [row], at=NOW) == {"w1": 1}
        (stored,) = await workloads.load_live(connection)
    assert stored.workload == made
    assert (stored.state, stored.attempt) == (State.HELD, 1)
    assert stored.explained == explanation
    assert stored.reason_since == NOW


async def test_an_edit_of_a_waiting_job_replaces_it_and_an_admitted_one_keeps_what_was_decided(
    engine: AsyncEngine, epoch: int
) -> None:
    """A job may change while it waits; a decision is about the job that was decided on."""
    first, edited = workload("w1"), workload("w1", queue="root.b", pods=3)
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [intake_of(first, explanation=waits())], at=NOW)
        assert await come(connection, epoch, edited, at=NOW + 1) == {"w1": 1}
        (stored,) = await workloads.load_live(connection)
        assert (stored.workload, stored.explanation) == (edited, None)
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(edited)])
        assert await come(connection, epoch, first, at=NOW + 2) == {}
        (stored,) = await workloads.load_live(connection)
    assert (stored.workload, stored.state) == (edited, State.ADMITTED)


async def test_a_job_that_comes_back_waits_again(engine: AsyncEngine, epoch: int) -> None:
    """Its namespace opted out and in again: it was taken for gone, and can be admitted like any other."""
    made = workload("w1")
    async with begin(engine) as connection:
        await come(connection, epoch, made)
        await workloads.forget(connection, epoch, ["w1"], NOW)
    async with begin(engine) as connection:
        assert await come(connection, epoch, made, at=NOW + 1) == {"w1": 1}
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(made)])
        await take_step(connection, epoch, "w1", State.FAILED, at=NOW + 2, cause="deleted")
        await workloads.forget(connection, epoch, ["w1"], NOW + 2)
    async with begin(engine) as connection:
        assert await come(connection, epoch, made, at=NOW + 3) == {}, "it holds something"
        await ledger.close(connection, epoch, ["w1"], NOW + 4)
        assert await come(connection, epoch, made, at=NOW + 5) == {"w1": 2}
        await commit_cycle(connection, epoch=epoch, record=cycle(2), admissions=[admission(made, attempt=2)])
        (stored,) = await workloads.load_live(connection)
    assert (stored.state, stored.attempt, stored.finished_at) == (State.ADMITTED, 2, None)


async def test_statements_are_cut_by_bytes(engine: AsyncEngine, epoch: int) -> None:
    """Thousands of jobs at a time, each with a long reason, are several statements of one transaction."""
    made = [workload(f"w{n}") for n in range(30)]
    seen = list[int]()

    def count(*values: Any) -> None:
        seen.append(len(str(values[3])))

    event.listen(engine.sync_engine, "before_cursor_execute", count)
    rows = [intake_of(w, explanation=waits(sentence="x" * 100_000)) for w in made]
    async with begin(engine) as connection:
        assert len(await workloads.intake(connection, epoch, rows, at=NOW)) == 30
        stored = await workloads.load_live(connection)
    assert all(row.explanation for row in stored)
    assert max(seen) < 1.5 * MOST_BYTES


async def test_admission_is_charged_and_leaves_one_effect(engine: AsyncEngine, epoch: int) -> None:
    """Admitted work holds quota from the commit on, before anything is patched."""
    made = workload("w1", pods=8, gpus=8)
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [intake_of(made, explanation=waits())], at=NOW)
        new = admission(made, flavor="h100")
        committed = await commit_cycle(connection, epoch=epoch, record=cycle(7), admissions=[new])
    async with begin(engine) as connection:
        assert await ledger.usage(connection) == {"root.a": {"h100": {GPU: 64, "cpu": 32_000, "pods": 8}}}
        (entry,) = await outbox.undone(connection)
        assert (entry,) == committed
        assert (entry.uid, entry.admission_id, entry.cycle) == ("w1", new.id, 7)
        assert entry.patch == {"spec": {"suspend": False}}
        (stored,) = await workloads.load_live(connection)
        assert (stored.state, stored.admission_id, stored.explanation) == (State.ADMITTED, new.id, None)
        held = await inherited.load_admissions(connection)
        assert held["w1"].assignments == new.assignments
        assert await inherited.last_cycle(connection) == 7
        await connection.execute(text("DELETE FROM cycle"))
        assert await inherited.last_cycle(connection) == 7, (
            "the numbers of cycles that are not kept are not given again"
        )


@pytest.mark.parametrize("spoil", ["attempt", "state", "deleted", "unknown"])
async def test_a_false_picture_commits_nothing(engine: AsyncEngine, epoch: int, spoil: str) -> None:
    """One workload that moved since the snapshot stops the whole cycle, and the others stay as they were."""
    good, bad = workload("good"), workload("bad")
    async with begin(engine) as connection:
        rows = [good] if spoil == "unknown" else [good, bad]
        await come(connection, epoch, *rows)
        if spoil == "state":
            await take_step(connection, epoch, "bad", State.HELD)
        if spoil == "deleted":
            await workloads.forget(connection, epoch, ["bad"], NOW)
    admissions = [admission(good), admission(bad, attempt=2 if spoil == "attempt" else 1)]
    with pytest.raises(Conflict, match="bad is not Queued at attempt") as refused:
        async with begin(engine) as connection:
            await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=admissions)
    assert refused.value.uids == {"bad"}
    async with begin(engine) as connection:
        assert await ledger.usage(connection) == {}
        assert await outbox.undone(connection) == []
        assert await inherited.last_cycle(connection) == 0


async def test_eviction_and_requeue(engine: AsyncEngine, epoch: int) -> None:
    """An evicted gang is charged until it is back in its queue, with its first submit time and the next attempt."""
    made = workload("w1")
    async with begin(engine) as connection:
        first = await start(connection, epoch, made)
        await applied(connection, epoch, first)
        assert await take_step(connection, epoch, "w1", State.RUNNING, at=NOW + 5) is State.PLACING
        eviction = Eviction(uid="w1", cause="reclaim", patch={"spec": {"suspend": True}}, beneficiary="w9")
        second = cycle(2, at=NOW + 9)
        (entry,) = await commit_cycle(connection, epoch=epoch, record=second, evictions=[eviction])
        assert (entry.kind, entry.admission_id) == ("evict", first[0].admission_id)
        assert (await ledger.usage(connection))["root.a"]["default"][GPU] == 1
        left = Setback(uid="w1", avoid={"n1": NOW + 80}, first=True, failures=2, rest=NOW + 90)
        await workloads.set_back(connection, epoch, [left])
        await take_step(connection, epoch, "w1", State.QUEUED, at=NOW + 20)
        (stored,) = await workloads.load_live(connection)
        assert (stored.state, stored.attempt, stored.admission_id) == (State.QUEUED, 2, None)
        assert (stored.workload.submitted, stored.setback) == (NOW, left)
        assert await ledger.usage(connection) == {}
        assert await outbox.undone(connection) == []
        again = admission(made, attempt=2)
        await commit_cycle(connection, epoch=epoch, record=cycle(3, at=NOW + 30), admissions=[again])
    async with begin(engine) as connection:
        assert await inherited.load_displacers(connection, ["w1", "w9"]) == {"w1": "w9"}
        steps = [e.data for _, e in await read(connection, after=0) if e.type == "workload.state"]
    assert [(s["from"], s["to"]) for s in steps] == [
        ("Queued", "Admitted"), ("Admitted", "Placing"), ("Placing", "Running"), ("Running", "Evicting"),
        ("Evicting", "Queued"), ("Queued", "Admitted"),
    ]  # fmt: skip
    assert (steps[3]["cause"], steps[3]["beneficiary"]) == ("reclaim", "w9")


async def test_only_what_was_started_beside_the_queue_is_admitted_from_a_hold(
    engine: AsyncEngine, epoch: int
) -> None:
    """Its ledger is open and the event says where it came from; a decision never starts what is held."""
    held = workload("w1", hold=True)
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [intake_of(held, state=State.HELD)], at=NOW)
    with pytest.raises(Conflict, match="w1"):
        async with begin(engine) as connection:
            await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(held)])
    forced = replace(admission(held), before=State.HELD)
    async with begin(engine) as connection:
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[forced])
        (stored,) = await workloads.load_live(connection)
        open_rows = await connection.execute(text("SELECT uid FROM ledger WHERE closed IS NULL"))
    async with begin(engine) as connection:
        events = [event for _, event in await read(connection, after=0)]
    assert stored.state is State.ADMITTED
    assert [row.uid for row in open_rows] == ["w1"]
    assert (events[-1].data["from"], events[-1].data["to"]) == ("Held", "Admitted")


async def test_a_step_is_taken_only_from_the_state_and_attempt_that_the_leader_saw(
    engine: AsyncEngine, epoch: int
) -> None:
    """And only if the table of steps has it: a workload that waits is not evicted."""
    made = workload("w1")
    async with begin(engine) as connection:
        await start(connection, epoch, made)
    step = Transition(uid="w1", before=State.ADMITTED, attempt=1, after=State.EVICTING, at=NOW)
    for seen in (replace(step, before=State.RUNNING), replace(step, attempt=2)):
        with pytest.raises(Conflict, match="w1 is not") as refused:
            async with begin(engine) as connection:
                await transitions.take(connection, epoch, [seen])
        assert refused.value.uids == {"w1"}
    for before, after in ((State.QUEUED, State.EVICTING), (State.RUNNING, State.PLACING)):
        with pytest.raises(IllegalTransition, match="does not go from"):
            async with begin(engine) as connection:
                await transitions.take(connection, epoch, [replace(step, before=before, after=after)])


async def test_bonds_and_reservations_are_replaced_as_a_whole(engine: AsyncEngine, epoch: int) -> None:
    """Places that a cycle does not name any more are not held any more."""
    place = Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=("n1",))
    bonds = tuple(
        Bond(uid=uid, assignments=(place,), victims=("v1", "v2"), deadline=NOW + 300) for uid in ("w1", "w2")
    )
    held = (Reservation(uid="w1", assignments=(place,), start=NOW + 60, expires=NOW + 600),)
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w1"), workload("w2"))
        await commit_cycle(connection, epoch=epoch, record=cycle(1), bonds=bonds, reservations=held)
        assert await inherited.load_bonds(connection) == bonds
        assert await inherited.load_reservations(connection) == held
        await commit_cycle(connection, epoch=epoch, record=cycle(2), bonds=bonds[1:])
        assert await inherited.load_bonds(connection) == bonds[1:]
        assert await inherited.load_reservations(connection) == ()
        await connection.execute(text("UPDATE bond SET assignments = '[{}]'"))
        edited = await inherited.load_bonds(connection)
        assert [(each.uid, each.assignments) for each in edited] == [("w2", ())], "nothing of it is believed"


async def test_only_a_changed_token_is_a_transition(engine: AsyncEngine, epoch: int) -> None:
    """New numbers for the same reason refresh the explanation, not the history; admission ends it."""
    made = workload("w1")
    told = [waits(n=1), waits(n=2), waits(Token.TOPOLOGY_PLACEMENT_FAILED, "no rack")]
    async with begin(engine) as connection:
        await come(connection, epoch, made)
        for number, explanation in enumerate(told, start=1):
            record = cycle(number, at=NOW + number)
            await commit_cycle(connection, epoch=epoch, record=record, explanations={"w1": explanation})
            (stored,) = await workloads.load_live(connection)
            assert stored.explained == explanation
        await commit_cycle(connection, epoch=epoch, record=cycle(9, at=NOW + 9), admissions=[admission(made)])
        found = await connection.execute(
            text("SELECT from_token, token, cycle FROM reason_transition ORDER BY id")
        )
    assert [tuple(row) for row in found] == [
        (None, "WaitingForQuota", 1),
        ("WaitingForQuota", "TopologyPlacementFailed", 3),
        ("TopologyPlacementFailed", None, 9),
    ]


async def test_reporting_an_effect_twice_changes_nothing(engine: AsyncEngine, epoch: int) -> None:
    """The applier may repeat its report after a crash, even with another outcome: the first word stands."""
    made = workload("w1")
    async with begin(engine) as connection:
        committed = await start(connection, epoch, made)
        (entry,) = committed
        applied = Result(entry=entry, outcome=EntryOutcome.APPLIED, resource_version="77")
        assert await outbox.done(connection, epoch, [applied], at=NOW + 1) == {entry.seq}
    async with begin(engine) as connection:
        seen = await read(connection, after=0)
        late = Result(entry=entry, outcome=EntryOutcome.CONFLICT, message="stale")
        assert await outbox.done(connection, epoch, [applied, late], at=NOW + 2) == frozenset()
    async with begin(engine) as connection:
        assert await read(connection, after=0) == seen


@pytest.mark.parametrize("where", ["admission", "stored_cycle", "heartbeat"])
async def test_numbers_of_cycles_go_on_from_the_highest_that_anybody_was_shown(
    engine: AsyncEngine, epoch: int, where: str
) -> None:
    """A cycle that changes nothing leaves no record; readers have its snapshot and its heartbeat all the same."""
    made = workload("w1")
    async with begin(engine) as connection:
        await start(connection, epoch, made)
        await take_step(connection, epoch, "w1", State.SUCCEEDED, at=NOW + 60)
        last = heartbeat.LastCycle(id=2, at=NOW, took=0.0, waiting=0, status="GREEDY")
        beat = heartbeat.Heartbeat(
            holder="me", epoch=epoch, phase="leading", at=NOW, round_at=NOW, cycle=last
        )
        await heartbeat.write(connection, beat)
        await stored.put(connection, epoch, stored.StoredRow(cycle=3, at=NOW, seed=1, body=b""))
        await connection.execute(text(f"UPDATE {where} SET cycle = 70"))
        assert await inherited.last_cycle(connection) == 70


async def test_an_ended_workload_takes_no_further_step(engine: AsyncEngine, epoch: int) -> None:
    """Finished is final; what it holds stays charged until its pods are gone."""
    made = workload("w1")
    async with begin(engine) as connection:
        await start(connection, epoch, made)
        ended = Step(uid="w1", state=State.SUCCEEDED, at=NOW + 60)
        back = Step(uid="w1", state=State.QUEUED, at=NOW + 61)
        assert len(await take_steps(connection, epoch, [ended])) == 1
        with pytest.raises(IllegalTransition):
            await take_steps(connection, epoch, [back])
        await workloads.forget(connection, epoch, ["w1"], NOW + 62)
        assert [w.state for w in await workloads.load_live(connection)] == [State.SUCCEEDED]
        assert await ledger.close(connection, epoch, ["w1"], NOW + 70) == {"w1"}
        assert await ledger.close(connection, epoch, ["w1"], NOW + 71) == frozenset()
        assert await workloads.load_live(connection) == []


async def test_a_thousand_admissions_are_looked_up_not_scanned(engine: AsyncEngine, epoch: int) -> None:
    """With the worst statistics (taken while the tables were empty) no step scans a table, let alone once per row."""
    made = [workload(f"w{n}") for n in range(1000)]
    async with engine.connect() as plain:
        await (await plain.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))
    async with begin(engine) as connection:
        committed = await start(connection, epoch, *made)
        await applied(connection, epoch, committed)
        steps = [Step(uid=w.uid, state=State.RUNNING, at=NOW) for w in made]
        assert len(await take_steps(connection, epoch, steps)) == 1000
        await ledger.close(connection, epoch, [w.uid for w in made], NOW)
        scanned = await connection.execute(
            text("SELECT relname FROM pg_stat_xact_user_tables WHERE seq_tup_read > 1000")
        )
        assert scanned.scalars().all() == []
