"""Pods that a landed gang misses have their deadline each: what is replaced in time does not make it lose its place,
what is not does, whatever else goes on in the gang.
"""

from __future__ import annotations

import pytest

from queuer.controller.landing.places import Place, Unplaced
from queuer.controller.landing.steps import BACK_OFF, deadlines
from queuer.domain.workload import State
from tests.unit.landed import DEADLINE, PATIENT, Scene, unbound


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
def test_a_pod_that_stays_unbound_while_others_come_and_go_is_noticed_in_time(problem: str) -> None:
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
def test_a_pod_that_is_made_anew_over_and_over_and_never_bound_is_noticed_in_time(
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


def test_pods_that_nobody_makes_again_keep_their_longer_deadline() -> None:
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


def test_a_vacant_place_has_its_back_off_from_when_its_first_pod_came() -> None:
    """Guards the job's controller that has made a pod late, and has to make it again."""
    scene = Scene(3)
    scene.put("p0", "n1", failed=True)
    scene.look(0.0)
    scene.put("b")
    scene.look(600.0)
    scene.pods.remove("b")
    for now in (700.0, BACK_OFF, 600.0 + BACK_OFF - 0.1):
        scene.look(now)
        assert scene.since() == 0.0
        assert scene.evicted is None
        assert deadlines(scene.live, landing_deadline=DEADLINE) == (600.0 + BACK_OFF,) * 2
    scene.look(600.0 + BACK_OFF)
    assert scene.evicted == 600.0 + BACK_OFF


def test_a_pod_that_was_waiting_and_is_bound_fills_its_own_place_alone() -> None:
    """Guards the time of a place in back-off: it goes on for as long as nobody makes its pod."""
    scene = Scene(3)
    scene.end("p0")
    scene.put("q")
    scene.look(0.0)
    scene.put("p1", "n1", failed=True)
    scene.look(10.0)
    scene.put("q", "n1")
    scene.look(200.0)
    assert scene.live.unplaced is not None
    assert (scene.live.unplaced.waiting, scene.live.unplaced.vacant) == ({}, (Place(empty=10.0),))
    scene.look(10.0 + BACK_OFF)
    assert scene.evicted == 10.0 + BACK_OFF


def test_of_two_pods_that_go_the_older_leaves_its_place_first() -> None:
    """Guards the longest time: a pod that comes takes it over, in whatever order they are kept."""
    for waiting in (
        {"young": unbound(10.0), "old": unbound(0.0)},
        {"old": unbound(0.0), "young": unbound(10.0)},
    ):
        after = Unplaced(waiting=waiting).after({"new"}, {}, short=2, now=20.0)
        assert after == Unplaced(waiting={"new": unbound(0.0)}, vacant=(unbound(10.0),))


def test_a_place_that_is_lost_while_others_are_left_begins_now() -> None:
    """Guards what was lost just now: no time is given to two places, but that which a pod that came has taken over."""
    scene = Scene(6)
    scene.end("p0")
    scene.put("a")
    scene.look(0.0)
    scene.end("p1")
    scene.put("b")
    scene.look(10.0)
    scene.pods.remove("a")
    scene.pods.remove("b")
    scene.put("c")
    scene.end("p2")
    scene.end("p3")
    scene.look(20.0)
    assert scene.live.unplaced is not None
    assert scene.live.unplaced.waiting == {"c": unbound(0.0)}
    assert scene.live.unplaced.vacant == (unbound(0.0), unbound(10.0), Place(empty=20.0))


def test_pods_made_before_those_they_replace_are_gone_take_over_the_longest_time() -> None:
    """Guards what is told of the gang, and when it has landed: a place is as old as the first pod that found none."""
    scene = Scene(3)
    scene.end("p0")
    scene.put("a")
    scene.look(0.0)
    scene.end("p1")
    scene.put("b")
    scene.look(10.0)
    scene.put("a'")
    scene.put("b'")
    scene.look(50.0)
    scene.pods.remove("a")
    scene.pods.remove("b")
    scene.look(60.0)
    assert scene.since() == 0.0
    assert scene.live.unplaced is not None
    assert scene.live.unplaced.waiting == {"a'": unbound(0.0), "b'": unbound(0.0)}


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


def test_what_is_kept_is_no_more_than_what_is_missing() -> None:
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


def test_pods_that_are_bound_and_lost_at_once_are_landing_each_time() -> None:
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
