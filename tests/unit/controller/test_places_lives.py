"""Deadlines of pods that a landed gang misses: random lives, the controller's loop, restarts, and what is charged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from queuer.controller.health.metrics import Metrics
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.places import Unplaced
from queuer.controller.landing.steps import BACK_OFF
from queuer.controller.landing.writes import settle_touched
from queuer.controller.ledger.batch import Batch
from queuer.controller.memory.live import JobView
from queuer.controller.memory.pods import PodIndex, PodView
from queuer.controller.memory.state import ClusterState
from tests.unit.landed import DEADLINE, LIMITS, PATIENT, Scene, unbound


@dataclass(slots=True)
class Life:
    """One place of a gang in a random life: when its next event comes, and which."""

    uid: str
    stage: str = "runs"
    at: float = 0.0


def _live_on(life: Life, scene: Scene, random: Random, *, now: float, slow: float) -> None:
    """Runs → ends, or fails → (is made, or after a back-off) → is bound → runs."""
    match life.stage:
        case "runs":
            failed = random.random() < 0.2
            scene.put(life.uid, "n1", failed=True) if failed else scene.end(life.uid)
            if random.random() < 0.3:
                scene.pods.remove(life.uid)
            gap = random.random() * (BACK_OFF - 60.0 if failed else slow / 3)
            life.stage, life.at = "empty", now + random.choice([0.0, gap])
        case "empty":
            life.uid, life.stage = f"{life.uid.split('/')[0]}/{now}", "made"
            scene.put(life.uid, problem=random.choice(["", "no room"]))
            life.at = now + random.choice([0.0, random.random() * slow / 2])
        case _:
            scene.put(life.uid, "n1")
            life.stage, life.at = "runs", now + 0.1 + random.random() * random.choice([1.0, 60.0])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(2, 12), slow=st.floats(1.0, DEADLINE - 10.0),
    every=st.floats(1.0, 5.0), stuck=st.booleans(), anew=st.sampled_from([0.0, 7.0, 31.0]),
)  # fmt: skip
def test_random_lives_end_in_an_eviction_exactly_if_a_pod_is_never_bound(
    seed: int, size: int, slow: float, every: float, stuck: bool, anew: float
) -> None:
    """Guards both sides at once, with looks at any distance. `anew`: seconds after which the pod that is never bound is
    made again, 0 = never.
    """
    random, scene = Random(seed), Scene(size)
    lives = [Life(f"p{i}", at=random.random() * 30) for i in range(size)]
    lost, began, bad = lives.pop() if stuck else None, 0.0, ""
    now, end = 0.0, 2000.0
    while now < end and scene.evicted is None:
        now += every
        for life in lives:
            while life.at <= now:
                _live_on(life, scene, random, now=now, slow=slow)
        if (
            lost is not None
            and now >= 40.0
            and (not bad or (anew and (now - began) // anew > bad.count("'")))
        ):
            began = began or now
            scene.pods.remove(bad) if bad else scene.end(lost.uid)
            bad = f"{bad}'" if bad else "bad"
            scene.put(bad, problem="no room")
        scene.look(now)
    if stuck:
        assert scene.evicted is not None
        assert scene.evicted >= began + DEADLINE - 0.001
        assert scene.evicted <= began + DEADLINE + every + 0.001
    else:
        assert scene.evicted is None, scene.note


def test_the_loop_counts_who_arrived_since_its_last_look() -> None:
    """Guards the wiring: a pod that was waiting is bound and ended when the loop looks again."""
    state, live = ClusterState(), Scene(2).live
    state.live["u"] = live
    state.job_changed(
        JobView(
            uid="u", kind="Job", namespace="ns", name="job", resource_version="1", suspended=False,
            admission="adm", left=100,
        )
    )  # fmt: skip

    nobody = cast(Any, None)
    confirmer = Confirmer(nobody, state, lost_after=LIMITS.lost_node, clock=lambda: 0.0)

    def look(now: float) -> float | None:
        batch = Batch(now=now)
        settle_touched(
            batch, ["u"], state=state, jobs=nobody, confirmer=confirmer, limits=LIMITS, metrics=Metrics()
        )
        state.live["u"] = after = batch.view("u", state.live) or live
        return after.unplaced.oldest if after.unplaced is not None else None

    pod = PodView(uid="a", namespace="ns", name="a", owner="u", pod_set="main", requests={"pods": 1})
    state.pod_changed(replace(pod, uid="z", node="n1"))
    state.pod_changed(pod)
    assert look(10.0) == 10.0
    state.pod_changed(replace(pod, node="n1", succeeded=True))
    state.pod_changed(replace(pod, uid="b"))
    assert look(20.0) == 20.0


def test_what_a_gang_holds_that_is_never_seen_whole_is_charged_and_nothing_less_while_pods_are_missing() -> (
    None
):
    """Guards quotas against what is injected into pods that follow each other; and against a charge that goes up and
    down with each pod that is missing.
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
    scene.look(PATIENT)
    assert scene.evicted == PATIENT
    assert scene.live.workload.pod_sets[0].requests == {"pods": 1, "cpu": 500}


def test_a_gang_that_landed_while_places_were_empty_again_keeps_their_times() -> None:
    """Guards what `landing` says of a gang whose pods follow each other."""
    scene = Scene(2)
    scene.pods = PodIndex()
    scene.live = replace(
        scene.live, landed=None, unplaced=Unplaced(waiting={"b": unbound(5.0), "slow": unbound(0.0)})
    )
    scene.put("b")
    scene.put("slow", "n1", succeeded=True)
    scene.look(10.0)
    assert (scene.live.landed, scene.since()) == (10.0, 5.0)


def test_a_restart_begins_the_deadlines_anew() -> None:
    """Guards this: what is only in memory is unknown then; nothing is evicted for what was not seen."""
    scene = Scene(2)
    scene.end("p0")
    scene.put("q")
    scene.look(10.0)
    scene.live = replace(scene.live, unplaced=None)
    scene.pods = PodIndex()
    scene.put("p1", "n1")
    scene.put("q")
    scene.look(PATIENT + 5.0)
    assert scene.evicted is None
    scene.look(2 * PATIENT + 5.0)
    assert scene.evicted == 2 * PATIENT + 5.0


def test_an_arrival_is_given_once_and_kept() -> None:
    """Guards the count: what a pod says of itself later, or a list made anew, is no other binding."""
    scene = Scene(1)
    [first] = scene.pods.of(scene.live.workload)
    scene.put("q")
    scene.put("q", "n1")
    scene.put("p0", "n1")
    scene.end("p0")
    assert {pod.uid: pod.arrival for pod in scene.pods.of(scene.live.workload)} == {
        "p0": first.arrival,
        "q": first.arrival + 1,
    }
