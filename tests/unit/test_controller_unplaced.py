"""Pods that a landed gang misses have their deadline each: what is replaced in time does not make it lose its place,
what is not does, whatever else goes on in the gang.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuer.controller.batch import Batch
from queuer.controller.gather import settle_touched
from queuer.controller.landing import BACK_OFF, Cause, deadlines, tally
from queuer.controller.live import JobView, Live, Placement
from queuer.controller.metrics import Metrics
from queuer.controller.pods import PodIndex, PodView
from queuer.controller.settle import Limits, settle
from queuer.controller.state import ClusterState
from queuer.controller.unplaced import Place, Unplaced
from queuer.domain.workload import PodSet, State, Workload
from queuer.solver.problem import Assignment

DEADLINE = 60.0
LIMITS = Limits(landing_deadline=DEADLINE, avoid=60.0, avoid_limit=600.0, lost_node=300.0)
PATIENT = 4 * DEADLINE


def unbound(since: float) -> Place:
    """A place that is empty as long as a pod waits for it."""
    return Place(empty=since, waits=since)


@dataclass(slots=True)
class Scene:
    """A gang of `size` pods that has landed, with a job that owes as many completions as it takes."""

    size: int
    left: int | None = 1_000_000
    live: Live = field(init=False)
    pods: PodIndex = field(default_factory=PodIndex)
    evicted: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        workload = Workload(
            uid="u", kind="Job", namespace="ns", name="job", queue="root.a", submitted=0.0,
            pod_sets=(PodSet(name="main", count=self.size, requests={"pods": 1}),),
        )  # fmt: skip
        row = Assignment(pod_set="main", flavor="default", nodes={"n1": self.size})
        placement = Placement(id="adm", epoch=1, cycle=1, at=0.0, patched=0.0, assignments=(row,))
        self.live = Live(workload=workload, state=State.PLACING, placement=placement)
        for i in range(self.size):
            self.put(f"p{i}", "n1")
        self.look(0.0)
        assert self.live.landed == 0.0

    def put(self, uid: str, node: str | None = None, **facts: object) -> None:
        """A pod comes or changes."""
        requests = facts.pop("requests", {"pods": 1})
        running = node is not None and not facts
        self.pods.put(
            PodView(
                uid=uid, namespace="ns", name=uid, owner="u", pod_set="main", node=node,
                requests=requests, running=running, **facts,  # type: ignore[arg-type]
            )
        )  # fmt: skip

    def end(self, uid: str) -> None:
        """A pod succeeds."""
        self.put(uid, "n1", succeeded=True)

    def since(self) -> float | None:
        """Since when the oldest of its empty places is empty; None = it is whole."""
        return None if self.live.unplaced is None else self.live.unplaced.oldest

    def look(self, now: float) -> None:
        """One look of the controller, as `gather` does it."""
        job = JobView(
            uid="u", kind="Job", namespace="ns", name="job", resource_version="1", suspended=False,
            admission="adm", left=self.left,
        )  # fmt: skip
        seen = tally(self.pods.of("u"), heard=self.live.heard)
        outcome = settle(self.live, job, seen, now=now, limits=LIMITS)
        if outcome is None:
            return
        assert outcome.live is not None
        self.live = outcome.live
        if outcome.suspend and self.evicted is None:
            assert outcome.cause == Cause.LOST_PODS
            self.evicted, self.note = now, outcome.note


def test_pods_that_follow_each_other_are_not_lost() -> None:
    """Guards the renewal: some pod is always missing, none for longer than it takes to bind one."""
    scene = Scene(3)
    for turn in range(200):
        now = 10.0 * turn
        scene.put(f"q{turn}", "n1")  # who was unbound is bound, and the next one ends at once
        scene.end(f"q{turn - 1}" if turn else "p0")
        scene.put(f"q{turn + 1}", problem="0/1 nodes are available")
        scene.look(now)
        assert scene.since() == now
    assert scene.evicted is None


def test_pods_that_were_made_and_bound_between_two_looks_fill_the_oldest_places() -> None:
    """Guards fast schedulers: nobody ever saw their pods unbound, and one is always still to be made."""
    scene = Scene(3)
    scene.end("p0")
    for turn in range(400):
        scene.look(10.0 * turn)
        scene.put(f"q{turn}", "n1")
        scene.end(f"q{turn - 1}" if turn else "p1")
    assert scene.evicted is None


def test_a_gang_that_is_whole_again_keeps_nothing() -> None:
    """Guards memory, and that an old loss does not shorten the time of the next."""
    scene = Scene(2)
    scene.end("p0")
    scene.look(10.0)
    scene.put("q", "n1")
    scene.look(200.0)
    assert (scene.since(), scene.live.unplaced) == (None, None)
    scene.end("p1")
    scene.look(300.0)
    assert scene.since() == 300.0


@pytest.mark.parametrize("problem", ["", "0/1 nodes are available"])
def test_r1_a_pod_that_stays_unbound_while_others_come_and_go_is_noticed_in_time(problem: str) -> None:
    """Guards against renewing everybody: its time runs from when it was seen first, not from the last renewal."""
    scene = Scene(4)
    scene.end("p0")
    scene.put("early")
    scene.look(0.0)
    scene.end("p1")
    scene.put("stuck", problem=problem)
    scene.look(5.0)
    scene.put("early", "n1")
    scene.look(55.0)
    last, now = "early", 55.0
    while scene.evicted is None and now < 1000.0:
        now += 0.5
        if now % 5 == 0:
            scene.end(last)
            last = f"q{now}"
            scene.put(last)
        elif now % 5 == 2:
            scene.put(last, "n1")
        scene.look(now)
        assert scene.since() == 5.0
        if scene.live.state is not State.EVICTING:
            due = deadlines(scene.live, landing_deadline=DEADLINE)
            assert due == (5.0 + DEADLINE, 5.0 + PATIENT)
    assert scene.evicted == 5.0 + (DEADLINE if problem else PATIENT)
    assert "pods were lost" in scene.note


@pytest.mark.parametrize("others", [False, True], ids=["alone", "others follow each other"])
@pytest.mark.parametrize("gap", ["none", "seen", "overlapping", "terminating"])
def test_r2_a_pod_that_is_made_anew_over_and_over_and_never_bound_is_noticed_in_time(
    gap: str, others: bool
) -> None:
    """Guards against taking a new uid for progress, however the old pod goes, and whoever else is bound meanwhile."""
    scene = Scene(4)
    scene.end("p0")
    scene.put("b0")
    now = 0.0
    scene.look(now)
    last = "p1"
    while scene.evicted is None and now < 1000.0:
        now += 1.0
        number = int(now) // 7
        if others and now % 4 == 1:
            scene.end(last)
            last = f"q{now}"
            scene.put(last)
        elif others and now % 4 == 3:
            scene.put(last, "n1")
        if now % 7 == 0:
            _anew(scene, number, gap, now)
        scene.look(now)
    assert scene.evicted is not None
    assert PATIENT <= scene.evicted <= PATIENT + 2.0


def _anew(scene: Scene, number: int, gap: str, now: float) -> None:
    old, new = f"b{number - 1}", f"b{number}"
    if gap == "overlapping":
        scene.put(new)
        scene.look(now)
    elif gap == "terminating":
        scene.put(old, deleted=now)
        scene.put(new)
        scene.look(now)
    scene.pods.remove(old)
    if gap == "seen":
        scene.look(now)
    scene.put(new)


def test_r3_pods_that_nobody_makes_again_keep_their_longer_deadline() -> None:
    """Guards the back-off of a job's controller; a pod that is made and not bound has the landing's patience, from when
    it was made.
    """
    scene = Scene(3, left=None)
    scene.pods.remove("p0")
    for now in (10.0, 20.0, 10.0 + BACK_OFF - 0.1):
        scene.look(now)
        assert scene.evicted is None
        assert deadlines(scene.live, landing_deadline=DEADLINE) == (10.0 + BACK_OFF,) * 2
    scene.look(10.0 + BACK_OFF)
    assert scene.evicted == 10.0 + BACK_OFF
    scene = Scene(3, left=None)
    scene.pods.remove("p0")
    scene.pods.remove("p1")
    scene.look(10.0)
    scene.put("q")
    scene.look(20.0)
    assert deadlines(scene.live, landing_deadline=DEADLINE) == (20.0 + DEADLINE, 20.0 + PATIENT)
    scene.look(20.0 + PATIENT - 0.1)
    assert scene.evicted is None
    scene.look(20.0 + PATIENT)
    assert scene.evicted == 20.0 + PATIENT


@pytest.mark.parametrize(("problem", "at"), [("0/1 nodes are available", 71.0), ("", 251.0), ("", 850.0)])
def test_a_pod_does_not_enter_the_time_of_a_place_that_is_in_back_off(problem: str, at: float) -> None:
    """Guards gangs that are evicted for a pod that has just come, while one that failed is still to be made anew."""
    scene = Scene(3)
    scene.put("p0", "n1", failed=True)
    scene.look(10.0)
    scene.end("p1")
    scene.put("q", problem=problem)
    scene.look(at)
    scene.look(at + DEADLINE - 0.1)
    assert scene.evicted is None
    assert deadlines(scene.live, landing_deadline=DEADLINE)[0] == at + DEADLINE
    scene.look(at + DEADLINE)
    assert scene.evicted == (at + DEADLINE if problem else None)


def test_a_vacant_place_is_overdue_beside_pods_that_are_in_time() -> None:
    """Guards the two deadlines beside each other: the first that ends counts, whichever it is."""
    scene = Scene(4, left=None)
    scene.pods.remove("p0")
    scene.pods.remove("p1")
    scene.look(10.0)
    scene.put("q")
    scene.look(800.0)
    assert deadlines(scene.live, landing_deadline=DEADLINE) == (800.0 + DEADLINE, 10.0 + BACK_OFF)
    scene.look(10.0 + BACK_OFF)
    assert scene.evicted == 10.0 + BACK_OFF
    assert f"within {BACK_OFF:.0f} s" in scene.note


def test_only_the_place_that_an_unbound_pod_has_left_passes_its_time_on() -> None:
    """Guards a place in back-off beside a pod that is made anew: who comes second comes to the former, afresh."""
    scene = Scene(4)
    scene.put("p0", "n1", failed=True)
    scene.put("p1", "n1", failed=True)
    scene.look(5.0)
    scene.put("b")
    scene.look(10.0)
    scene.pods.remove("b")
    scene.look(20.0)
    assert scene.live.unplaced is not None
    assert scene.live.unplaced.vacant == (Place(empty=5.0, waits=10.0), Place(empty=5.0))
    scene.put("b'")
    scene.look(30.0)
    scene.put("q")
    scene.look(40.0)
    assert scene.live.unplaced.waiting == {
        "b'": Place(empty=5.0, waits=10.0),
        "q": Place(empty=5.0, waits=40.0),
    }
    scene.put("b'", "n1")
    scene.look(200.0)
    scene.look(10.0 + PATIENT)
    assert scene.evicted is None


def test_a_pod_made_anew_between_two_looks_leaves_a_place_in_back_off_alone() -> None:
    """Guards the same where nobody saw its place vacant."""
    scene = Scene(4)
    scene.put("b")
    scene.end("p0")
    scene.look(0.0)
    scene.put("p1", "n1", failed=True)
    scene.look(10.0)
    scene.pods.remove("b")
    scene.put("b'")
    scene.look(20.0)
    assert scene.live.unplaced == Unplaced(
        waiting={"b'": unbound(0.0)}, vacant=(Place(empty=10.0),), heard=scene.live.heard or 0
    )


def test_places_that_the_job_owes_no_more_are_not_missed_the_oldest_first() -> None:
    """Guards the end of a job, where its status follows its pods: some place is always missed for a moment."""
    scene = Scene(40, left=40)
    for i in range(30):
        scene.end(f"p{i}")
        scene.look(60.0 * i)
        assert scene.since() == 60.0 * max(0, i - 1)
        scene.left = 40 - i  # as it was before this pod ended
        scene.look(60.0 * i)
        assert scene.since() == 60.0 * i
    assert scene.evicted is None


def test_r7_what_is_kept_is_no_more_than_what_is_missing() -> None:
    """Guards memory: every pod ends and is made anew many times."""
    scene = Scene(8)
    for turn in range(100):
        for i in range(8):
            old, new = f"{turn - 1}.{i}" if turn else f"p{i}", f"{turn}.{i}"
            scene.end(old)
            scene.put(new)
            scene.look(float(turn))
            scene.put(new, "n1") if i % 3 else None
        scene.look(turn + 0.5)
        kept = scene.live.unplaced
        assert kept is not None
        assert len(kept.waiting) + len(kept.vacant) == 3
        for i in range(0, 8, 3):
            scene.put(f"{turn}.{i}", "n1")


def test_r8_pods_that_are_bound_and_lost_at_once_are_landing_each_time() -> None:
    """Guards the line to the job's own back-off limit: a node that breaks its pods is none that has no room."""
    scene = Scene(2, left=None)
    for turn in range(100):
        now = 10.0 * turn
        scene.put(f"{turn - 1}" if turn else "p0", "n1", failed=True)
        scene.put(f"{turn}")
        scene.look(now)
        scene.put(f"{turn}", "n1", failed=True)
        scene.look(now + 5.0)
    assert scene.evicted is None


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


async def test_the_loop_counts_who_arrived_since_its_last_look() -> None:
    """Guards the wiring: a pod that was waiting is bound and ended when the loop looks again."""
    state, live = ClusterState(), Scene(2).live
    state.live["u"] = live
    state.job_changed(
        JobView(
            uid="u", kind="Job", namespace="ns", name="job", resource_version="1", suspended=False,
            admission="adm", left=100,
        )
    )  # fmt: skip

    async def nobody(*_: object, **__: object) -> frozenset[str]:
        return frozenset()

    async def look(now: float) -> float | None:
        batch = Batch(now=now)
        jobs = cast(Any, SimpleNamespace(with_pods_left=nobody))
        await settle_touched(batch, ["u"], state=state, jobs=jobs, limits=LIMITS, metrics=Metrics())
        state.live["u"] = after = batch.view("u", state.live) or live
        return after.unplaced.oldest if after.unplaced is not None else None

    pod = PodView(uid="a", namespace="ns", name="a", owner="u", pod_set="main", requests={"pods": 1})
    state.pod_changed(replace(pod, uid="z", node="n1"))
    state.pod_changed(pod)
    assert await look(10.0) == 10.0
    state.pod_changed(replace(pod, node="n1", succeeded=True))
    state.pod_changed(replace(pod, uid="b"))
    assert await look(20.0) == 20.0


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
    """Guards R5: what is only in memory is unknown then; nothing is evicted for what was not seen."""
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
    [first] = scene.pods.of("u")
    scene.put("q")
    scene.put("q", "n1")
    scene.put("p0", "n1")
    scene.end("p0")
    assert {pod.uid: pod.arrival for pod in scene.pods.of("u")} == {
        "p0": first.arrival,
        "q": first.arrival + 1,
    }
