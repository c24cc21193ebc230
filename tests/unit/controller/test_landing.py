"""The life of a gang after its admission follows from its job and pods alone.

These tables fix what follows when.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.landing.steps import (
    Move,
    Step,
    deadlines,
    held,
    missing,
    next_step,
)
from queuer.controller.landing.tally import tally
from queuer.controller.memory.live import JobView, Live, Short
from queuer.controller.memory.pods import PodIndex, PodView
from queuer.domain.assignments import Assignment
from queuer.domain.workload import Cause, State
from tests.unit.landed import LIMITS
from tests.unit.make import gang, job_view, placed, sure
from tests.unit.make import pod_view as pod

WORKLOAD = gang(pods=2, name="job")
PLACEMENT = placed({"n1": 1, "n2": 1}, at=100.0, patched=100.0)
PLACING = Live(workload=WORKLOAD, state=State.PLACING, placement=PLACEMENT)
RUNNING = replace(PLACING, state=State.RUNNING, landed=101.0, running=101.0)
JOB = job_view(name="job", resource_version="5", suspended=False, admission="adm")
SUSPENDED = replace(JOB, suspended=True, quiet=True, admission=None)
FACTS: dict[str, dict[str, object]] = {
    "runs": {"running": True},
    "succeeded": {"succeeded": True},
    "failed": {"failed": True},
    "terminates": {"running": True, "deleted": 120.0},
}


def move(live: Live, job: JobView | None, *pods: PodView, now: float = 110.0) -> Move | None:
    """The consequence, beside a note of what is missing."""
    step = followed(live, job, *pods, now=now)
    return step.move if step else None


def followed(live: Live, job: JobView | None, *pods: PodView, now: float) -> Step | None:
    """The step after the look at which it is noted what is missing."""
    step = next_step(live, job, tally(pods), now=now, limits=LIMITS)
    if step is None or step.move is not Move.SHRUNK:
        return step
    noted = replace(live, short=step.short)
    return next_step(noted, job, tally(pods), now=now, limits=LIMITS)


def test_running_is_not_said_before_every_pod_runs() -> None:
    started = replace(PLACING, landed=101.0)
    assert move(PLACING, JOB, pod("a", "n1", running=True)) is None
    assert move(PLACING, JOB, pod("a", "n1", running=True), pod("b", "n2")) is Move.LANDED
    assert move(started, JOB, pod("a", "n1", running=True), pod("b", "n2")) is None
    assert move(started, JOB, pod("a", "n1", running=True), pod("b", "n2", running=True)) is Move.RUNNING


def test_pods_that_come_once_all_others_are_ready_are_waited_for_without_a_limit() -> None:
    """A RayJob's work is submitted when its cluster is ready, whatever its images take to come."""
    submits = Assignment(pod_set="submitter", flavor="default", nodes={"n1": 1})
    placement = replace(PLACEMENT, assignments=(*PLACEMENT.assignments, submits))
    placing = replace(PLACING, placement=placement)
    landed, running = replace(placing, landed=101.0), replace(RUNNING, placement=placement)
    job = replace(JOB, late=frozenset({"submitter"}))
    cluster = (pod("a", "n1", running=True), pod("b", "n2", running=True))
    assert missing(placement, tally(cluster), job)["submitter"] == 1, "its place is kept"
    assert move(placing, job, *cluster, now=9999.0) is Move.LANDED
    assert move(landed, job, *cluster, now=9999.0) is Move.RUNNING
    assert move(running, job, *cluster, now=99999.0) is None
    assert move(placing, JOB, *cluster, now=9999.0) is Move.EVICT
    unbound = replace(pod("c", problem="no room"), pod_set="submitter")
    assert move(running, job, *cluster, unbound, now=9999.0) is None


def test_a_gang_whose_quick_pods_succeeded_already_has_landed() -> None:
    assert move(PLACING, JOB, pod("a", "n1", succeeded=True), pod("b", "n2", running=True)) is Move.LANDED


def test_a_pod_that_failed_leaves_its_place_unfilled() -> None:
    assert move(PLACING, JOB, pod("a", "n1", failed=True), pod("b", "n2", running=True)) is None


def test_a_gang_whose_pods_end_before_all_are_bound_has_landed_once_each_place_was_filled() -> None:
    """Guards jobs of very short pods: they are never whole, and not to be evicted for it. Each second one pod ends and
    one is bound.
    """
    owed, index, live = replace(JOB, left=10**6), PodIndex(), PLACING
    index.put(pod("old", "n1", succeeded=True))  # of an earlier attempt
    index.put(pod("p0"))
    moves = []
    for now in range(1, 5):
        seen = tally(index.of(WORKLOAD))
        for _ in range(3):  # a look again at the same pods counts nobody twice
            step = next_step(live, owed, seen, now=100.0 + now, limits=LIMITS)
            if step is None:
                break
            moves.append((now, step.move))
            landed = 100.0 + now if step.move is Move.LANDED else live.landed
            live = replace(live, short=step.short, landed=landed)
        index.put(pod(f"p{now - 1}", "n1", succeeded=True))
        index.put(pod(f"p{now}"))
    assert [when for when, move in moves if move is Move.LANDED] == [3]


def test_pods_of_an_earlier_attempt_fill_no_place() -> None:
    """Guards a job that was evicted with completions behind it: its next pods are still to come."""
    owed, index = replace(JOB, left=10), PodIndex()
    for i in range(9):
        index.put(pod(f"old{i}", "n1", succeeded=True))
    live = PLACING
    for now in (101.0, 102.0, 103.0):
        seen = tally(index.of(WORKLOAD))
        step = next_step(live, owed, seen, now=now, limits=LIMITS)
        assert step is None or step.move is Move.SHRUNK
        live = replace(live, short=step.short) if step is not None else live


def test_a_gang_that_gets_on_is_given_more_time() -> None:
    """Guards large gangs: the deadline counts from the last pod that came onto a node."""
    index = PodIndex()
    index.put(pod("a"))
    index.put(pod("b"))
    live = PLACING
    for now in (100.0, 150.0):
        if now == 150.0:
            index.put(pod("a", "n1", running=True))
        step = sure(next_step(live, JOB, tally(index.of(WORKLOAD)), now=now, limits=LIMITS))
        assert step.move is Move.SHRUNK
        live = replace(live, short=step.short)
    assert deadlines(live, limits=LIMITS) == (210.0, 390.0)


def test_the_whole_gang_is_evicted_and_the_nodes_that_refused_are_named() -> None:
    pods = pod("a", "n1", running=True), pod("b", problem="0/2 nodes are available")
    step = sure(followed(PLACING, JOB, *pods, now=160.0))
    assert (step.move, step.cause) == (Move.EVICT, Cause.LANDING_TIMEOUT)
    assert step.refused == ("n2",)
    assert "1 of 2 pods" in step.note
    assert "0/2 nodes are available" in step.note
    assert followed(PLACING, JOB, *pods, now=159.9) is None


def test_where_no_pod_was_created_no_node_is_blamed() -> None:
    """Guards nodes against a policy that refuses the pods; the sentence says where the cause is told."""
    step = sure(followed(PLACING, JOB, now=340.0))
    assert (step.move, step.refused) == (Move.EVICT, ())
    assert step.note == "no pod was created within 240 s; `kubectl describe job job -n ns` says why"
    partly = sure(followed(PLACING, JOB, pod("a", "n1", running=True), now=340.0))
    assert (partly.refused, partly.note[:28]) == ((), "1 of 2 pods was not created ")


def test_without_a_refusal_the_gang_is_given_more_time() -> None:
    """Pods that do not exist yet, or that kube-scheduler has not come to, say nothing about the place."""
    assert move(PLACING, JOB, now=160.0) is None
    assert move(PLACING, JOB, pod("a"), pod("b"), now=339.0) is None
    assert move(PLACING, JOB, now=340.0) is Move.EVICT


def test_an_object_older_than_our_patch_is_no_evidence() -> None:
    stale = replace(JOB, suspended=True, admission=None)
    assert move(PLACING, stale, now=1000.0) is None


def test_the_last_pod_that_runs_tells_where_all_of_them_are() -> None:
    """The plan names more hosts than pods come to; what is shown afterwards is what there is."""
    started = replace(PLACING, landed=101.0)
    pods = (pod("a", "n2", running=True), pod("b", "n2", running=True))
    assert sure(next_step(started, JOB, tally(pods), now=110.0, limits=LIMITS)).hosts == {"main": {"n2": 2}}


def test_the_object_itself_confirms_a_patch_whose_answer_was_lost() -> None:
    assert (
        move(replace(PLACING, state=State.ADMITTED, placement=replace(PLACEMENT, patched=None)), JOB)
        is Move.PATCHED
    )


def test_suspended_by_hand_is_given_up() -> None:
    assert move(RUNNING, replace(JOB, suspended=True)) is Move.LEFT


def test_evicted_work_is_queued_again_only_when_quiet_and_without_pods() -> None:
    evicting = replace(RUNNING, state=State.EVICTING)
    assert move(evicting, JOB) is None
    assert move(evicting, replace(SUSPENDED, quiet=False)) is None
    assert move(evicting, SUSPENDED, pod("a", "n1", deleted=100.0)) is None
    assert move(evicting, SUSPENDED, pod("a", "n1", failed=True)) is Move.REQUEUE
    assert move(evicting, SUSPENDED) is Move.REQUEUE


def test_an_eviction_ends_only_when_its_write_is_confirmed() -> None:
    """A gang that was evicted before its start is suspended, quiet and without pods; its start may be under way."""
    never = replace(sure(PLACING.placement), patched=None, unconfirmed=True)
    evicting = replace(PLACING, state=State.EVICTING, placement=never)
    assert move(evicting, SUSPENDED) is None
    assert move(replace(evicting, placement=replace(never, unconfirmed=False)), SUSPENDED) is Move.REQUEUE


def test_capacity_is_returned_when_pods_are_gone_not_when_the_job_says_so() -> None:
    assert (
        move(RUNNING, replace(JOB, outcome=State.SUCCEEDED), pod("a", "n1", deleted=100.0)) is Move.FINISHED
    )
    ended = replace(RUNNING, state=State.SUCCEEDED)
    assert move(ended, None, pod("a", "n1", deleted=100.0), pod("b", "n1")) is None
    assert move(ended, JOB, pod("a", "n1", succeeded=True)) is Move.RELEASE


@pytest.mark.parametrize("live", [PLACING, RUNNING, replace(RUNNING, state=State.EVICTING)])
def test_a_deleted_job_is_noticed_in_every_state(live: Live) -> None:
    assert move(live, None, pod("a", "n1", running=True)) is Move.VANISHED


def test_a_running_gang_that_lost_pods_gets_time_then_is_evicted_whole() -> None:
    left = pod("a", "n1", running=True)
    short = replace(RUNNING, short=Short(since=200.0, seen=frozenset({"a"}), lost=True))
    assert deadlines(short, limits=LIMITS) == (1100.0,)
    assert move(short, JOB, left, now=1099.0) is None, "the Job controller backs off"
    assert move(short, JOB, left, now=1100.0) is Move.EVICT
    homeless = pod("b", problem="0/1 nodes are available")
    waits = replace(short, short=Short(since=220.0, made=True, seen=frozenset({"a"}), lost=True))
    step = sure(next_step(short, JOB, tally([left, homeless]), now=220.0, limits=LIMITS))
    assert (step.move, step.short) == (Move.SHRUNK, waits.short)
    assert move(waits, JOB, left, homeless, now=279.0) is None
    step = sure(followed(waits, JOB, left, homeless, now=280.0))
    assert (step.move, step.cause, step.refused) == (Move.EVICT, Cause.LOST_PODS, ())
    assert move(short, JOB, left, pod("b", "n2", running=True)) is Move.WHOLE


def test_a_job_that_failed_says_why() -> None:
    """The first pod that failed, then the condition of the job."""
    told = "pod b on n2 ended with exit code 137, OOMKilled"
    failed = replace(JOB, outcome=State.FAILED, failure="BackoffLimitExceeded: too often")
    for seen, said in (
        (replace(tally(()), failed=told), f"failed: {told}; BackoffLimitExceeded: too often"),
        (tally(()), "failed: BackoffLimitExceeded: too often"),
    ):
        step = sure(next_step(RUNNING, failed, seen, now=110.0, limits=LIMITS))
        assert (step.move, step.note) == (Move.FINISHED, said)


@pytest.mark.parametrize(
    ("state", "restarts", "succeeded", "cut"),
    [
        (State.EVICTING, False, 1, True),
        (State.EVICTING, False, 2, False),
        (State.EVICTING, True, 1, False),
        (State.RUNNING, False, 1, False),
    ],
)
def test_a_work_queue_that_an_eviction_made_complete_says_what_was_lost(
    state: State, restarts: bool, succeeded: int, cut: bool
) -> None:
    """Kubernetes calls it Complete, and it looks like a success."""
    ended = replace(JOB, outcome=State.SUCCEEDED, restarts=restarts)
    seen = tally(pod(f"p{n}", "n1", succeeded=True) for n in range(succeeded))
    step = sure(next_step(replace(RUNNING, state=state), ended, seen, now=110.0, limits=LIMITS))
    said = "evicted when 1 of 2 pods had succeeded, and Complete by that: the others were stopped for good"
    assert (step.move, step.note) == (Move.FINISHED, said if cut else "")


def test_a_running_gang_tells_once_which_pods_it_lost() -> None:
    """It is looked at again and again while they are missing."""
    seen = replace(tally([pod("a", "n1", running=True)]), failed="node n2 is gone, and pod b with it")
    step = sure(next_step(RUNNING, JOB, seen, now=110.0, limits=LIMITS))
    assert step.note == "1 of 2 pods is gone: node n2 is gone, and pod b with it"
    missed = replace(RUNNING, short=replace(sure(step.short), made=True))
    again = sure(next_step(missed, JOB, seen, now=120.0, limits=LIMITS))
    assert (again.move, again.note) == (Move.SHRUNK, "")


@pytest.mark.parametrize(
    ("left", "pods", "lost"),
    [
        (2, {"a": "succeeded", "b": "runs"}, False),  # the job's status does not count it yet
        (2, {"a": "succeeded", "b": "succeeded"}, False),
        (9, {"a": "succeeded", "b": "runs"}, False),  # another is to come
        (2, {"b": "runs"}, True),
        (2, {"a": "terminates", "b": "succeeded"}, True),
        (2, {"a": "failed", "b": "succeeded"}, True),
        (9, {"a": "succeeded", "b": "failed", "c": "runs"}, True),
    ],
)  # fmt: skip
def test_a_pod_that_ended_well_is_no_loss(left: int, pods: dict[str, str], lost: bool) -> None:
    """A gang whose pods end one after the other would read that a pod is gone, a second before it has succeeded."""
    seen = tally([pod(uid, "n1", **FACTS[what]) for uid, what in pods.items()])
    failed = replace(seen, failed="pod failed" if "failed" in pods.values() else "")
    step = sure(next_step(RUNNING, replace(JOB, left=left), failed, now=110.0, limits=LIMITS))
    assert (step.move, bool(step.note)) == (Move.SHRUNK, lost)


def test_a_loss_after_a_pod_that_ended_well_is_told() -> None:
    short = Short(since=105.0, due=1, seen=frozenset("a"))
    seen = replace(
        tally([pod("a", "n1", succeeded=True), pod("b", "n2", failed=True)]), failed="pod b failed"
    )
    step = sure(
        next_step(replace(RUNNING, short=short), replace(JOB, left=9), seen, now=110.0, limits=LIMITS)
    )
    assert step.note == "2 of 2 pods are gone: pod b failed"


def test_pods_that_finished_are_not_missed_unless_the_job_owes_more_completions() -> None:
    seen = tally([pod("a", "n1", succeeded=True), pod("b", "n2", running=True)])
    assert missing(PLACEMENT, seen, JOB) == {"main": 0}
    assert missing(PLACEMENT, seen, replace(JOB, left=7)) == {"main": 1}
    assert missing(PLACEMENT, seen, replace(JOB, left=1)) == {"main": 0}


def test_pods_that_the_job_gave_up_are_not_missed() -> None:
    """Guards a job whose owner lowered its parallelism: it is not evicted for the pods that are gone."""
    smaller, gone = replace(JOB, sizes={"main": 1}), pod("b", "n2", deleted=120.0)
    assert missing(PLACEMENT, tally([pod("a", "n1", running=True), gone]), smaller) == {"main": 0}
    early = replace(smaller, admission=None)
    assert missing(PLACEMENT, tally([]), early) == {"main": 2}, "what an earlier, smaller admission has left"
    assert missing(PLACEMENT, tally([]), replace(JOB, sizes={"other": 1})) == {"main": 0}, (
        "a role that is gone"
    )


@pytest.mark.parametrize(
    ("job", "pods", "charged"),
    [
        (JOB, {"a": "runs", "b": "runs"}, 2),
        (JOB, {"a": "runs", "b": "succeeded"}, 1),
        (JOB, {"a": "runs", "b": "failed"}, 2),
        (JOB, {"a": "runs"}, 2),
        (replace(JOB, left=1), {"a": "runs", "b": "succeeded"}, 1),
        (replace(JOB, left=9), {"a": "runs", "b": "succeeded"}, 2),
        (replace(JOB, left=1), {"a": "runs", "b": "terminates"}, 2),
        (replace(JOB, sizes={"main": 1}), {"a": "runs"}, 1),
        (replace(JOB, sizes={"main": 1}), {"a": "runs", "b": "terminates"}, 2),
        (replace(JOB, sizes={"main": 5}), {"a": "runs", "b": "runs", "c": "terminates"}, 2),
        (replace(JOB, left=1, repeats=True), {"a": "runs", "b": "succeeded"}, 2),
        (replace(JOB, left=1, repeats=True, deleting=True), {"a": "runs"}, 1),
    ],
)  # fmt: skip
def test_what_is_charged_is_what_can_still_run_and_what_is_not_gone(
    job: JobView, pods: dict[str, str], charged: int
) -> None:
    seen = tally([pod(uid, "n1", **FACTS[what]) for uid, what in pods.items()])
    assert held(PLACEMENT, seen, job) == {"main": charged}


def test_pods_that_request_more_than_the_job_said_are_noticed_once() -> None:
    real = {"pods": 1, "cpu": 500}
    pods = [pod("a", "n1", running=True, requests=real), pod("b", "n2", running=True, requests=real)]
    step = sure(next_step(RUNNING, JOB, tally(pods), now=110.0, limits=LIMITS))
    assert (step.move, step.requests) == (Move.DIFFERS, {"main": real})
    charged = replace(WORKLOAD, pod_sets=(replace(WORKLOAD.pod_sets[0], requests=real),))
    assert move(replace(RUNNING, workload=charged), JOB, *pods) is None
