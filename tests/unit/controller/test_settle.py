"""The writes for a workload's steps, and memory after them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.landing.settle import SettleResult, evicting, requeued, settle
from queuer.controller.landing.steps import CORRECT, Move, deadlines
from queuer.controller.landing.tally import Tally, tally
from queuer.controller.ledger.round import Change, charges
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.workload import Cause, PodSet, State
from tests.unit.make import assigned, gang, job_view, placed, pod_view, sure

LIMITS = Settings(database_url="", landing_deadline=60.0, avoid=100.0, avoid_limit=1000.0)
WORKLOAD = gang(name="job")
PLACEMENT = placed({"n1": 1}, at=100.0)
ADMITTED = Live(workload=WORKLOAD, state=State.ADMITTED, placement=PLACEMENT)
PLACING = replace(ADMITTED, state=State.PLACING, placement=replace(PLACEMENT, patched=100.0))
RUNNING = replace(PLACING, state=State.RUNNING, landed=101.0, running=101.0)
JOB = job_view(name="job", resource_version="5", suspended=False, admission="adm")
POD = pod_view("p", "n1", running=True)


def looked(
    live: Live, job: JobView | None, *pods: PodView, now: float, seen: Tally | None = None
) -> SettleResult | None:
    """A look at the gang, by its pods or by what else is known of them."""
    return settle(live, job, tally(pods) if seen is None else seen, now=now, limits=LIMITS)


def settled(
    live: Live, job: JobView | None, *pods: PodView, now: float, seen: Tally | None = None
) -> SettleResult:
    """A look that leads to something."""
    return sure(looked(live, job, *pods, now=now, seen=seen))


def recharged(before: Live, after: Live) -> list[str]:
    """Pod sets whose charge changes."""
    change = Change(uid="u", before=before, after=after)
    return [row.pod_set for row in change.recharges(at=0.0)]


def test_steps_of_one_moment_are_one_write() -> None:
    """A quick job is patched, landed and running when it is looked at.

    The database hears of the last alone.
    """
    outcome = settled(ADMITTED, JOB, POD, now=105.0)
    assert [s.move for s in outcome.steps] == [Move.PATCHED, Move.LANDED, Move.RUNNING]
    assert outcome.after.state is State.RUNNING
    assert (outcome.after.landed, outcome.after.running) == (105.0, 105.0)


def test_a_finished_job_without_pods_is_released_in_the_same_write() -> None:
    finished = replace(JOB, outcome=State.SUCCEEDED)
    outcome = settled(RUNNING, finished, replace(POD, succeeded=True), now=105.0)
    assert (outcome.after.state, outcome.after.is_over) == (State.SUCCEEDED, True)
    assert not outcome.confirm, "all its pods were seen; they ended before the job did"
    assert outcome.ran == 4.0


def test_only_a_run_that_ends_by_itself_tells_how_long_it_takes() -> None:
    """Not one that was evicted or deleted; a quick one counts from its admission."""
    finished = replace(JOB, outcome=State.FAILED)
    quick = looked(PLACING, finished, now=105.0)
    evicted = looked(replace(RUNNING, state=State.EVICTING), finished, now=105.0)
    deleted = looked(RUNNING, None, now=105.0)
    assert [o and o.ran for o in (quick, evicted, deleted)] == [5.0, None, None]


def test_a_job_that_ended_before_its_pods_were_seen_is_released_after_a_consistent_read_only() -> None:
    outcome = settled(PLACING, replace(JOB, outcome=State.FAILED), now=105.0)
    assert (outcome.after.is_over, outcome.confirm) == (True, True)


def test_a_deleted_job_holds_its_capacity_until_its_pods_are_gone() -> None:
    outcome = settled(RUNNING, None, POD, now=105.0)
    after = outcome.after
    assert (after.state, outcome.cause, after.deleted, after.is_over) == (
        State.FAILED, "deleted", True, False,
    )  # fmt: skip
    gone = settled(after, None, now=106.0)
    assert (gone.after.is_over, gone.confirm) == (True, True)


DELETING = replace(JOB, deleting=True)


@pytest.mark.parametrize("live", [PLACING, RUNNING, replace(RUNNING, state=State.EVICTING)])
def test_a_job_under_deletion_is_released_when_its_pods_are_gone_whatever_keeps_its_object(
    live: Live,
) -> None:
    """Guards quotas against finalizers: the object stays and never says that it is quiet."""
    outcome = settled(live, DELETING, now=105.0)
    assert (outcome.after.state, outcome.after.is_over, outcome.confirm) == (State.FAILED, True, True)
    leaving = looked(live, DELETING, POD, now=105.0)
    assert leaving is None, "its pod is there; nothing of it is missing or to be evicted"


def test_a_waiting_job_under_deletion_is_offered_no_more() -> None:
    """No pod would be made of it."""
    outcome = settled(Live(workload=WORKLOAD, state=State.HELD), DELETING, now=1.0)
    assert (outcome.after.is_over, outcome.cause) == (True, "deleted")


@pytest.mark.parametrize("job", [replace(JOB, outcome=State.SUCCEEDED), DELETING, None])
def test_the_charge_of_a_job_that_is_over_falls_with_its_last_pods(job: JobView | None) -> None:
    """Workers that outlive their master hold what they hold, not what the job had."""
    rows = (assigned({"n1": 3}),)
    three = replace(WORKLOAD, pod_sets=(PodSet(name="main", count=3, requests={"pods": 1}),))
    live = replace(RUNNING, workload=three, placement=replace(PLACEMENT, assignments=rows, patched=100.0))
    pods = [replace(POD, uid="a", succeeded=True), replace(POD, uid="b"), replace(POD, uid="c")]
    held = []
    for now, there in (
        (105.0, pods),
        (105.0 + CORRECT, pods),
        (130.0, pods[:2]),
        (130.0 + CORRECT, pods[:2]),
    ):
        live = settled(live, job, *there, now=now).after
        assert live.placement is not None
        held.append(live.placement.held["main"])
        assert len(deadlines(live, limits=LIMITS)) == (live.placement.due is not None)
    assert held == [3, 2, 2, 1]
    assert settled(live, job, *pods[:1], now=150.0).after.is_over


def test_since_when_a_job_is_on_its_way_out_is_known_from_its_first_sign() -> None:
    """And its next attempt knows nothing of that."""
    finished = replace(JOB, outcome=State.FAILED)
    ended = looked(RUNNING, finished, POD, now=105.0)
    deleted = looked(RUNNING, None, POD, now=105.0)
    evicted = replace(RUNNING, state=State.EVICTING, left=103.0)
    both = looked(evicted, None, POD, now=105.0)
    assert [o and o.after.left for o in (ended, deleted, both)] == [105.0, 105.0, 103.0]
    quiet = replace(JOB, suspended=True, quiet=True, admission=None)
    assert settled(evicted, quiet, now=105.0).after.left is None


LEAVING = evicting(RUNNING, now=100.0)
SUSPENDED = replace(JOB, suspended=True)


def _confirmed(live: Live) -> Live:
    """Its PATCH, or the deletion of its pods, has gone through."""
    return replace(live, placement=replace(sure(live.placement), unconfirmed=False))


def test_pods_that_the_controller_of_an_evicted_job_leaves_are_taken_down_ever_more_rarely() -> None:
    """A dead controller costs a minute, and one that makes the pods anew no storm of deletions."""
    live, taken = _confirmed(LEAVING), list[float]()
    for now in range(100, 700, 10):
        outcome = looked(live, SUSPENDED, POD, now=float(now))
        if outcome is not None:
            taken.append(now)
            assert outcome.moves == {Move.TAKE_DOWN}
            assert outcome.note.startswith(f"1 pod was left {now - 100} s after the eviction")
            live = outcome.after
            assert looked(live, SUSPENDED, POD, now=now + 500.0) is None, "under way"
            live = _confirmed(live)
            assert taken[-1] + (now - 100) in deadlines(live, limits=LIMITS)
    assert taken == [160, 220, 340, 580]


@pytest.mark.parametrize(
    ("live", "job", "pod"),
    [
        (replace(LEAVING, evictions=()), SUSPENDED, POD),
        (LEAVING, SUSPENDED, POD),
        (_confirmed(LEAVING), JOB, POD),
        (_confirmed(LEAVING), SUSPENDED, replace(POD, deleted=130.0)),
        (replace(_confirmed(LEAVING), left=None), SUSPENDED, POD),
    ],
    ids=["suspended by its owner", "not confirmed", "not suspended", "told to go", "before this process led"],
)
def test_no_other_pod_is_taken_down(live: Live, job: JobView, pod: PodView) -> None:
    """Of a job that its owner suspended, of one that may still run, and those that leave by themselves."""
    assert looked(live, job, pod, now=9_000.0) is None


def test_a_leaving_job_whose_controller_is_silent_is_back_in_its_queue_once_no_pod_came_for_a_while() -> None:
    """One that makes pods anew is never released between two of its pods."""
    live = replace(_confirmed(LEAVING), taken_down=160.0)
    assert looked(live, SUSPENDED, now=219.0) is None
    outcome = settled(live, SUSPENDED, now=220.0)
    assert (outcome.after.state, outcome.confirm) == (State.QUEUED, True)
    assert (outcome.after.left, outcome.after.taken_down) == (None, None)


@pytest.mark.parametrize("evictions", [LEAVING.evictions, ()], ids=["evicted", "suspended by its owner"])
def test_a_silent_job_is_released_only_once_the_jobs_that_make_its_pods_are_suspended(
    evictions: tuple[float, ...],
) -> None:
    """The Job controller backs off for up to six minutes: pods that it makes then would run uncharged."""
    live, job = replace(_confirmed(LEAVING), evictions=evictions), replace(SUSPENDED, makes_jobs=True)
    assert looked(live, job, now=159.0) is None
    first = settled(live, job, now=160.0)
    assert first.moves == {Move.TAKE_DOWN}
    assert first.after.state is State.EVICTING
    assert first.note.startswith("the controller of Job objects has not confirmed the suspension for 60 s")
    assert looked(first.after, job, now=900.0) is None, "under way"
    live = _confirmed(first.after)
    assert 220.0 in deadlines(live, limits=LIMITS)
    assert looked(live, job, now=219.0) is None
    assert settled(live, job, now=220.0).moves == {Move.REQUEUE}


def test_pods_that_were_taken_down_took_the_jobs_with_them() -> None:
    """A silent job whose pods were taken down is released without another take-down."""
    job = replace(SUSPENDED, makes_jobs=True)
    pods = settled(_confirmed(LEAVING), job, POD, now=160.0)
    assert pods.moves == {Move.TAKE_DOWN}
    assert settled(_confirmed(pods.after), job, now=220.0).moves == {Move.REQUEUE}


def test_a_waiting_job_that_was_deleted_is_forgotten() -> None:
    outcome = settled(Live(workload=WORKLOAD, state=State.QUEUED), None, now=1.0)
    assert (outcome.after.deleted, outcome.after.state, outcome.after.is_over) == (True, State.QUEUED, True)


REFUSED = tally([replace(POD, node=None, running=False, problem="no")])


def _failed(live: Live, seen: Tally, *, now: float) -> Live:
    """The gang after it was given up, as it lands again."""
    outcome = settled(settled(live, JOB, seen=seen, now=101.0).after, JOB, seen=seen, now=now)
    assert (Move.EVICT in outcome.moves, outcome.cause) == (True, "landing-timeout")
    assert (outcome.after.state, outcome.after.left) == (State.EVICTING, now)
    return replace(outcome.after, state=State.PLACING, placement=PLACING.placement, short=None)


def test_a_landing_that_failed_goes_elsewhere_at_once_and_the_next_rests_for_a_growing_time() -> None:
    """Guards GPUs against a cause that is the same on every node."""
    once = _failed(PLACING, REFUSED, now=1000.0)
    assert (once.avoid, once.first, once.rest) == ({"n1": 1100.0}, True, None)
    twice = _failed(once, REFUSED, now=2000.0)
    assert (twice.avoid, twice.first, twice.rest) == ({"n1": 2200.0}, False, 2200.0)
    often = replace(twice, failures=50)
    assert _failed(often, REFUSED, now=3000.0).rest == 4000.0


@pytest.mark.parametrize(
    "problem", [None, '0/4 nodes are available: persistentvolumeclaim "data" not found.']
)
def test_a_gang_rests_at_once_where_no_node_is_to_blame(problem: str | None) -> None:
    """A policy refuses its pods, or their volume is not there: nobody is evicted for a second try that must fail."""
    pods = [] if problem is None else [replace(POD, node=None, running=False, problem=problem)]
    once = _failed(PLACING, tally(pods), now=1000.0)
    assert (once.avoid, once.first, once.rest) == ({}, False, 1100.0)


def test_a_refusal_that_stands_ends_the_try_at_once() -> None:
    """Guards places against gangs that a quota or an invalid spec keeps from ever being whole."""
    two = replace(PLACING, placement=replace(PLACEMENT, assignments=(assigned({"n1": 2}),), patched=100.0))
    refused = replace(tally([POD]), refused="exceeded quota: q")
    outcome = settled(two, JOB, seen=refused, now=105.0)
    assert outcome.moves == {Move.EVICT}
    assert outcome.cause == "landing-timeout"
    assert outcome.note == "1 of 2 pods was refused: exceeded quota: q"
    assert (outcome.after.avoid, outcome.after.rest) == ({}, 205.0)
    whole = settled(two, JOB, seen=replace(tally([POD, replace(POD, uid="q")]), refused="x"), now=105.0)
    assert Move.LANDED in whole.moves, "what was refused once has come"


def test_a_gang_whose_pods_do_not_run_is_given_up_where_there_is_a_deadline_for_that() -> None:
    """Guards GPUs against an image that is missing. What keeps it is the same at the next start: the rests grow."""
    idle, limits = tally([replace(POD, running=False)]), replace(LIMITS, start_deadline=300.0)
    live, rests = PLACING, list[float]()
    for start in (1000.0, 2000.0):
        landed = sure(settle(live, JOB, idle, now=start, limits=limits)).after
        end = start + 300.0
        assert deadlines(landed, limits=limits) == (end,)
        assert settle(landed, JOB, idle, now=end - 1.0, limits=limits) is None
        assert settle(landed, replace(JOB, comes_back=False), idle, now=end, limits=limits) is None
        found = sure(settle(landed, JOB, idle, now=end, limits=limits))
        assert (found.cause, found.note) == (
            Cause.LANDING_TIMEOUT, "1 of 1 pod was on a node and did not run within 300 s",
        )  # fmt: skip
        rests.append(sure(found.after.rest) - end)
        live = replace(PLACING, failures=found.after.failures)
    assert rests == [100.0, 200.0]


def test_without_that_deadline_pods_have_all_time_to_run() -> None:
    """Init containers may take hours, as those that fetch a model."""
    idle = tally([replace(POD, running=False)])
    landed = settled(PLACING, JOB, seen=idle, now=105.0).after
    assert looked(landed, JOB, seen=idle, now=10.0**6) is None
    assert deadlines(landed, limits=LIMITS) == ()


def test_a_gang_that_runs_begins_anew() -> None:
    assert settled(replace(PLACING, failures=7), JOB, POD, now=105.0).after.failures == 0


def test_back_in_the_queue_everything_of_the_attempt_is_gone_but_what_it_learned() -> None:
    evicting = replace(RUNNING, state=State.EVICTING, avoid={"n1": 300.0}, failures=1)
    quiet = replace(JOB, suspended=True, quiet=True, admission=None)
    outcome = settled(evicting, quiet, now=200.0)
    queued = outcome.after
    assert (queued.state, outcome.confirm) == (State.QUEUED, True)
    assert (queued.attempt, queued.placement, queued.landed, queued.avoid) == (2, None, None, {"n1": 300.0})
    assert queued.workload.submitted == WORKLOAD.submitted


def test_a_charge_follows_pods_that_end_at_most_once_in_some_seconds() -> None:
    """And not to nothing: the rest comes with the gang's end."""
    many = replace(WORKLOAD, pod_sets=(PodSet(name="main", count=160, requests={"pods": 1}),))
    rows = (assigned({"n1": 160}),)
    live = replace(RUNNING, workload=many, placement=replace(PLACEMENT, assignments=rows, patched=100.0))
    writes, charged = 0, []
    for second in range(1, 181):
        now, done = 110.0 + second, min(159, second)
        pods = [replace(POD, uid=f"p{i}", succeeded=i < done) for i in range(160)]
        outcome = looked(live, replace(JOB, left=160 - done), *pods, now=now)
        if outcome is not None:
            writes += bool(recharged(live, outcome.after))
            live = outcome.after
        charged.append(sure(live.placement).held["main"])
    assert (charged[0], charged[20], charged[-1]) == (160, 160 - 11, 1)
    assert writes <= 160 / CORRECT + 1
    assert live.placement is not None
    [row] = charges(live, at=0.0)
    assert (row.count, row.amounts) == (1, {"pods": 1})
    over = replace(JOB, left=0)
    ended = [replace(POD, uid=f"p{i}", succeeded=True) for i in range(160)]
    assert looked(live, over, *ended, now=900.0) is None
    evicted = looked(evicting(live, now=900.0), replace(JOB, suspended=True), now=901.0)
    assert evicted is None
    again = requeued(evicting(live, now=900.0))
    assert (again.placement, again.workload.pod_sets[0].count) == (None, 160), "it asks for everything again"


@pytest.mark.parametrize("live", [PLACING, RUNNING])
def test_a_job_that_its_owner_scales_to_no_pod_goes_back_to_its_queue(live: Live) -> None:
    """Nobody may raise it while it is started, so it would hold its quota for ever, without a pod."""
    outcome = settled(live, replace(JOB, declared={"main": 0}, sizes={"main": 0}, left=2), now=110.0)
    assert (outcome.after.state, outcome.cause) == (State.EVICTING, Cause.SUSPENDED)
    done = replace(JOB, declared={"main": 1}, sizes={"main": 0}, left=0)
    assert Move.EVICT not in getattr(looked(live, done, now=110.0), "moves", ()), "about to be Complete"


def test_a_charge_that_is_due_is_looked_at_without_being_rung_for() -> None:
    two = (assigned({"n1": 2}),)
    live = replace(RUNNING, placement=replace(PLACEMENT, assignments=two, patched=100.0))
    outcome = settled(live, replace(JOB, sizes={"main": 1}), POD, now=110.0)
    assert recharged(live, outcome.after) == []
    assert deadlines(outcome.after, limits=LIMITS) == (110.0 + CORRECT,)
    state = ClusterState()
    state.put(outcome.after)
    assert state.moving == {"u"}
    back = settled(outcome.after, JOB, POD, replace(POD, uid="q"), now=120.0)
    assert recharged(outcome.after, back.after) == [], "it is whole again: nothing to write"
    assert deadlines(back.after, limits=LIMITS) == ()


def test_a_differing_charge_is_corrected_before_it_is_said_to_run() -> None:
    heavier = replace(POD, requests={"pods": 1, "cpu": 100})
    outcome = settled(PLACING, JOB, heavier, now=105.0)
    assert recharged(PLACING, outcome.after) == ["main"]
    assert outcome.after.workload.pod_sets[0].requests == {"pods": 1, "cpu": 100}
    assert outcome.after.state is State.RUNNING
