"""The life of a gang after its admission follows from its job and pods alone.

These tables fix what follows when.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.landing.places import Place, Unplaced
from queuer.controller.landing.steps import (
    Cause,
    Move,
    avoid_until,
    deadlines,
    held,
    missing,
    next_step,
    tally,
)
from queuer.controller.memory.live import JobView, Live, Placement
from queuer.controller.memory.pods import PodIndex, PodView
from queuer.domain.workload import PodSet, State, Workload
from queuer.solver.records import Assignment

WORKLOAD = Workload(
    uid="u", kind="Job", namespace="ns", name="job", queue="root.a", submitted=0.0,
    pod_sets=(PodSet(name="main", count=2, requests={"pods": 1}),),
)  # fmt: skip
PLACEMENT = Placement(
    id="adm", epoch=1, cycle=1, at=100.0, patched=100.0,
    assignments=(Assignment(pod_set="main", flavor="default", nodes={"n1": 1, "n2": 1}),),
)  # fmt: skip
PLACING = Live(workload=WORKLOAD, state=State.PLACING, placement=PLACEMENT)
RUNNING = replace(PLACING, state=State.RUNNING, landed=101.0, running=101.0)
JOB = JobView(
    uid="u", kind="Job", namespace="ns", name="job", resource_version="5", suspended=False, admission="adm"
)
SUSPENDED = replace(JOB, suspended=True, quiet=True, admission=None)


def unbound(since: float) -> Place:
    """A place that is empty as long as a pod waits for it."""
    return Place(empty=since, waits=since)


def pod(uid: str, node: str | None = None, **facts: object) -> PodView:
    requests = facts.pop("requests", {"pods": 1})
    return PodView(
        uid=uid, namespace="ns", name=uid, owner="u", pod_set="main", node=node, requests=requests, **facts  # type: ignore[arg-type]
    )  # fmt: skip


def move(live: Live, job: JobView | None, *pods: PodView, now: float = 110.0) -> Move | None:
    step = next_step(live, job, tally(pods), now=now, landing_deadline=60.0)
    return step.move if step else None


def test_running_is_not_said_before_every_pod_runs() -> None:
    started = replace(PLACING, landed=101.0)
    assert move(PLACING, JOB, pod("a", "n1", running=True)) is None
    assert move(PLACING, JOB, pod("a", "n1", running=True), pod("b", "n2")) is Move.LANDED
    assert move(started, JOB, pod("a", "n1", running=True), pod("b", "n2")) is None
    assert move(started, JOB, pod("a", "n1", running=True), pod("b", "n2", running=True)) is Move.RUNNING


def test_a_gang_whose_quick_pods_succeeded_already_has_landed() -> None:
    assert move(PLACING, JOB, pod("a", "n1", succeeded=True), pod("b", "n2", running=True)) is Move.LANDED


def test_a_pod_that_failed_leaves_its_place_unfilled() -> None:
    assert move(PLACING, JOB, pod("a", "n1", failed=True), pod("b", "n2", running=True)) is None


def quick(size: int, *, slow: float | None = None, problem: str = "") -> tuple[float, Move | None, Live]:
    """When a gang of pods that end at once has landed or is given up, and what it is then. Each second one pod ends and
    one is bound, so that it is never whole. `slow`: when the pod of its first place is bound, None = never.
    """
    owed, index = replace(JOB, left=10**6), PodIndex()
    sets = (replace(WORKLOAD.pod_sets[0], count=size),)
    row = replace(PLACEMENT.assignments[0], nodes={"n1": size})
    live = replace(
        PLACING, workload=replace(WORKLOAD, pod_sets=sets), placement=replace(PLACEMENT, assignments=(row,))
    )
    index.put(pod("old", "n1", succeeded=True))  # of an earlier attempt
    for now in range(101, 1000):
        for i in range(now - 2, now):
            index.put(pod(f"p{i}", "n1", succeeded=i < now - 1))
        for i in range(now, now + size - 2):
            index.put(pod(f"p{i}"))
        at = slow is not None and now >= slow
        index.put(pod("slow", "n1" if at else None, problem="" if at else problem))
        seen = tally(index.of(WORKLOAD), heard=live.heard)
        while step := next_step(live, owed, seen, now=float(now), landing_deadline=60.0):
            if step.move is not Move.SHRUNK:
                return float(now), step.move, live
            live = replace(live, unplaced=step.unplaced)
    return 1000.0, None, live


def test_a_gang_whose_pods_end_before_all_are_bound_has_landed_once_each_place_was_filled() -> None:
    """Guards jobs of very short pods: they are never whole, and not to be evicted for it."""
    now, move, _ = quick(5, slow=103.0)
    assert (move, now < 110.0) == (Move.LANDED, True)


def test_pods_of_an_earlier_attempt_fill_no_place() -> None:
    """Guards a job that was evicted with completions behind it: its next pods are still to come."""
    owed, index = replace(JOB, left=10), PodIndex()
    for i in range(9):
        index.put(pod(f"old{i}", "n1", succeeded=True))
    live = PLACING
    for now in (101.0, 102.0, 103.0):
        seen = tally(index.of(WORKLOAD), heard=live.heard)
        step = next_step(live, owed, seen, now=now, landing_deadline=60.0)
        assert step is None or step.move is Move.SHRUNK
        live = replace(live, unplaced=step.unplaced) if step is not None else live


@pytest.mark.parametrize(("problem", "at"), [("", 340.0), ("no room", 160.0)])
def test_one_of_its_places_that_was_never_filled_is_noticed_among_them(problem: str, at: float) -> None:
    """Guards against counting pods alone: others come and go in the same place many times."""
    now, move, live = quick(5, problem=problem)
    assert (now, move) == (at, Move.EVICT)
    assert live.landed is None


def test_what_of_a_quick_gang_is_missing_when_it_has_landed_has_its_deadline_from_then() -> None:
    """Guards the times of what was empty again before the last place was filled."""
    live = replace(PLACING, unplaced=Unplaced(waiting={"b": unbound(105.0), "slow": unbound(100.0)}, heard=7))
    pods = [pod("b"), pod("slow", "n2", succeeded=True, arrival=8)]
    owed = replace(JOB, left=100)
    step = next_step(live, owed, tally(pods, heard=live.heard), now=110.0, landing_deadline=60.0)
    assert step is not None
    assert (step.move, step.unplaced) == (
        Move.LANDED,
        Unplaced(waiting={"b": unbound(105.0)}, vacant=(Place(empty=110.0),), heard=8),
    )


def test_landing_deadline_evicts_the_whole_gang_and_names_the_nodes_that_refused() -> None:
    seen = tally([pod("a", "n1", running=True), pod("b", problem="0/2 nodes are available")])
    step = next_step(PLACING, JOB, seen, now=160.0, landing_deadline=60.0)
    assert step is not None
    assert (step.move, step.cause) == (Move.EVICT, Cause.LANDING_TIMEOUT)
    assert step.refused == ("n2",)
    assert "1 of 2 pods" in step.note
    assert "0/2 nodes are available" in step.note
    assert next_step(PLACING, JOB, seen, now=159.9, landing_deadline=60.0) is None
    assert deadlines(PLACING, landing_deadline=60.0) == (160.0, 340.0)


def test_without_a_refusal_the_gang_is_given_more_time() -> None:
    """Pods that do not exist yet, or that kube-scheduler has not come to, say nothing about the place."""
    assert move(PLACING, JOB, now=160.0) is None
    assert move(PLACING, JOB, pod("a"), pod("b"), now=339.0) is None
    assert move(PLACING, JOB, now=340.0) is Move.EVICT


def test_an_object_older_than_our_patch_is_no_evidence() -> None:
    stale = replace(JOB, suspended=True, admission=None)
    assert move(PLACING, stale, now=1000.0) is None


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
    assert PLACING.placement is not None
    never = replace(PLACING.placement, patched=None, unconfirmed=True)
    evicting = replace(PLACING, state=State.EVICTING, placement=never)
    assert move(evicting, SUSPENDED) is None
    assert move(replace(evicting, placement=replace(never, unconfirmed=False)), SUSPENDED) is Move.REQUEUE


def test_capacity_is_returned_when_pods_are_gone_not_when_the_job_says_so() -> None:
    assert (
        move(RUNNING, replace(JOB, outcome=State.SUCCEEDED), pod("a", "n1", deleted=100.0)) is Move.FINISHED
    )
    ended = replace(RUNNING, state=State.SUCCEEDED)
    assert move(ended, None, pod("a", "n1", deleted=100.0)) is None
    assert move(ended, JOB, pod("a", "n1", succeeded=True)) is Move.RELEASE


@pytest.mark.parametrize("live", [PLACING, RUNNING, replace(RUNNING, state=State.EVICTING)])
def test_a_deleted_job_is_noticed_in_every_state(live: Live) -> None:
    assert move(live, None, pod("a", "n1", running=True)) is Move.VANISHED


def test_a_running_gang_that_lost_pods_gets_time_then_is_evicted_whole() -> None:
    assert move(RUNNING, JOB, pod("a", "n1", running=True)) is Move.SHRUNK
    short = replace(RUNNING, unplaced=Unplaced(vacant=(Place(empty=200.0),)))
    assert move(short, JOB, pod("a", "n1", running=True), now=259.0) is None
    assert deadlines(short, landing_deadline=60.0) == (1100.0, 1100.0)
    homeless = tally([pod("a", "n1", running=True), pod("b", problem="0/1 nodes are available")])
    step = next_step(short, JOB, homeless, now=220.0, landing_deadline=60.0)
    assert step is not None
    assert (step.move, step.unplaced) == (
        Move.SHRUNK,
        Unplaced(waiting={"b": Place(empty=200.0, waits=220.0)}),
    )
    step = next_step(replace(short, unplaced=step.unplaced), JOB, homeless, now=280.0, landing_deadline=60.0)
    assert step is not None
    assert (step.move, step.cause) == (Move.EVICT, Cause.LOST_PODS)
    assert move(short, JOB, pod("a", "n1", running=True), now=1099.0) is None, "the Job controller backs off"
    assert move(short, JOB, pod("a", "n1", running=True), now=1100.0) is Move.EVICT
    assert move(short, JOB, pod("a", "n1", running=True), pod("b", "n2", running=True)) is Move.WHOLE


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
    ],
)  # fmt: skip
def test_what_is_charged_is_what_can_still_run_and_what_is_not_gone(
    job: JobView, pods: dict[str, str], charged: int
) -> None:
    facts: dict[str, dict[str, object]] = {
        "runs": {"running": True},
        "succeeded": {"succeeded": True},
        "failed": {"failed": True},
        "terminates": {"running": True, "deleted": 120.0},
    }
    seen = tally([pod(uid, "n1", **facts[what]) for uid, what in pods.items()])
    assert held(PLACEMENT, seen, job) == {"main": charged}


def test_pods_that_request_more_than_the_job_said_are_noticed_once() -> None:
    real = {"pods": 1, "cpu": 500}
    pods = [pod("a", "n1", running=True, requests=real), pod("b", "n2", running=True, requests=real)]
    step = next_step(RUNNING, JOB, tally(pods), now=110.0, landing_deadline=60.0)
    assert step is not None
    assert (step.move, step.requests) == (Move.DIFFERS, {"main": real})
    charged = replace(WORKLOAD, pod_sets=(replace(WORKLOAD.pod_sets[0], requests=real),))
    assert move(replace(RUNNING, workload=charged), JOB, *pods) is None


def test_back_off_doubles_and_is_bounded() -> None:
    assert [avoid_until(n, now=0, base=60, limit=300) for n in (1, 2, 3, 4, 9999)] == [60, 120, 240, 300, 300]
