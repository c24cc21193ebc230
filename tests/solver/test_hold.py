"""After `maxWait` a place is held: no end is known, or those that were have not come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from queuer.domain.queue import Policy, Preempt, Sharing
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet
from queuer.solver.horizon import Horizon, intact
from queuer.solver.problem import Reservation
from queuer.solver.reserve import LEAST
from queuer.solver.verify import verify
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.oracle_reservations import Follower
from tests.solver.reserved import FOUR, NOW, WAIT, asks, busy, hosts, place, plan_of, world

FOREVER = [busy("a", "n0", since=0.0), busy("b", "n1", since=500.0), busy("c", "n2", since=100.0)]
OLD = NOW - WAIT


def test_a_place_is_held_after_max_wait_where_no_end_is_known() -> None:
    """Not a second earlier, and never where no `maxWait` is said."""
    assert not plan_of(world(FOREVER, [asks("g", 2, submitted=OLD)])).reservations
    assert not plan_of(world(FOREVER, [asks("g", 2, submitted=OLD + 1)], max_wait=WAIT)).reservations
    (held,) = plan_of(world(FOREVER, [asks("g", 2, submitted=OLD)], max_wait=WAIT)).reservations
    assert (held.uid, held.start, held.expires) == ("g", NOW, NOW + WAIT)
    assert hosts(held) == {"n3", "n0"}, "the free node, and the one whose work has run longest"
    (short,) = plan_of(world(FOREVER, [asks("g", 2, submitted=NOW - 10)], max_wait=10.0)).reservations
    assert (short.start, short.expires) == (NOW, NOW + LEAST)


def test_nothing_starts_on_a_held_place_however_short() -> None:
    """Others are told whose it is; beside the place they start."""
    jobs = [
        asks("g", 2, submitted=OLD), asks("s", 1, estimate=1.0), asks("t", 1, gpus=1, estimate=1.0)
    ]  # fmt: skip
    plan = plan_of(world(FOREVER, jobs, max_wait=WAIT))
    assert plan.admissions == ()
    for uid in ("s", "t"):
        behind = plan.explanations[uid].primary
        assert (behind.token, behind.params["owner"]) == (Token.BEHIND_IN_QUEUE, "g")
    roomy = [busy("a", "n0"), busy("b", "n1", gpus=7), busy("c", "n2", gpus=7)]
    assert {a.uid for a in plan_of(world(roomy, jobs, max_wait=WAIT)).admissions} == {"t"}


def test_a_hold_keeps_what_frees_up_and_ends_when_its_owner_starts() -> None:
    """Its place stands still; a node that frees elsewhere is everybody's, one that frees inside is kept."""
    owner, other = asks("g", 2, submitted=OLD), asks("s", 1)
    (held,) = plan_of(world(FOREVER, [owner], max_wait=WAIT)).reservations
    later = NOW + 100
    elsewhere = plan_of(
        world([FOREVER[0], FOREVER[2]], [owner, other], max_wait=WAIT, held=(held,)), now=later
    )
    assert {a.uid for a in elsewhere.admissions} == {"g"}, "two nodes are free: its own turn comes first"
    full = [*FOREVER[1:], busy("d", "n3")]
    inside = plan_of(world(full, [owner, other], max_wait=WAIT, held=(held,)), now=later)
    assert (inside.admissions, inside.reservations) == ((), (held,))
    done = plan_of(world(FOREVER[1:], [owner, other], max_wait=WAIT, held=(held,)), now=later)
    assert ({a.uid for a in done.admissions}, done.reservations) == ({"g"}, ())


def test_a_hold_moves_to_where_an_end_is_known() -> None:
    """It stays one: what is expected has kept its gang waiting for long enough."""
    owner = asks("g", 2, submitted=OLD)
    held = Reservation(uid="g", assignments=place("n3", "n0"), start=NOW - 50, expires=NOW + 550)
    known = [busy("a", "n0"), busy("b", "n1", end=1200.0), busy("c", "n2")]
    plan = plan_of(world(known, [owner, asks("s", 1, estimate=100.0)], max_wait=WAIT, held=(held,)))
    assert plan.admissions == ()
    (moved,) = plan.reservations
    assert (moved.start, moved.expires, hosts(moved)) == (NOW, NOW + WAIT, {"n1", "n3"})
    still = plan_of(world(known, [owner], max_wait=WAIT, held=(moved,)), now=NOW + 10)
    assert still.reservations == (moved,)


@pytest.mark.parametrize(("waited", "start"), [(WAIT - 1, 1500.0), (WAIT, NOW)])
def test_a_reservation_whose_time_is_lost_becomes_a_hold_after_max_wait(waited: float, start: float) -> None:
    """Work outlives what it was expected to take; until then shorter work may pass."""
    owner, short = asks("g", 2, submitted=NOW - waited), asks("s", 1, estimate=100.0)
    told = Reservation(uid="g", assignments=place("n3", "n1"), start=1200.0, expires=2000.0)
    late = [busy("a", "n0"), busy("b", "n1", end=1500.0), busy("c", "n2")]
    plan = plan_of(world(late, [owner, short], max_wait=WAIT, held=(told,)))
    assert plan.reservations[0].start == start
    assert bool(plan.admissions) is (start > NOW)
    in_time = [*late[:1], busy("b", "n1", end=1200.0), *late[2:]]
    assert plan_of(world(in_time, [owner, short], max_wait=WAIT, held=(told,))).reservations == (told,)


@pytest.mark.parametrize(("expires", "until"), [(1300.0, 1150.0 + LEAST), (2000.0, 2000.0)])
def test_a_reservation_whose_place_alone_is_lost_has_another_in_time(expires: float, until: float) -> None:
    """However long its gang has waited: nothing has come later than it was expected."""
    told = Reservation(uid="g", assignments=place("n3", "n1"), start=1200.0, expires=expires)
    late = [busy("a", "n0", end=1150.0), busy("b", "n1", end=1500.0), busy("c", "n2")]
    plan = plan_of(world(late, [asks("g", 2, submitted=OLD)], max_wait=WAIT, held=(told,)))
    (moved,) = plan.reservations
    assert (moved.start, moved.expires, hosts(moved)) == (1150.0, until, {"n0", "n3"})


def test_what_can_be_timed_is_timed_first_however_long_it_has_waited() -> None:
    """Nothing is kept idle while no expected end has failed to come."""
    known = [busy("a", "n0"), busy("b", "n1", end=1200.0), busy("c", "n2")]
    jobs = [asks("g", 2, submitted=OLD), asks("s", 1, estimate=100.0)]
    plan = plan_of(world(known, jobs, max_wait=WAIT))
    assert ([a.uid for a in plan.admissions], plan.reservations[0].start) == (["s"], 1200.0)


def test_a_hold_is_followed_by_another() -> None:
    """Else shorter work would take what has been kept idle for it."""
    owner = asks("g", 2, submitted=0.0)
    held = Reservation(uid="g", assignments=place("n3", "n1"), start=NOW - WAIT, expires=NOW)
    known = [busy("a", "n0"), busy("b", "n1", end=1200.0), busy("c", "n2")]
    plan = plan_of(world(known, [owner, asks("s", 1, estimate=100.0)], max_wait=WAIT, held=(held,)))
    assert plan.admissions == ()
    assert (plan.reservations[0].start, plan.reservations[0].expires) == (NOW, NOW + WAIT)


def test_an_expired_hold_is_chosen_anew() -> None:
    """For another span of `maxWait`, on the place that is best by then."""
    held = Reservation(uid="g", assignments=place("n1", "n2"), start=0.0, expires=NOW)
    (renewed,) = plan_of(
        world(FOREVER, [asks("g", 2, submitted=0.0)], max_wait=WAIT, held=(held,))
    ).reservations
    assert (renewed.start, hosts(renewed)) == (NOW, {"n0", "n3"})


@pytest.mark.parametrize(
    ("other", "end", "owner"),
    [
        ({"priority": 1, "submitted": OLD}, None, "u"),
        ({"priority": 1}, 1200.0, "u"),  # from then on
        ({"priority": 1}, None, "g"),  # no end is known, and it has not waited long enough for a hold
        ({"submitted": -1.0}, None, "g"),  # is first, but does not outrank it
        ({"submitted": OLD, "queue": "root.b"}, None, "u"),  # is entitled
        ({"priority": 1, "submitted": OLD, "queue": "root.c"}, None, "g"),  # comes later by its larger share
    ],
)
def test_an_expired_hold_goes_to_who_outranks_its_owner_and_comes_before_it(
    other: dict[str, Any], end: float | None, owner: str
) -> None:
    """To whom there is one to give, and not a second earlier. What has been kept idle stays so in that cycle."""
    policy = Policy(preempt=Preempt.NEVER, reclaim=False, max_wait=WAIT, reservations=1)
    queues = [queue("root", policy=policy), queue("root.b", row(guaranteed=16))]
    queues += [queue(f"root.{name}") for name in "acd"]
    runs = [busy("x", "n0"), busy("y", "n1", end=end), busy("z", "n2")]
    runs = [replace(run, workload=replace(run.workload, queue="root.c")) for run in runs]
    jobs = [asks("g", 2), asks("u", 2), asks("s", 1, estimate=100.0, queue="root.d")]
    jobs[:2] = [replace(jobs[0], submitted=0.0), replace(jobs[1], **other)]
    for expires, holds in ((NOW, owner), (NOW + 1.0, "g")):
        held = Reservation(uid="g", assignments=place("n3", "n1"), start=NOW - WAIT, expires=expires)
        snap = snapshot(FOUR, queues, admitted=runs, pending=jobs, reservations=(held,))
        plan = plan_of(snap)
        assert ([r.uid for r in plan.reservations], plan.admissions) == ([holds], ())
        assert Follower(snap, NOW, plan).agrees()


def test_higher_priority_passes_a_hold_and_the_hold_moves_on() -> None:
    """It is displaced, not broken in silence: the verifier accepts who passes, and refuses anybody else."""
    owner = asks("g", 2, submitted=OLD)
    held = plan_of(world(FOREVER, [owner], max_wait=WAIT)).reservations
    urgent = world(FOREVER, [owner, asks("u", 1, priority=1)], max_wait=WAIT, held=held)
    plan = plan_of(urgent)
    assert {a.uid for a in plan.admissions} == {"u"}
    assert [r.uid for r in plan.reservations] == ["g"]
    plain = replace(
        urgent, pending=tuple(replace(p, workload=replace(p.workload, priority=0)) for p in urgent.pending)
    )
    assert verify(plain, replace(plan, reservations=held), now=NOW)


def test_what_victims_leave_elsewhere_is_free_however_much_it_is() -> None:
    """`p` evicts `v`, which has all GPUs of n1 and the largest sum of bytes there can be; `q` takes of both."""
    most, root = 2**62, queue("root", policy=Policy(sharing=Sharing.PRIORITY))
    policies = Policy(preempt=Preempt.NEVER, reservations=1), Policy(reservations=0)
    queues = [root, *(queue(f"root.{q}", policy=policy) for q, policy in zip("ab", policies, strict=True))]

    def large(amount: int, gpus: int) -> PodSet:
        one = pod_set(1, gpus)
        return replace(one, requests={**one.requests, "bytes": amount})

    nodes = [node("n0"), node("n1")]
    nodes[1] = replace(nodes[1], allocatable={**nodes[1].allocatable, "bytes": most})
    evicted = running(gang("v", large(most, 8), queue="root.b"), {"n1": 1}, since=0.0)
    pending = [
        asks("g", 1, priority=5),
        asks("p", 1, 4, queue="root.b", priority=3),
        gang("q", large(1, 4), queue="root.b", priority=2, submitted=NOW),
    ]
    plan = plan_of(snapshot(nodes, queues, admitted=[busy("a", "n0", end=1100.0), evicted], pending=pending))
    assert [(r.uid, hosts(r)) for r in plan.reservations] == [("g", {"n0"})]
    assert {b.uid for b in plan.bonds} == {"p", "q"}


@pytest.mark.parametrize(("start", "whole"), [(NOW, False), (NOW + 100, True)])
def test_what_a_victim_leaves_is_kept_for_a_hold_too(start: float, whole: bool) -> None:
    """Who takes it leaves the node as full as it was; a reservation has its room from those who end by then."""
    room = np.array([8])
    horizon = Horizon.of("g", start=start, rank=(False, 0), rows=[(0, room)], free=np.array([[0]]))
    horizon.gain([(0, room)], now=NOW)
    assert intact([horizon], now=NOW) == {"g"}
    horizon.spend([(0, room)])
    assert (intact([horizon], now=NOW) == {"g"}) is whole


@pytest.mark.parametrize(("sizes", "start"), [((3, 4), NOW), ((4, 3), NOW - 50)])
def test_a_hold_waits_for_no_more_ends_than_it_needs(sizes: tuple[int, int], start: float) -> None:
    """Who outranks it takes the GPU that is free beside two jobs. Where the first that ends leaves just what it takes,
    that is in its way, and it is made anew; where that leaves one more, it stands.
    """
    runs = [busy(uid, "n0", gpus=n, since=i) for i, (uid, n) in enumerate(zip("ab", sizes, strict=True))]
    runs += [busy(f"c{i}", f"n{i}") for i in range(1, 4)]
    old = Reservation(uid="g", assignments=place("n0"), start=NOW - 50, expires=NOW + WAIT - 50)
    jobs = [asks("g", 1, 4, submitted=OLD), asks("u", 1, 1, priority=1)]
    snap = world(runs, jobs, max_wait=WAIT, held=(old,))
    plan = plan_of(snap)
    assert {a.uid for a in plan.admissions} == {"u"}
    assert [(r.uid, r.start) for r in plan.reservations] == [("g", start)]
    assert Follower(snap, NOW, plan).agrees()


def test_a_hold_that_will_never_be_whole_is_lost_to_who_outranks_it() -> None:
    """Pods that are not ours have n0 for good; what is over on n1 is then nothing that it leaves."""
    old = Reservation(uid="g", assignments=place("n0", "n1"), start=NOW - 50, expires=NOW + WAIT - 50)
    runs = [busy("b", "n1", gpus=6), busy("c", "n2"), busy("d", "n3")]
    jobs = [asks("g", 2, 4, submitted=OLD), asks("u", 1, 2, priority=1)]
    policy = Policy(preempt=Preempt.NEVER, max_wait=WAIT, reservations=1)
    queues = [queue("root", policy=policy), queue("root.a")]
    foreign = {"n0": {GPU: 8, "pods": 1}}
    snap = snapshot(FOUR, queues, admitted=runs, pending=jobs, reservations=(old,), foreign=foreign)
    plan = plan_of(snap)
    assert [hosts(r) for r in plan.reservations] == [{"n2"}]
    assert Follower(snap, NOW, plan).agrees()


@pytest.mark.parametrize("over", [0, 1])
def test_who_leaves_a_hold_what_it_waits_for_does_not_displace_it(over: int) -> None:
    """Four of five are to end. Who outranks it takes the fifth; it is lost where that, or what a victim leaves, is part
    of its place.
    """
    horizon = Horizon.of(
        "g",
        start=NOW,
        rank=(False, 0),
        rows=[(0, np.array([5 - over]))],
        free=np.array([[1]]),
        over=np.array([[over]]),
    )
    one, four = [(0, np.array([1]))], [(0, np.array([4]))]
    horizon.spend(one)
    assert bool(intact([horizon], now=NOW)) is bool(over)
    horizon.gain(four, now=NOW)
    assert bool(intact([horizon], now=NOW)) is bool(over)
    horizon.spend(one)
    assert not intact([horizon], now=NOW)
