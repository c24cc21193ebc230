"""Jobs say themselves why they wait, and why they were sent back: each thing once, the urgent first, at little cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.apply.notes import Budget, JobEvent, Notes
from queuer.controller.ledger.round import Change
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import Unavailable
from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import State
from queuer.kube.client import ConflictError
from queuer.store.commands import EvictionOrder
from tests.unit.make import gang, job_view

WAITS = (Token.WAITING_FOR_QUOTA, "16 of 16 are used")
WRONG = (Token.MISCONFIGURED, "queue root.x does not exist")
ORDER = EvictionOrder(id=1, uid="u", by="admin", at=600.0, reason="less")


class Cluster:
    """Jobs that keep what is written on them, some clock, and the notes about them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = ClusterState()
        self.notes = Notes(state=self.state, jobs=self, clock=lambda: self.now)
        self.written: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.failures: list[Exception] = []

    def waits(self, uid: str, token: Token, text: str, *, namespace: str = "ns", **params: Any) -> None:
        workload = gang(uid, namespace=namespace)
        live = Live(workload=workload, state=State.QUEUED, explanation=simple(token, text, **params))
        if uid not in self.state.jobs:
            self.state.job_changed(job_view(uid, namespace=namespace))
        self.becomes(live)

    def becomes(self, live: Live) -> None:
        self.state.put(live)
        self.notes.look([(live.uid, live)])

    async def after(self, seconds: float) -> list[str]:
        """The jobs that are told something once so much time has passed, in order."""
        self.now += seconds
        before = len(self.written)
        while await self.notes.write_one():
            pass
        return self.written[before:]

    def status(self, uid: str, said: str | None) -> Mapping[str, Any] | None:
        return None if self.state.jobs[uid].status == said else {"status": said}

    async def patch(self, uid: str, body: Mapping[str, Any]) -> str:
        if self.failures:
            raise self.failures.pop()
        self.written.append(uid)
        self.state.jobs[uid] = replace(self.state.jobs[uid], status=body["status"])
        return "2"

    async def report(self, event: JobEvent) -> None:
        self.events.append((event.uid, event.reason, event.message))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_what_the_owner_must_change_is_told_at_once_and_again_when_it_says_something_else(
    cluster: Cluster,
) -> None:
    cluster.waits("u", *WRONG)
    cluster.waits("u", *WRONG)
    assert await cluster.after(0.0) == ["u"]
    cluster.waits("u", *WRONG)
    assert await cluster.after(0.0) == []
    cluster.waits("u", Token.MISCONFIGURED, "queue root.y does not exist")
    assert await cluster.after(0.0) == ["u"]
    step = "Delete the job and create it again with what the reason names mended."
    assert cluster.events == [("u", WRONG[0], f"{WRONG[1]}. {step}")], "one Event for one kind of reason"


async def test_why_a_job_waits_is_told_after_half_a_minute_and_when_another_kind_of_reason_has_stood(
    cluster: Cluster,
) -> None:
    cluster.waits("u", *WAITS)
    assert await cluster.after(29.0) == []
    cluster.waits("u", Token.WAITING_FOR_QUOTA, "15 of 16 are used")
    assert await cluster.after(1.0) == ["u"], "figures that move do not put it off"
    assert await cluster.after(100.0) == []
    cluster.waits("u", Token.BEHIND_IN_QUEUE, "v is ahead of it")
    assert await cluster.after(9.0) == []
    cluster.waits("u", Token.WAITING_FOR_QUOTA, "12 of 16 are used")
    assert await cluster.after(9.0) == []
    assert await cluster.after(100.0) == [], "it says already that it waits for quota"
    cluster.waits("u", Token.BEHIND_IN_QUEUE, "v is ahead of it")
    assert await cluster.after(10.0) == ["u"]
    assert [reason for _, reason, _ in cluster.events] == [Token.WAITING_FOR_QUOTA, Token.BEHIND_IN_QUEUE]


async def test_another_queue_or_user_whose_limit_is_in_the_way_is_told_like_another_kind_of_reason(
    cluster: Cluster,
) -> None:
    """kubectl shows the same limit as `queuer why`, whose token is the same for all limits."""
    alice, root = "alice has 16 of 16", "root uses 512 of 512"
    cluster.waits("u", Token.WAITING_FOR_QUOTA, alice, queue="root.a", user="alice")
    assert await cluster.after(30.0) == ["u"]
    cluster.waits("u", Token.WAITING_FOR_QUOTA, root, queue="root")
    assert await cluster.after(9.0) == []
    assert await cluster.after(1.0) == ["u"]
    cluster.waits("u", Token.WAITING_FOR_QUOTA, "root uses 504 of 512", queue="root")
    assert await cluster.after(100.0) == [], "figures alone are no news"
    assert [text for _, _, text in cluster.events] == [alice, root]
    cluster.notes = Notes(state=cluster.state, jobs=cluster, clock=lambda: cluster.now)  # the next leader's
    cluster.waits("u", Token.WAITING_FOR_QUOTA, "root uses 496 of 512", queue="root")
    assert await cluster.after(30.0) == []
    cluster.waits("u", Token.WAITING_FOR_QUOTA, alice, queue="root.a", user="alice")
    assert await cluster.after(30.0) == ["u"]


async def test_a_job_that_started_meanwhile_is_told_nothing(cluster: Cluster) -> None:
    cluster.waits("u", *WAITS)
    cluster.becomes(replace(cluster.state.live["u"], state=State.ADMITTED, explanation=None))
    assert await cluster.after(60.0) == []


@pytest.mark.parametrize(
    ("failure", "pause"),
    [(Unavailable("down"), 60.0), (ConflictError(status=409, reason="", message="moved"), 1.0)],
)
async def test_a_note_that_is_refused_is_tried_again_later(
    cluster: Cluster, failure: Exception, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuer.controller.apply.notes._LOOK", 0.0)
    cluster.failures.append(failure)
    cluster.waits("u", *WRONG)
    assert await cluster.after(0.0) == []
    assert await cluster.after(pause - 0.5) == []
    assert await cluster.after(0.5) == ["u"]


async def test_an_eviction_says_for_whom_and_a_roll_back_what_the_scheduler_said(cluster: Cluster) -> None:
    for uid, cause, note in (("v", "reclaim", "evicted for ns/g"), ("r", "landing-timeout", "2 of 4 pods")):
        cluster.notes.evicted([Change(uid=uid, before=None, after=None, cause=cause, note=note)])
    await cluster.after(0.0)
    assert cluster.events == [("v", "Evicted", "evicted for ns/g"), ("r", "RolledBack", "2 of 4 pods")]


@pytest.mark.parametrize("stays", [True, False])
async def test_an_ordered_eviction_stands_on_the_job_with_its_time_until_then(
    cluster: Cluster, stays: bool
) -> None:
    """It is taken off where the job runs on. The Event says what its owner does until then."""
    cluster.waits("u", *WAITS)
    running = replace(cluster.state.live["u"], state=State.RUNNING, explanation=None)
    cluster.becomes(running)
    cluster.notes.ordered(replace(ORDER, reason="less for team-a"))
    said = 'to be evicted at 1970-01-01 00:10:00 UTC by order of admin: "less for team-a"'
    step = "Save its work before 1970-01-01 00:10:00 UTC: its pods end then, and it waits in its queue"
    assert (await cluster.after(0.0), cluster.state.jobs["u"].status) == (["u"], f"EvictionOrdered: {said}")
    assert cluster.events == [("u", "EvictionOrdered", f"{said}. {step} with its old submit time.")]
    assert await cluster.after(600.0) == [], "it is written once"
    if not stays:
        cluster.becomes(replace(running, state=State.QUEUED))
    assert await cluster.after(60.0) == ["u"] * stays
    assert cluster.state.jobs["u"].status is None or not stays


@pytest.mark.parametrize(
    ("status", "at", "stands"),
    [
        (None, 600.0, True),
        ("EvictionOrdered: to be evicted", 600.0, True),
        ("EvictionOrdered: to be evicted", 10.0, False),
        (None, 10.0, False),
    ],
    ids=["not written", "written", "over", "over and taken off"],
)
async def test_an_order_that_a_former_leader_heard_is_kept_up_without_another_event(
    cluster: Cluster, status: str | None, at: float, stands: bool
) -> None:
    """It would stand on a running job for ever, or not be there until its time."""
    cluster.state.job_changed(job_view("u", status=status))
    cluster.becomes(Live(workload=gang("u"), state=State.RUNNING))
    cluster.now = 100.0
    cluster.notes.ordered(replace(ORDER, at=at, news=False))
    await cluster.after(0.0)
    assert (cluster.state.jobs["u"].status or "").startswith("EvictionOrdered: ") is stands
    assert cluster.events == []


async def test_the_victim_of_a_cut_is_not_told_that_it_comes_back(cluster: Cluster) -> None:
    limit = QuotaRow(resource="pods", limit=1)
    queues = (Queue(path="root"), Queue(path="root.a", quota=(limit,)))
    cluster.state.configure(replace(cluster.state.rules, tree=QueueTree.of(queues)))
    cluster.state.node_changed(Node(name="n", labels={HOSTNAME: "n"}, allocatable={"pods": 9}))
    cluster.becomes(Live(workload=gang("u", pods=2), state=State.RUNNING))
    cluster.notes.ordered(ORDER)
    await cluster.after(0.0)
    ((_, _, said),) = cluster.events
    assert said.endswith("it can never start again as it is: Asks 2 pods; root.a may never use more than 1.")


async def test_an_order_on_a_job_that_went_before_its_time_is_forgotten(cluster: Cluster) -> None:
    cluster.becomes(Live(workload=gang("u"), state=State.RUNNING))
    cluster.notes.ordered(ORDER)
    cluster.state.drop("u")
    await cluster.after(0.0)
    assert cluster.notes._orders == {}


async def test_notes_are_a_tenth_of_the_other_writes_and_some_a_minute_urgent_ones_first(
    cluster: Cluster,
) -> None:
    cluster.notes.budget = Budget(left=0.0)
    for n in range(500):
        cluster.waits(f"w{n:03}", *WAITS)
    await cluster.after(59.0)
    assert len(cluster.written) + len(cluster.events) == 59
    cluster.waits("wrong", *WRONG)
    for _ in range(11):
        cluster.notes.budget.earn()
    assert await cluster.after(0.0) == ["wrong"]


async def test_a_namespace_with_thousands_delays_no_other(cluster: Cluster) -> None:
    for n in range(100):
        cluster.waits(f"m{n}", *WRONG, namespace="many")
    cluster.waits("mine", *WRONG, namespace="few")
    assert "mine" in (await cluster.after(0.0))[:2]
