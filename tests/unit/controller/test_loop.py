"""A plan that cannot be used costs its cycle, not the leadership; what a cycle left out is decided in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.cycle.judge import DecisionRequest
from queuer.controller.cycle.snapshot import is_candidate
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.ledger.round import Round
from queuer.controller.loop import Loop
from queuer.controller.memory.live import Live, Short
from queuer.controller.memory.quarantine import BACK_OFF
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.controller.term import Term
from queuer.controller.watch.views import Facts
from queuer.domain.assignments import Admission, Assignment, Bond
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Token, Verdict
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.solver.decide import decide
from queuer.solver.records import Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store.config import RulesMoved
from queuer.store.tables import EntryKind
from tests.solver.make import plan_of
from tests.unit.make import assigned, entry_of, gang, job_view, keep, placed, pod_view, sure

NOBODY = cast(Any, None)
"""Stands for what is never asked where nothing is committed."""
WORKLOAD = gang("a")
PLAN = plan_of(order=("a",))
PLAIN = (assigned({"n1": 1}),)
ADMITS = replace(PLAN, admissions=(Admission(uid="a", assignments=PLAIN),))
STRANGE = Admission(uid="a", assignments=(Assignment(pod_set="strange", flavor="default", nodes={"n1": 1}),))


class Decider:
    """Answers with these plans, the last one again and again. `asked`: about which moments."""

    def __init__(self, *plans: Plan) -> None:
        self.asked = list[float]()
        self._plans = list(plans)

    async def decide(self, *_: object, now: float, **__: object) -> Plan:
        self.asked.append(now)
        return self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]


class Deciding(Decider):
    """Decides, without a process of its own. `snapshot`: what it was asked last."""

    snapshot: Snapshot

    def __init__(self) -> None:
        super().__init__()

    async def decide(self, *args: object, now: float, **more: Any) -> Plan:
        (self.snapshot,) = cast(tuple[Snapshot], args)
        return decide(self.snapshot, now=now, **more)


class Refusing(Decider):
    """Refuses whatever it is asked, as a decision does a snapshot that contradicts itself."""

    async def decide(self, *_: object, now: float, **__: object) -> Plan:
        self.asked.append(now)
        raise InvalidInput(FieldProblem(field="snapshot: uid", message="'a' is there 2 times"))


def uncommitted(loop: Loop, *, kept: bool = False) -> list[Round]:
    """All commits from now on, without a database. `kept`: memory follows."""
    committed = list[Round]()

    async def commit(request: DecisionRequest, plan: Plan, changes: Round) -> None:
        loop.term.state.hold(changes.bonds or (), ())
        if kept:
            keep(loop.term.state, changes)
        committed.append(changes)

    loop.decisions._commit = commit  # type: ignore[method-assign]
    return committed


async def rounds(loop: Loop, count: int = 1) -> None:
    """So many rounds, each with the decision that follows."""
    for _ in range(count):
        async with asyncio.TaskGroup() as group:
            await loop.round(group)


def started(changes: Round) -> list[str]:
    """The workloads that a commit admits."""
    return [uid for uid, change in changes.items() if change.admits]


def looping(decider: Decider, **given: Any) -> Loop:
    """A loop with one workload that waits."""
    state = ClusterState()
    state.put(Live(workload=WORKLOAD, state=State.QUEUED))
    state.job_changed(job_view("a"))
    state.take_unread(99), state.take_touched(99)
    jobs = SimpleNamespace(resource_quotas=lambda: (), admit=lambda *_, **__: {}, known=Facts)
    parts = {"metrics": Metrics(), "clock": lambda: 100.0, "health": Health(stalled=30.0), **given}
    return Loop(
        state=state, jobs=cast(Any, jobs), engine=NOBODY, decider=decider,
        settings=Settings(database_url=""), epoch=1, last_cycle=0, wake=asyncio.Event(), **parts,
    )  # fmt: skip


@pytest.mark.parametrize(
    "decider", [Decider(replace(PLAN, stats=replace(PLAN.stats, solver_time=-5.0))), Refusing()]
)
async def test_a_plan_that_cannot_be_used_is_refused_and_the_next_is_asked_for(decider: Decider) -> None:
    """The heartbeat tells it, as long as somebody waits for a decision that holds."""
    metrics, clock, health = Metrics(), [100.0], Health(stalled=30.0)
    loop = looping(decider, metrics=metrics, clock=lambda: clock[0], health=health)
    for at in (100.0, 200.0, 300.0):
        clock[0] = at
        await rounds(loop)
    await loop.round(cast(Any, SimpleNamespace(create_task=pytest.fail)))
    assert decider.asked == [100.0, 200.0, 300.0]
    assert "queuer_plans_refused_total 3.0" in metrics.text((), QueueTree.of(())).decode()
    assert health.failing
    loop.term.state.drop("a")
    loop.term.state.reconsider()
    await rounds(loop)
    assert not health.failing


async def test_nothing_is_admitted_while_the_guard_is_missing() -> None:
    """Neither asked for nor committed; the first round after it is back decides."""
    clock, health, decider = [100.0], Health(stalled=30.0), Decider(ADMITS)
    loop = looping(decider, clock=lambda: clock[0], health=health)
    committed = uncommitted(loop)
    health.unguarded = "ValidatingAdmissionPolicy queuer-guard is missing"
    await rounds(loop, 2)
    assert decider.asked == []
    health.unguarded = None
    async with asyncio.TaskGroup() as group:
        await loop.round(group)
        health.unguarded = "taken away while it was decided"
    await rounds(loop)
    assert (decider.asked, committed) == ([100.0], [])
    health.unguarded, clock[0] = None, 200.0
    await rounds(loop, 2)
    assert started(committed[0]) == ["a"]


async def test_rounds_without_a_decision_seldom_look_at_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node has more in use than it has, a look goes through all pods of all work that is charged."""
    clock, looks, noted = [100.0], list[float](), list[object]()
    loop = looping(Decider(), clock=lambda: clock[0])
    loop.term.state.drop("a")

    def capacity(_: ClusterState) -> Mapping[str, Mapping[str, int]]:
        looks.append(clock[0])
        return {"default": {"gpu": 4 if clock[0] < 107.0 else 8}}

    async def commit(_: Term, changes: Round) -> None:
        noted.append(changes.cycle)

    monkeypatch.setattr(ClusterState, "capacity_by_flavor", property(capacity))
    monkeypatch.setattr(Term, "commit", commit)
    async with asyncio.TaskGroup() as group:
        for at in range(100, 115):
            clock[0], before = float(at), len(looks)
            await loop.round(group)
            assert (len(looks) > before) is (at % 5 == 0)
            await asyncio.sleep(0)  # a decision that follows is made
    assert len(noted) == 2


async def test_nodes_are_kept_for_what_is_planned_though_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first tree is held against them before there is any job."""
    decider, clock = Deciding(), [100.0]
    loop = looping(decider, clock=lambda: clock[0])
    loop.term.state.drop("a")
    uncommitted(loop)
    kept = list[StoredCycle]()

    async def commit(_: Term, changes: Round) -> None:
        """There is no database."""

    def offer(number: int, cycle: StoredCycle, *, took: float, committed: bool) -> None:
        assert committed
        kept.append(cycle)

    monkeypatch.setattr(Term, "commit", commit)
    monkeypatch.setattr(loop.decisions.recorder, "offer", offer)
    for count in (1, 2):
        loop.term.state.node_changed(Node(name=f"n{count}", labels={}, allocatable={"gpu": 8}))
        for _ in range(3):
            clock[0] += 6.0
            await rounds(loop)
    assert [len(cycle.snapshot.nodes) for cycle in kept] == [1, 2]


async def test_a_gang_that_cannot_be_started_is_quarantined_and_the_others_start() -> None:
    """No PATCH can be made for it, whatever the reason: it is told, and tried again later."""
    other = Admission(uid="b", assignments=PLAIN)
    clock, decider = [100.0], Decider(replace(PLAN, admissions=(STRANGE, other)), PLAN)
    loop = looping(decider, clock=lambda: clock[0])
    committed = uncommitted(loop)
    loop.term.state.put(Live(workload=replace(WORKLOAD, uid="b"), state=State.QUEUED))
    loop.term.state.job_changed(replace(loop.term.state.jobs["a"], uid="b"))
    loop.term.state.take_unread(99)
    await rounds(loop)
    await loop.round(cast(Any, SimpleNamespace(create_task=lambda decision, **_: decision.close())))
    assert started(committed[0]) == ["b"]
    told = sure(loop.term.state.live["a"].explanation)
    assert told.primary.token is Token.QUARANTINED
    assert "KeyError: 'strange'" in told.primary.text
    assert loop.term.state.untold == {"a": told}
    assert not is_candidate(loop.term.state.live["a"], loop.term.state, now=clock[0])
    loop.term.state.try_again(now=clock[0] + BACK_OFF.first)
    assert loop.term.state.take_unread(99) == ["a"]


@pytest.mark.parametrize(
    "odd",
    [{"assignments": STRANGE.assignments}, {"assignments": ()}, {"assignments": PLAIN, "reduced": {}}],
    ids=["a pod set that it has not", "no pod set", "nothing is charged"],
)
async def test_work_of_which_no_entry_can_be_made_counts_in_full_and_the_others_are_decided_on(
    odd: Mapping[str, Any],
) -> None:
    """Its row may have been edited by hand. The decision knows what is charged, and the term goes on."""
    clock, decider = [100.0], Deciding()
    loop = looping(decider, clock=lambda: clock[0])
    committed, state = uncommitted(loop), loop.term.state
    state.configure(
        Rules(tree=QueueTree.of([Queue(path="root.a", quota=(QuotaRow(resource="pods", limit=2),))]))
    )
    state.node_changed(Node(name="n1", labels={}, allocatable={"pods": 8}))
    placement = placed(**{"patched": 0.0, **odd})
    state.put(Live(workload=replace(WORKLOAD, uid="odd"), state=State.PLACING, placement=placement))
    state.put(Live(workload=replace(WORKLOAD, uid="b", submitted=1.0), state=State.QUEUED))
    state.job_changed(replace(state.jobs["a"], uid="b"))
    state.take_unread(99), state.take_touched(99)
    for failures in (1, 2):
        async with asyncio.TaskGroup() as group:
            await loop.decisions.follow(group)
        assert "odd" in state.quarantine
        assert sure(state.quarantine.why("odd")).primary.params["failures"] == failures
        (entry,) = decider.snapshot.admitted
        assert (entry.workload.uid, entry.counts, entry.unbound) == ("odd", {"main": 1}, ())
        clock[0] = state.quarantine.next
        state.try_again(now=clock[0])
        state.take_unread(99), state.take_touched(99)
    async with asyncio.TaskGroup() as group:
        await loop.decisions.follow(group)
    assert started(committed[0]) == ["a"], "beside what is charged there is room for one"
    assert "queuer_workloads_quarantined_total 3.0" in loop.term.metrics.text((), QueueTree.of(())).decode()


async def test_what_a_cycle_left_out_is_decided_at_once_unless_nothing_moved() -> None:
    """Asked the same at the same moment, a decision answers the same: the next one would follow without end."""
    bond = Bond(uid="a", assignments=STRANGE.assignments, victims=(), deadline=900.0)
    plan = replace(PLAN, bonds=(bond,), stats=replace(PLAN.stats, more=True))
    decider = Decider(plan)
    loop = looping(decider)
    uncommitted(loop)
    await rounds(loop, 2)
    await loop.round(cast(Any, SimpleNamespace(create_task=pytest.fail)))
    assert len(decider.asked) == 2


async def test_others_are_decided_on_again_once_a_gang_has_all_its_pods() -> None:
    """It had hosts to itself, when it landed and while it missed some of its pods."""
    loop = looping(Decider(PLAN))
    placement = placed(assignments=STRANGE.assignments)
    lands = Live(workload=WORKLOAD, state=State.PLACING, placement=placement)
    runs = replace(lands, state=State.RUNNING, landed=5.0)
    lost = replace(runs, short=Short(since=9.0))
    seen = []
    for before, after in ((lands, runs), (runs, lost), (lost, runs), (runs, replace(runs, running=6.0))):
        loop.term.state.put(before)
        loop.term.state.take_stale()
        changes = Round(loop.term.state.live, now=10.0)
        changes.put("a", after=after)
        loop.term.remember(changes)
        seen.append(loop.term.state.take_stale())
    assert seen == [True, False, True, False]


async def test_a_decision_whose_commit_ends_the_term_is_offered_to_the_recorder() -> None:
    """Nobody could replay it otherwise."""
    offered, loop = list[tuple[int, bool]](), looping(Decider(ADMITS))

    async def fails(request: DecisionRequest, plan: Plan, changes: Round) -> None:
        raise ZeroDivisionError

    loop.decisions._commit = fails  # type: ignore[method-assign]
    loop.decisions.recorder.offer = (  # type: ignore[method-assign]
        lambda number, *_, committed, **__: offered.append((number, committed))
    )
    await rounds(loop)
    with pytest.raises(ZeroDivisionError):
        await loop.decisions.follow(NOBODY)
    assert offered == [(1, False)]


async def test_rules_that_move_at_each_commit_leave_the_plan_to_the_next_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan is verified by the newer rules on the loop's thread, for up to a second each time."""
    tried, decider = list[int](), Decider(ADMITS)
    loop = looping(decider)

    async def moved(request: DecisionRequest, plan: Plan, changes: Round) -> None:
        tried.append(request.cycle)
        raise RulesMoved("revision 7 is in force")

    async def catch_up(engine: AsyncEngine, state: ClusterState) -> None:
        """The rules that memory has by then do not matter here."""

    monkeypatch.setattr("queuer.controller.cycle.decisions.catch_up", catch_up)
    loop.decisions._commit = moved  # type: ignore[method-assign]
    await rounds(loop)
    async with asyncio.TaskGroup() as group:
        await loop.decisions.follow(group)
    assert (tried, len(decider.asked), loop.decisions.under_way) == ([1, 1, 1], 2, True)


async def test_pods_outside_the_queues_are_noted_once_a_minute_and_decide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They change all the time: an idle cluster would decide and write every five seconds. Nodes are noted at once."""
    clock, decider, noted = [100.0], Decider(plan_of(order=())), list[float]()
    loop = looping(decider, clock=lambda: clock[0])
    uncommitted(loop)
    state = loop.term.state
    state.put(Live(workload=WORKLOAD, state=State.HELD))

    async def commit(_: Term, changes: Round) -> None:
        noted.append(changes.now)

    monkeypatch.setattr(Term, "commit", commit)
    node = Node(name="n1", labels={}, allocatable={"pods": 8})
    for at in range(100, 300, 5):
        clock[0] = float(at)
        if at == 250:
            node = replace(node, unschedulable=True)
        state.node_changed(node)
        state.pod_changed(pod_view(f"p{at}", "n1", owner=None, pod_set=None))
        async with asyncio.TaskGroup() as group:
            await loop.decisions.follow(group)
        await loop.decisions.follow(NOBODY)
    assert noted == [100.0, 160.0, 220.0, 250.0]
    assert decider.asked == [100.0, 250.0]


async def test_a_write_that_is_refused_again_and_again_is_told_once() -> None:
    """The applier says so at each try; the reason and the Event are the same."""
    loop = looping(Decider(PLAN))
    state, placement = loop.term.state, placed(unconfirmed=True)
    state.put(Live(workload=WORKLOAD, state=State.EVICTING, placement=placement, rest=900.0))
    entry = entry_of("a", EntryKind.EVICT, admission_id=placement.id)
    loop._refused(replace(entry, admission_id="another"), "no", 31.0)
    assert state.untold == {}
    for seconds in (31.0, 41.0):
        loop._refused(entry, "no job is suspended on Fridays", seconds)
    assert len(loop.term.notes._events) == 1
    why = state.untold["a"].primary
    assert (why.token, why.verdict) == (Token.ADMITTED_NOT_PLACED, Verdict.ESCALATE)
    assert "takes the job back, since 1970-01-01 00:01:09 UTC; the job is charged" in why.text
    assert why.text.endswith("on Fridays; considered again from 1970-01-01 00:15:00 UTC")
    assert why.params == {"refusal": "no job is suspended on Fridays", "retryAt": 900}
