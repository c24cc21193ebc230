"""Whoever lays out a plan and whoever verifies it agree on who lands: no layout is refused for that inside a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import numpy as np
import pytest

from queuer.solver import attempt, attempts, landing
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.frame import Matrix, Need, Numbers
from queuer.solver.greedy import Greedy
from queuer.solver.landing import Group, Landings, lands
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.pins import Pinner
from queuer.solver.problem import Assignment, Bond, Budget, Eviction, EvictionRule, Snapshot, Turn, Unbound
from queuer.solver.verify import Rule, Violation, verify
from queuer.solver.verify import landing as verified
from queuer.solver.verify.landing import certain_slots
from tests.solver import worlds
from tests.solver.cases_crowded import crowded, drawn
from tests.solver.make import gang, node, pod_set, queue, running, snapshot
from tests.solver.plans import at, plan, rules


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Violation]:
    """What the verifier has found wrong with layouts."""
    found: list[Violation] = []

    def noted(*asked: Any, **more: Any) -> tuple[Violation, ...]:
        wrong = verify(*asked, **more)
        found.extend(wrong)
        return wrong

    monkeypatch.setattr(attempt, "verify", noted)
    monkeypatch.setattr(attempts, "verify", noted)
    return found


@pytest.mark.parametrize(
    ("seed", "size", "packed"),
    [
        (160_736, 8, False),
        (160_491, 16, True),
        (8_100, 24, False),
        (39_429, 32, False),
        (160_677, 32, False),
        (160_893, 32, False),
        (160_743, 64, True),
    ],
)
def test_no_layout_is_refused(seed: int, size: int, packed: bool, refused: list[Violation]) -> None:
    snap = worlds.world(seed, nodes=size, pending=size, running=size)
    decide(worlds.packed(snap, seed // 8) if packed else snap, now=worlds.NOW, seed=0, budget=Budget())
    assert refused == []


@pytest.mark.parametrize(
    ("leader", "worker", "other", "lands"),
    [({0: 1}, {0: 2, 1: 1}, 3, False), ({0: 1}, {0: 2, 1: 1}, 4, True), ({1: 1}, {0: 3}, 4, True)],
)
def test_a_bound_gang_lands_for_certain_where_its_own_pods_cannot_rob_each_other(
    leader: dict[int, int], worker: dict[int, int], other: int, lands: bool
) -> None:
    """All three workers may come to the first node, which holds the leader and two of them; then the leader must find
    room on the other one.
    """
    sets = (pod_set(1, 4, name="leader"), pod_set(3, 1, name="worker"))
    snap = snapshot([node("a", gpu=6), node("b", gpu=other)], [queue("root.a")], pending=[gang("g", *sets)])
    greedy = Greedy(Board(Arrays.of(snap), now=0.0))
    (own,) = greedy.board.arrays.offers.gangs.values()
    greedy.take(
        Chosen(
            gang=own,
            variant=own.shape.variants[0],
            charge=own.shape.charges[0],
            spreads={"leader": leader, "worker": worker},
            bound=True,
        )
    )
    one = greedy.chosen["g"]
    pinner = Pinner(greedy.board, {"g": (own.pending.workload, assignments(greedy.board, one))})
    assert pinner.late([one]) == ([] if lands else [one])
    assert pinner.lands_alone(one) is lands


def test_both_find_the_same_slots_certain() -> None:
    """In sums as small as these the worst itself is looked for; none of the two shares the other's code. Some of the
    rivals are sets of the same gang.
    """
    landed = 0
    for seed in range(800):
        rng = Random(seed)
        free = np.array([[rng.randint(0, 8), rng.randint(0, 8)] for _ in range(rng.randint(2, 4))])
        groups = [drawn_group(f"g{i // 2}", rng, len(free)) for i in range(rng.randint(2, 5))]
        own, *rivals = sorted(groups, key=lambda g: -g.wave)
        more = np.array([[rng.choice((0, 0, 2)), rng.choice((0, 1))] for _ in free])
        alloc = None if seed % 3 == 0 else free + more
        room = None if alloc is None else by_host(alloc)
        certain = certain_slots(as_verified(own), map(as_verified, rivals), by_host(free), room)
        assert lands(own, rivals, free, alloc) is (certain >= own.count), seed
        landed += certain >= own.count
    assert 100 < landed < 700


def test_both_find_the_same_slots_certain_beside_those_of_earlier_waves_that_crowd_one_host() -> None:
    """Of this cycle and of earlier ones, on their only host, which has often no room for all of them."""
    landed, more_than_fit = 0, 0
    for seed in range(800):
        rng = Random(seed)
        free = np.array([[rng.randint(2, 8), rng.randint(1, 4)] for _ in range(2)])
        own, *rivals = crowding(rng)
        more = np.array([[rng.choice((0, 0, 2)), rng.choice((0, 1))] for _ in free])
        alloc = None if seed % 2 else free + more
        room = None if alloc is None else by_host(alloc)
        certain = certain_slots(as_verified(own), map(as_verified, rivals), by_host(free), room)
        assert lands(own, rivals, free, alloc) is (certain >= own.count), seed
        landed += certain >= own.count
        asked = sum(r.row * r.count for r in rivals if len(r.hosts) == 1)
        more_than_fit += bool((asked > free[0]).any())
    assert 200 < landed < 600
    assert 300 < more_than_fit < 700


def test_of_pods_that_are_too_many_for_their_host_nobody_knows_who_is_there() -> None:
    """Beside `q` alone a pod of 4 has room on n0, and leaves none for the group; beside `p` it has not."""
    free = np.array([[4, 3], [4, 3]])
    p, q = (shaped(uid, row, {0}, turn=Turn(0, 0)) for uid, row in (("p", [1, 2]), ("q", [0, 2])))
    own, rival = shaped("own", [1, 0], {0}, wave=1), shaped("rival", [4, 0], {0, 1}, wave=1)
    for there, landed in (([p], True), ([q], False), ([p, q], False)):
        rivals = [rival, *there]
        assert lands(own, rivals, free) is landed
        certain = certain_slots(as_verified(own), map(as_verified, rivals), by_host(free))
        assert (certain >= 1) is landed


def test_what_was_asked_before_is_answered_as_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """On nodes that change, beside rivals of its own gang and others that move and come in other waves, with room that
    gets free or not; few answers are kept.
    """
    monkeypatch.setattr(landing, "MOST_KNOWN", 20_000)
    rng, known, reckoned, looked_at = Random(1), Landings(), 0, landing._lands

    def counted(*asked: Any) -> bool:
        nonlocal reckoned
        reckoned += 1
        return looked_at(*asked)

    monkeypatch.setattr(landing, "_lands", counted)
    free = np.array([[6, 6], [4, 8], [8, 3]])
    groups = [drawn_group(f"g{i // 2}", rng, len(free)) for i in range(6)]
    more = [None, np.zeros_like(free), np.full_like(free, 3)]
    for _ in range(4_000):
        if rng.random() < 0.2:
            free[rng.randrange(len(free))] = [rng.randint(0, 3), rng.randint(0, 3)]
        moved = rng.randrange(len(groups))
        wave, hosts = rng.choice((0, 1)), frozenset(rng.sample(range(len(free)), rng.randint(1, 2)))
        groups[moved] = replace(groups[moved], wave=wave, hosts=hosts)
        own, *rivals = rng.sample(groups, rng.randint(1, 3))
        got_free = rng.choice(more)
        alloc = None if got_free is None else free + got_free
        assert known.lands(own, rivals, free, alloc) is lands(own, rivals, free, alloc)
    assert len(known._known) < 100
    assert 4_000 < reckoned < 7_900  # each is reckoned anew, and most of those asked of `known`


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_who_lands_does_so_whatever_goes_meanwhile(first: int) -> None:
    """Looked up: every way in which rivals lie, but for some that have ended already, in room that is there or gets
    free, and what is left then.
    """
    landed = 0
    for seed in range(first, first + 100):
        rng = Random(seed)
        free = np.array([[rng.randint(0, 5)] for _ in range(2)])
        alloc = free + np.array([[rng.choice((0, 1, 2, 4))] for _ in free])
        own, *rivals = [
            replace(drawn_group(f"g{i}", rng, 2, resources=1), count=rng.randint(1, 2)) for i in range(3)
        ]
        if lands(own, rivals, free, alloc):
            landed += 1
            for taken in [way for some in (rivals, rivals[:1], rivals[1:]) for way in all_ways(some)]:
                if (taken <= alloc[:, 0]).all():
                    left = np.maximum(free[:, 0] - taken, 0) // own.row[0]
                    slots = np.minimum(left, 1 if own.need.exclusive else own.count)
                    assert slots[sorted(own.hosts)].sum() >= own.count, seed
    assert landed > 10


def test_a_set_of_the_same_gang_and_one_of_another_are_not_told_apart_by_shape_alone() -> None:
    """On n0 there is room for one pod of 4 beside the group, and for two if what runs there ends, which is no matter
    between sets of one gang.
    """
    free, alloc, known = np.array([[5], [4]]), np.array([[8], [4]]), Landings()

    def some(uid: str, size: int, *hosts: int) -> Group:
        row = np.array([size])
        need = Need(np.array([0]), row, False)
        return Group(uid=uid, count=1, need=need, row=row, hosts=frozenset(hosts))

    own, room, most = some("a", 1, 0), by_host(free), by_host(alloc)
    sibling = some("a", 4, 0, 1)
    other = replace(sibling, uid="b")
    for rivals, landed in (
        ([replace(sibling, count=2)], True),
        ([replace(other, count=2)], False),
        ([sibling, other], False),
        ([other, sibling], False),
    ):
        assert known.lands(own, rivals, free, alloc) is landed
        assert lands(own, rivals, free, alloc) is landed
        certain = certain_slots(as_verified(own), map(as_verified, rivals), room, most)
        assert (certain >= 1) is landed


def all_ways(rivals: Sequence[Group]) -> Iterator[Numbers]:
    """What rivals take of two hosts, however their pods lie."""
    for lying in product(*(combinations_with_replacement(sorted(r.hosts), r.count) for r in rivals)):
        taken = np.zeros(2, dtype=np.int64)
        for rival, hosts in zip(rivals, lying, strict=True):
            if not rival.need.exclusive or len(set(hosts)) == len(hosts):
                for host in hosts:
                    taken[host] += rival.row[0]
        yield taken


def by_host(amounts: Matrix) -> dict[str, dict[str, int]]:
    return {str(host): dict(zip("rs", row, strict=False)) for host, row in enumerate(amounts.tolist())}


def drawn_group(uid: str, rng: Random, hosts: int, *, resources: int = 2) -> Group:
    row = np.array([rng.randint(1, 3), rng.choice((0, 1, 2))])[:resources]
    columns = np.flatnonzero(row)
    return Group(
        uid=uid,
        count=rng.randint(1, 4),
        need=Need(columns, row[columns], rng.random() < 0.15),
        row=row,
        hosts=frozenset(rng.sample(range(hosts), rng.randint(1, hosts))),
        wave=rng.choice((0, 0, 1)),
    )


def crowding(rng: Random) -> list[Group]:
    """A group and a rival of one wave, and others whose only host is the first of two; those with a turn are of an
    earlier cycle.
    """
    wave, hosts = rng.choice((0, 1)), rng.choice(({0}, {0, 1}))

    def some(uid: str, row: list[int], hosts: set[int], *, most: int, **more: Any) -> Group:
        return shaped(uid, row, hosts, count=rng.randint(1, most), exclusive=rng.random() < 0.1, **more)

    own = some("own", [rng.randint(1, 2), 0], hosts, most=3, wave=wave)
    rival = some("rival", [rng.randint(1, 4), rng.choice((0, 0, 1))], {0, 1}, most=3, wave=wave)
    there = [
        some(
            f"p{i}", [rng.randint(0, 2), rng.randint(1, 3)], {0}, most=2, turn=rng.choice((None, Turn(0, 0)))
        )
        for i in range(rng.randint(1, 3))
    ]
    return [own, rival, *there]


def shaped(
    uid: str, row: list[int], hosts: set[int], *, count: int = 1, exclusive: bool = False, **more: Any
) -> Group:
    asked = np.array(row)
    columns = np.flatnonzero(asked)
    need = Need(columns, asked[columns], exclusive)
    return Group(uid=uid, count=count, need=need, row=asked, hosts=frozenset(hosts), **more)


def as_verified(group: Group) -> verified.Group:
    """Pods of earlier cycles, which have a turn, come in wave 0 to those who plan, and before it to the verifier."""
    return verified.Group(
        uid=group.uid,
        pod_set=str(id(group)),  # each is a set of its own
        count=group.count,
        requests=dict(zip("rs", group.row.tolist(), strict=False)),
        hosts=frozenset(map(str, group.hosts)),
        wave=-1 if group.turn else group.wave,
        exclusive=group.need.exclusive,
    )


@pytest.mark.parametrize(
    ("make", "seed", "uid"),
    [(drawn, 1_020, "w1"), (drawn, 2_493, "w4"), (crowded, 2_004, "g5"), (drawn, 212, "w5")],
)
def test_nobody_is_put_off_who_is_certain_to_land(
    make: Callable[[int], Snapshot], seed: int, uid: str
) -> None:
    """The last of them finds no place off the hosts of others, and may share them once these have moved."""
    found = decide(make(seed), now=100.0, seed=0, budget=Budget(deterministic=0.0))
    assert uid in {a.uid for a in found.admissions}


def test_who_would_rob_a_bond_of_an_earlier_cycle_starts_elsewhere() -> None:
    """The fullest nodes are `a` and `c`, but with `v` gone both pods of `g` might come to `a`."""
    leaving = running(gang("v", pod_set(1, 4), queue="root.b"), {"a": 1}, releasing=True)
    snap = snapshot(
        [node("a", gpu=6), node("b", gpu=3), node("c", gpu=2)],
        [queue("root"), queue("root.a"), queue("root.b")],
        admitted=[leaving],
        pending=[gang("h", pod_set(1, 4)), gang("g", pod_set(2, 2))],
        bonds=[Bond(uid="h", assignments=(at({"a": 1}),), victims=("v",), deadline=100.0)],
    )
    found = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert [(a.uid, a.assignments[0].nodes) for a in found.admissions] == [("g", {"b": 1, "c": 1})]


def robbing(**change: Any) -> tuple[Snapshot, Assignment, Eviction]:
    """A victim whose only pod may still land on `a` or `b`, and where `g` starts."""
    loose = Unbound(pod_set="main", count=1, hosts=("a", "b"))
    victim = replace(running(gang("v", pod_set(1, 8), queue="root.b"), {}), bound={}, unbound=(loose,))
    snap = snapshot(
        [node("a"), node("b")],
        [queue("root"), queue("root.a"), queue("root.b")],
        admitted=[replace(victim, **change)],
        pending=[gang("g", pod_set(1, 8)), gang("h", pod_set(1, 8))],
    )
    return snap, at({"a": 1}), Eviction(uid="v", beneficiary="h", rule=EvictionRule.PREEMPT)


def test_pods_of_a_victim_may_land_before_they_are_deleted() -> None:
    """So nobody may count on their room at once; those that are bound wait until they have gone."""
    snap, place, eviction = robbing()
    bond = Bond(uid="h", assignments=(at({"b": 1}),), victims=("v",), deadline=100.0)
    assert Rule.LANDING in rules(snap, plan(snap, {"g": (place,)}, bonds=(bond,), evictions=(eviction,)))
    assert Rule.LANDING not in rules(snap, plan(snap, {}, bonds=(bond,), evictions=(eviction,)))
