"""A landed gang that misses pods keeps its place while others come instead, and loses it once none has come
for too long.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuer.controller.landing.steps import deadlines
from queuer.controller.landing.writes import settle_touched
from queuer.controller.ledger.round import Change, Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodIndex
from queuer.controller.memory.state import ClusterState
from queuer.domain.nodes import Node
from queuer.domain.workload import State
from tests.unit.landed import DEADLINE, LIMITS, PATIENT, Scene
from tests.unit.make import job_view, pod_view, sure


def test_pods_that_follow_each_other_are_not_lost() -> None:
    """Guards jobs of many short pods: some pod is always missing, and another comes all the time."""
    scene = Scene(3)
    for turn in range(200):
        now = 10.0 * turn
        scene.put(f"q{turn}", "n1")  # who was unbound is bound, and the next one ends at once
        scene.end(f"q{turn - 1}" if turn else "p0")
        scene.put(f"q{turn + 1}", problem="0/1 nodes are available")
        scene.look(now)
        assert scene.since() == now
    assert scene.evicted is None


def test_pods_that_were_made_and_bound_between_two_looks_have_come() -> None:
    """Guards fast schedulers: nobody ever saw their pods unbound, and one is always still to be made."""
    scene = Scene(3)
    scene.end("p0")
    for turn in range(400):
        scene.look(10.0 * turn)
        scene.put(f"q{turn}", "n1")
        scene.end(f"q{turn - 1}" if turn else "p1")
    assert scene.evicted is None


def test_a_gang_that_is_whole_again_keeps_nothing() -> None:
    """Guards memory, and that an old loss does not shorten the time of the next. It is written that it is whole."""
    scene = Scene(2)
    scene.put("p0", "n1", failed=True)
    scene.look(10.0)
    before = scene.live
    scene.put("q", "n1")
    scene.look(200.0)
    assert (scene.since(), scene.live.short) == (None, None)
    assert Change(uid="u", before=before, after=scene.live).writes
    assert not Change(uid="u", before=before, after=before).writes
    well = replace(before, short=replace(sure(before.short), lost=False))
    assert not Change(uid="u", before=well, after=scene.live).writes, (
        "nobody was told of a pod that ended well"
    )
    scene.end("p1")
    scene.look(300.0)
    assert scene.since() == 300.0


@pytest.mark.parametrize(("problem", "patience"), [("", PATIENT), ("0/1 nodes are available", DEADLINE)])
def test_a_pod_that_finds_no_place_is_noticed_once_no_other_comes(problem: str, patience: float) -> None:
    """Guards gangs that cannot work without it; others that come meanwhile are progress."""
    scene = Scene(4)
    scene.end("p0")
    scene.put("stuck", problem=problem)
    scene.look(5.0)
    for now in (20.0, 40.0, 60.0):
        scene.end("p1" if now == 20.0 else f"q{now - 20.0}")
        scene.put(f"q{now}", "n1")
        scene.look(now)
    assert deadlines(scene.live, limits=LIMITS) == (60.0 + DEADLINE, 60.0 + PATIENT)
    assert scene.look(60.0 + patience - 0.1) is None
    assert scene.look(60.0 + patience) == 60.0 + patience
    assert "1 pod was lost and none took its place" in scene.note


def test_a_pod_that_is_made_anew_and_never_bound_is_noticed_in_time() -> None:
    """Guards against taking a new uid for progress, where somebody deletes what finds no place."""
    scene = Scene(4)
    scene.end("p0")
    for turn in range(100):
        scene.put(f"b{turn}", problem="no room")
        scene.pods.remove(f"b{turn - 1}")
        scene.look(5.0 * turn)
    assert scene.evicted == DEADLINE


def test_pods_that_nobody_makes_again_have_a_longer_deadline_and_those_made_late_one_of_their_own() -> None:
    """Guards the back-off of a job's controller after failures."""
    scene = Scene(3, left=None)
    scene.pods.remove("p0")
    scene.look(10.0)
    assert deadlines(scene.live, limits=LIMITS) == (10.0 + LIMITS.lost_pods,)
    assert scene.look(10.0 + LIMITS.lost_pods - 0.1) is None
    late = 10.0 + LIMITS.lost_pods - 0.05
    scene.put("q", problem="no room")
    scene.look(late)
    assert scene.look(late + DEADLINE - 0.1) is None
    assert scene.look(late + DEADLINE) == late + DEADLINE


def test_pods_that_nobody_makes_again_are_given_up_in_the_end() -> None:
    scene = Scene(3, left=None)
    scene.pods.remove("p0")
    scene.look(10.0)
    assert scene.look(10.0 + LIMITS.lost_pods) == 10.0 + LIMITS.lost_pods
    assert f"within {LIMITS.lost_pods:.0f} s" in scene.note


@pytest.mark.parametrize("seed", range(20))
def test_random_lives_of_pods_that_are_replaced_in_time_end_in_no_eviction(seed: int) -> None:
    """Guards the rule against looks at any distance, and pods that go in any way."""
    random, scene, now = Random(seed), Scene(4), 0.0
    gone = dict[str, float]()
    for turn in range(300):
        now += random.choice([0.5, 5.0, 20.0])
        for uid in [uid for uid, at in gone.items() if at <= now]:
            scene.put(uid, "n1")
            del gone[uid]
        running = [pod.uid for pod in scene.pods.of(scene.live.workload) if pod.node and not pod.ended]
        if running and random.random() < 0.5:
            scene.put(running[0], "n1", failed=True) if random.random() < 0.3 else scene.end(running[0])
            gone[f"q{turn}"] = now + random.random() * (DEADLINE - 25.0)
            scene.put(f"q{turn}", problem=random.choice(["", "no room"]))
        scene.look(now)
    assert scene.evicted is None, scene.note


def test_a_restart_begins_the_deadline_anew() -> None:
    """Guards this: what is only in memory is unknown then; nothing is evicted for what was not seen."""
    scene = Scene(2)
    scene.end("p0")
    scene.put("q")
    scene.look(10.0)
    scene.live = replace(scene.live, short=None)
    scene.pods = PodIndex()
    scene.put("p1", "n1")
    scene.put("q")
    assert scene.look(PATIENT + 5.0) is None
    assert scene.look(2 * PATIENT + 5.0) == 2 * PATIENT + 5.0


def _state_of(live: Live, **job: Any) -> ClusterState:
    """Memory with one landed gang, whose pods are still to come."""
    state = ClusterState()
    state.put(live)
    state.job_changed(job_view(name="job", suspended=False, admission="adm", **job))
    return state


def _look(state: ClusterState, now: float) -> Change:
    """One look of the loop, written into memory."""
    changes, jobs = Round(state.live, now=now), SimpleNamespace(gated=lambda live: 0)
    nobody = cast(Any, SimpleNamespace(take_word=lambda uid: False))
    settle_touched(changes, ["u"], state=state, jobs=cast(Any, jobs), confirmer=nobody, limits=LIMITS)
    change = changes.get("u", Change(uid="u", before=state.live["u"], after=state.live["u"]))
    state.put(sure(change.after))
    return change


def test_the_loop_counts_who_arrived_since_its_last_look() -> None:
    """Guards the wiring: a pod that was waiting is bound and ended when the loop looks again."""
    state = _state_of(Scene(2).live, left=100)

    def look(now: float) -> float | None:
        after = _look(state, now).after
        return after.short.since if after is not None and after.short is not None else None

    pod = pod_view("a")
    state.pod_changed(replace(pod, uid="z", node="n1"))
    state.pod_changed(pod)
    assert look(10.0) == 10.0
    state.pod_changed(replace(pod, node="n1", succeeded=True))
    state.pod_changed(replace(pod, uid="b"))
    assert look(20.0) == 20.0


def test_a_failure_whose_pod_was_replaced_is_no_cause_of_a_later_loss() -> None:
    """A pod that failed days ago would be told as why the job fails today."""
    state = _state_of(replace(Scene(2).live, state=State.RUNNING))
    for name in ("n1", "n2"):
        state.node_changed(Node(name=name, labels={}, allocatable={"pods": 9}))
    pod = pod_view("a", "n1", running=True)
    state.pod_changed(pod)
    state.pod_changed(replace(pod, uid="b", name="b", node="n2"))
    _look(state, 0.0)
    state.pod_changed(replace(pod, running=False, failed=True, failure="pod a ended with exit code 3"))
    assert _look(state, 10.0).lost == "1 of 2 pods is gone: pod a ended with exit code 3"
    state.pod_changed(replace(pod, uid="c", name="c"))
    assert _look(state, 20.0).whole
    state.pod_changed(replace(pod, uid="c", name="c", running=False, failed=True, failure="pod c failed"))
    state.pod_changed(replace(pod, uid="d", name="d"))
    _look(state, 25.0)  # nothing was missing in between
    state.node_gone("n2")
    state.pod_gone("b")
    assert _look(state, 30.0).lost == "1 of 2 pods is gone: node n2 is gone, and pod b with it"
    state.job_changed(job_view(name="job", suspended=False, admission="adm", outcome=State.FAILED))
    assert _look(state, 40.0).note == "failed: node n2 is gone, and pod b with it"


def test_a_failure_is_told_of_a_job_that_owes_less_by_it() -> None:
    """A group of pods, or the Jobs of a JobSet, make no other pod; the job may say later that it has failed."""
    state = _state_of(replace(Scene(2).live, state=State.RUNNING), left=1)
    pod = pod_view("a", "n1")
    state.pod_changed(replace(pod, uid="b", name="b"))
    state.pod_changed(replace(pod, failed=True, failure="pod a ended with exit code 3"))
    _look(state, 10.0)
    ended = job_view(name="job", suspended=False, admission="adm", left=1, outcome=State.FAILED)
    state.job_changed(ended)
    assert _look(state, 12.0).note == "failed: pod a ended with exit code 3"


def test_what_a_gang_holds_that_is_never_seen_whole_is_charged_and_nothing_less_while_pods_are_missing() -> (
    None
):
    """It guards quotas against injections into pods that follow each other, and against a charge that moves
    with each missing pod.
    """

    def charged() -> dict[str, int]:
        return dict(scene.live.workload.pod_sets[0].requests)

    real = {"pods": 1, "nvidia.com/gpu": 8}
    scene = Scene(3)
    scene.end("p0")
    scene.look(5.0)
    assert (scene.since(), charged()) == (5.0, {"pods": 1})
    scene.end("p1")
    scene.put("q", "n1", requests=real)
    scene.look(10.0)
    assert (scene.since(), charged()) == (10.0, real)
    scene.end("q")
    scene.look(20.0)
    assert charged() == real, "a pod like it may come again"
    for uid in ("r", "s"):
        scene.put(uid, "n1")
    scene.look(30.0)
    assert (scene.since(), charged()) == (None, {"pods": 1})


def test_a_gang_that_is_evicted_for_a_lost_pod_is_charged_for_what_the_others_hold() -> None:
    """Guards that one does not keep the other off: its pods hold that until they are gone."""
    scene = Scene(2)
    scene.end("p0")
    scene.put("q")
    scene.look(0.0)
    scene.put("p1", "n1", requests={"pods": 1, "cpu": 500})
    assert scene.look(PATIENT) == PATIENT
    assert scene.live.workload.pod_sets[0].requests == {"pods": 1, "cpu": 500}


def test_patience_for_a_pod_that_is_replaced_starts_when_the_old_one_is_gone() -> None:
    """Guards gangs whose pods write a checkpoint for long: their controller makes no other before."""
    scene = Scene(4)
    scene.put("p0", "n1", deleted=10.0 + 1800.0)
    scene.look(10.0)
    assert scene.look(10.0 + LIMITS.lost_pods) is None
    assert scene.look(1500.0 + LIMITS.lost_pods) is None, "its grace is over at 1810 s"
    scene.pods.remove("p0")
    scene.look(1700.0)
    assert deadlines(scene.live, limits=LIMITS) == (1700.0 + LIMITS.lost_pods,)
    assert scene.look(1700.0 + LIMITS.lost_pods) == 1700.0 + LIMITS.lost_pods


def test_a_pod_that_stays_beyond_its_grace_is_waited_for_no_longer_than_one_that_is_gone() -> None:
    """Guards the rest of its gang against a node that does not let go."""
    scene = Scene(2)
    scene.put("p0", "n1", deleted=40.0)
    scene.look(10.0)
    assert scene.look(40.0 + LIMITS.lost_pods - 0.1) is None
    assert scene.look(40.0 + LIMITS.lost_pods) == 40.0 + LIMITS.lost_pods


def test_a_work_queue_with_a_success_misses_no_pod() -> None:
    """Guards the others of a Job without completions: after a success Kubernetes replaces none."""
    scene = Scene(4, left=None)
    scene.end("p0")
    scene.look(10.0)
    scene.put("p1", "n1", failed=True)
    scene.left = 3  # the Job's status is behind
    scene.look(15.0)
    scene.left = 2
    for now in (20.0, 30.0, 30.0 + LIMITS.lost_pods, 90.0 * 60.0):
        scene.look(now)
        assert scene.since() is None
    assert scene.evicted is None
    assert sure(scene.live.placement).held == {"main": 2}
