"""A gang of which no pod could be created is told what Kubernetes said; nothing depends on that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.apply.refusals import Refusals
from queuer.controller.landing.settle import requeued
from queuer.controller.ledger.round import Change, Round
from queuer.controller.memory.live import Live, Short
from queuer.controller.memory.state import ClusterState
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import Cause, State, Workload
from queuer.kube.events import PodRefusal, newest_refusal
from queuer.kube.kinds import JOB
from tests.unit.make import gang, placed, pod_view, sure
from tests.waiting import beside, until

WORKLOAD = gang(name="job")
LEAVES = Live(
    workload=WORKLOAD, state=State.EVICTING, placement=placed(),
    explanation=simple(Token.ADMITTED_NOT_PLACED, "evicted: no pod was created", failures=1, retryAt=90),
)  # fmt: skip
GONE = Change(uid="u", before=None, after=None, cause=Cause.LANDING_TIMEOUT)


class Events:
    """Refuses to answer at first, then says why; `then` happens meanwhile."""

    def __init__(self, state: ClusterState, *, then: Live | None = None) -> None:
        self.asked = 0
        self._state, self._then = state, then

    async def refusal(self, workload: Workload, *, since: float = 0.0) -> PodRefusal:
        self.asked += 1
        if self.asked == 1:
            raise Unavailable("later")
        if self._then is not None:
            self._state.put(self._then)
        return PodRefusal(said="pods are forbidden")


async def asked(events: Events, state: ClusterState, *evictions: Change) -> None:
    """All that was to be asked is."""
    refusals = Refusals(events, state)
    refusals.look([*evictions, *evictions])
    async with beside(refusals.run()):
        await until(lambda: events.asked == 2 * len(evictions))


async def test_the_reason_says_why_no_pod_could_be_created() -> None:
    state = ClusterState()
    state.put(LEAVES)
    await asked(Events(state), state, GONE)
    told = sure(state.live["u"].explanation)
    assert told.primary.text == "evicted: no pod was created. Its pods were refused: pods are forbidden"
    params = {"failures": 1, "retryAt": 90, "refusal": "pods are forbidden"}
    assert told.primary.params == params, "how long it rests is read from here after a restart"
    assert state.take_untold(9) == {"u": told}


@pytest.mark.parametrize(
    "newer", [replace(LEAVES, explanation=None), replace(LEAVES, explanation=simple(Token.ON_HOLD, "held"))]
)
async def test_what_is_newer_stands(newer: Live) -> None:
    state = ClusterState()
    state.put(LEAVES)
    await asked(Events(state, then=newer), state, GONE)
    assert (state.live["u"], state.untold) == (newer, {})


@pytest.mark.parametrize(
    ("node", "cause", "asked"),
    [("n1", Cause.LANDING_TIMEOUT, 1), (None, Cause.LANDING_TIMEOUT, 0), ("n1", "reclaim", 0)],
    ids=["the others were not made", "a pod waits for a node", "it goes for another"],
)
async def test_who_lacks_pods_at_its_landing_deadline_is_asked_about(
    node: str | None, cause: str, asked: int
) -> None:
    """A quota that is too small for the last pods is told as one that is too small for all."""
    state = ClusterState()
    state.put(LEAVES)
    state.pod_changed(pod_view(node=node))
    refusals = Refusals(Events(state), state)
    refusals.look([replace(GONE, cause=cause)])
    assert refusals._asked.qsize() == asked


def test_a_reason_is_written_also_in_the_round_in_which_its_workload_goes_back_to_its_queue() -> None:
    """Unless that gives it another."""
    why = simple(Token.ADMITTED_NOT_PLACED, "refused")
    back = replace(LEAVES, state=State.QUEUED, placement=None, explanation=why)
    for after, told in ((back, {"u": why}), (replace(back, explanation=None), {}), (None, {})):
        changes = Round({"u": LEAVES}, now=0.0)
        changes.put("u", after=after)
        changes.tell({"u": why})
        assert {uid: change.told for uid, change in changes.items() if change.told} == told


LANDS = Live(
    workload=WORKLOAD, state=State.PLACING, placement=placed(patched=100.0), short=Short(since=100.0, due=1)
)  # fmt: skip
FORBIDDEN = [
    'pods "job-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4',
    'pods "job-x" is forbidden: error looking up service account ns/default: serviceaccount "default" not found',
    'pods "job-x" is forbidden: status unknown for quota: q, resources: pods',
    'pods "job-x" is forbidden: not yet ready to handle request',
    'pods "job-x" is forbidden: violates PodSecurity "restricted:latest": privileged',
    'Pod "job-x" is invalid: spec.containers[0].image: Required value',
    'admission webhook "w.example.com" denied the request: no',
]
TIMEOUT = "Timeout: request did not complete"


class Answers:
    """The newest Event at each look, the last one again and again; `then` happens while it is looked up."""

    def __init__(self, *events: PodRefusal, then: Callable[[], None] = lambda: None) -> None:
        self.asked = 0
        self._events, self._then = events, then

    async def refusal(self, workload: Workload, *, since: float = 0.0) -> PodRefusal:
        assert since == 100.0, "an Event of an earlier try tells nothing"
        self.asked += 1
        self._then()
        return self._events[min(self.asked, len(self._events)) - 1]


async def followed(state: ClusterState, answers: Answers, *, until_asked: int) -> str:
    """The refusal of the landing gang once it was looked up so often, or is known before."""
    refusals = Refusals(answers, state, looks=BackOff(first=0.001, longest=0.002))
    refusals.follow([Change(uid="u", before=replace(LANDS, short=None), after=LANDS)])
    refusals.follow([Change(uid="u", before=LANDS, after=LANDS)])
    async with beside(refusals.run()):
        await until(lambda: "u" in state.refusals or answers.asked >= until_asked)
        await asyncio.sleep(0.01)
    return state.refusals.get("u", "")


@pytest.mark.parametrize("said", FORBIDDEN)
async def test_a_refusal_that_is_repeated_ends_the_try(said: str) -> None:
    """See `test_landing`. The admission after it starts without it."""
    state, answers = ClusterState(), Answers(PodRefusal(said=said, at=101.0), PodRefusal(said=said, at=104.0))
    state.put(LANDS)
    assert await followed(state, answers, until_asked=9) == said
    assert answers.asked == 2
    state.put(requeued(LANDS))
    assert not state.refusals


@pytest.mark.parametrize("said", [*FORBIDDEN, TIMEOUT])
async def test_a_refusal_that_may_pass_by_itself_ends_nothing(said: str) -> None:
    """One Event, however often it is read, and one that judges no pod, however often it comes."""
    events = [PodRefusal(said=said, at=101.0)]
    if said == TIMEOUT:
        events = [PodRefusal(said=said, at=101.0 + n) for n in range(9)]
    state, answers = ClusterState(), Answers(*events)
    state.put(LANDS)
    assert await followed(state, answers, until_asked=5) == ""


async def test_a_refusal_of_a_job_that_ends_while_it_is_read_leaves_nothing_behind() -> None:
    state = ClusterState()
    state.put(LANDS)
    events = [PodRefusal(said=FORBIDDEN[0], at=101.0 + n) for n in range(2)]
    answers = Answers(*events, then=lambda: state.drop("u") if answers.asked == 2 else None)
    assert await followed(state, answers, until_asked=2) == ""
    assert not state.refusals


def test_an_event_of_an_earlier_try_is_left_out() -> None:
    found = json.dumps({"items": [event("FailedCreate", "old", "1970-01-01T00:01:39Z")]}).encode()
    assert newest_refusal(found, reasons=JOB.refusals, since=99.9) == PodRefusal(said="old", at=99.0)
    assert newest_refusal(found, reasons=JOB.refusals, since=100.2) == PodRefusal()


def event(reason: str, message: str, at: str | None = None) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at, "type": "Warning"}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (None, ""),
        ([event("RolledBack", "it was")], ""),
        ([event("FailedCreate", "b", "2026-01-01T00:00:02Z"), event("FailedCreate", "a", "2026-01-01T00:00:01Z")], "b"),
        ([event("FailedCreatePod", "no"), event("RolledBack", "it was", "2026-01-01T00:00:01Z")], "no"),
        ([event("FailedCreate", "two\nlines\0")], "two lines\ufffd"),
        ([event("FailedCreate", "x" * 5000)], "x" * 600),
    ],
)  # fmt: skip
def test_the_newest_refusal_on_one_line(events: list[dict[str, Any]] | None, said: str) -> None:
    found = json.dumps({"items": events}).encode()
    assert newest_refusal(found, reasons=JOB.refusals).said == said
