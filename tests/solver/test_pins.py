"""Gangs whose hosts overlap start together where each lands whatever kube-scheduler picks, in some order."""

from __future__ import annotations

from random import Random

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.queue import QuotaRow
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner
from queuer.solver.problem import Admission, Assignment, Budget, Pending, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.cases_crowded import drawn, world
from tests.solver.make import GPU, gang, node, pod_set, queue, snapshot


def decided(snap: Snapshot) -> Plan:
    plan = decide(snap, now=100.0, seed=1, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=100.0) == ()
    return plan


def by_uid(plan: Plan) -> dict[str, Admission]:
    return {a.uid: a for a in plan.admissions}


def test_a_gang_that_shares_a_host_takes_what_the_others_leave() -> None:
    """Six slots for two gangs of three: whichever hosts the first takes, the second finds three."""
    found = by_uid(
        decided(world([4, 4, 4], gang("a", pod_set(3, 2)), gang("b", pod_set(3, 2), submitted=1.0)))
    )
    assert found["a"].wave < found["b"].wave
    hosts = found["b"].assignments[0].hosts
    assert hosts is not None
    assert set(hosts) == {"n0", "n1", "n2"}


def test_gangs_of_one_rack_are_opened_to_the_hosts_of_each_other() -> None:
    """Each rack holds two gangs of three; the second of each takes what the first leaves."""
    waiting = [gang(uid, pod_set(3, 2), submitted=float(i), required="rack") for i, uid in enumerate("abcd")]
    found = by_uid(decided(world([4] * 6, *waiting, racks="qqqrrr")))
    hosts = {uid: set(found[uid].assignments[0].hosts or ()) for uid in "bd"}
    assert sorted(map(sorted, hosts.values())) == [["n0", "n1", "n2"], ["n3", "n4", "n5"]]


def test_a_gang_is_opened_to_no_host_outside_its_rack() -> None:
    """b shares n2 with a, which may not count on b going to the other rack."""
    waiting = [gang("a", pod_set(5, 2)), gang("b", pod_set(2, 2), submitted=1.0, required="rack")]
    found = by_uid(decided(world([4, 4, 4, 2], *waiting, racks="qqrr")))
    assert set(found) == {"a", "b"}
    assert set(found["b"].assignments[0].hosts or ()) == {"n2", "n3"}


def test_a_rack_with_nodes_of_a_flavor_before_is_no_pin() -> None:
    """Every node has the labels of `rest`, those of `fast` too: the gang is pinned to its hosts."""
    labels = {"block": "b", "rack": "r"}
    nodes = [node("a", labels={**labels, "pool": "fast"}), node("b", labels=labels), node("c", labels=labels)]
    flavors = (Flavor(name="fast", node_labels={"pool": "fast"}), Flavor(name="rest"))
    waiting = [gang("g", pod_set(2, 8), required="rack")]
    found = by_uid(
        decided(
            snapshot(
                nodes,
                [queue("root.a", QuotaRow(resource=GPU, flavor="rest"))],
                flavors=flavors,
                pending=waiting,
            )
        )
    )
    assert found["g"].assignments[0].hosts == ("b", "c")


@pytest.mark.parametrize("work", [0, 2_000])
def test_work_is_bounded_and_who_remains_lands_last_or_waits(work: int) -> None:
    """Fifty gangs fill hosts that they share with each other."""
    rng = Random(3)
    waiting = [gang(f"w{i}", pod_set(rng.choice((2, 3, 4, 5)), rng.choice((1, 2, 3, 5)))) for i in range(100)]
    greedy = Greedy(Board(Arrays.of(world([8] * 50, *waiting)), now=100.0))
    started = [
        c for g in greedy.board.arrays.offers.gangs.values() if isinstance(c := greedy.turn(g), Chosen)
    ]
    free, bounded = (Pinner(greedy.board, {}, work=most) for most in (10**9, work))
    assert len(free.late(started)) <= len(bounded.late(started)) < len(started)
    assert free.work > 4_000
    assert bounded.work < work + 200


def test_pods_that_fit_whatever_comes_first_share_a_wave() -> None:
    """However a spreads its three pods over two hosts, one of them keeps four for the leader of b."""
    leader = pod_set(1, 4, name="leader")
    waiting = [gang("a", pod_set(3, 4)), gang("b", leader, pod_set(2, 8), submitted=1.0)]
    found = by_uid(decided(world([8, 8, 8, 8], *waiting)))
    assert found["a"].wave == found["b"].wave == 0


def test_who_would_be_robbed_goes_first() -> None:
    """The leader of b, which keeps off n0, finds its place on the other host of a only if it comes before a."""
    b = gang("b", pod_set(1, 1, name="leader"), pod_set(2, 8), submitted=1.0)
    picky = Pending(workload=b, avoid=frozenset({"n0"}))
    found = by_uid(decided(world([8, 8, 8, 8], gang("a", pod_set(3, 4)), picky)))
    assert found["b"].wave < found["a"].wave


@pytest.mark.parametrize("seed", range(150))
def test_pods_land_in_any_order_on_any_host_of_their_pins(seed: int) -> None:
    snap, rng = drawn(seed), Random(seed)
    plan = decided(snap)
    for _ in range(40):
        assert left_over(snap, plan, rng) == []


def test_of_the_layouts_that_were_tried_the_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second keeps the gang off all hosts, as the first says that it could not land, but starts it."""
    run, tried = Attempt.run, list[Plan]()

    def pessimistic(one: Attempt) -> tuple[Plan, dict[str, frozenset[str]]]:
        plan, late = run(one)
        tried.append(plan)
        return plan, {**late, "a": frozenset({"n0", "n1"})} if len(tried) == 1 else late

    monkeypatch.setattr(Attempt, "run", pessimistic)
    plan = decided(world([4, 4], gang("a", pod_set(2, 4))))
    assert [len(p.admissions) for p in tried] == [1, 0]
    assert set(by_uid(plan)) == {"a"}


def left_over(snap: Snapshot, plan: Plan, rng: Random) -> list[str]:
    """Gangs of which a pod finds no room, wave after wave, pods in random order, each on a host drawn or, in every
    second case, the emptiest or the fullest.
    """
    free = {s.node.name: s.node.allocatable[GPU] - s.used.get(GPU, 0) for s in snap.nodes}
    workloads = {p.workload.uid: p.workload for p in snap.pending}
    for wave in sorted({a.wave for a in plan.admissions}):
        coming = [
            (a.uid, row, next(p for p in workloads[a.uid].pod_sets if p.name == row.pod_set).requests[GPU])
            for a in plan.admissions
            if a.wave == wave
            for row in a.assignments
            for _ in range(row.count)
        ]
        rng.shuffle(coming)
        taste = rng.choice((None, None, 1, -1))
        for uid, row, size in coming:
            fitting = [name for name in pinned(snap, row) if free[name] >= size]
            if not fitting:
                return [uid]
            host = rng.choice(fitting) if taste is None else min(fitting, key=lambda n: taste * free[n])
            free[host] -= size
    return []


def pinned(snap: Snapshot, row: Assignment) -> list[str]:
    """The nodes that a pin leaves open."""
    return [
        s.node.name
        for s in snap.nodes
        if (row.hosts is None or s.node.name in row.hosts)
        and all(s.node.labels.get(key) == value for key, value in row.selector.items())
    ]
