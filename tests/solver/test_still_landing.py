"""Nobody is evicted, and nobody is told that there is no room, where room is left once pods of earlier cycles lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from queuer.domain.nodes import Flavor, Node, SchedulingTerms
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.problem import Admitted, Budget, Plan, Reservation, Snapshot, SolveStatus, Turn, Unbound
from queuer.solver.tight import lying_tight
from queuer.solver.verify import Rule, verify
from tests.solver.cases import NOW
from tests.solver.cases_landing import landings, unlanded
from tests.solver.make import GPU, TOPOLOGY, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.plans import at

NODES = [node(f"n{i}", labels={"block": "b0", "rack": "r0"}) for i in range(4)]
HOSTS = tuple(n.name for n in NODES)
ALONE = Budget(deterministic=0.0)
QUEUES = [queue("root"), queue("root.a", row(guaranteed=32)), queue("root.b")]


def landing(pods: int, gpu: int, *, on: tuple[str, ...] = HOSTS, since: float = -1.0) -> Admitted:
    """A borrower that has started, none of its pods is bound yet."""
    work = gang("l", pod_set(pods, gpu), queue="root.b")
    whole = running(work, {on[0]: pods}, since=since, expected_end=499.0)
    return replace(whole, bound={}, unbound=(Unbound(pod_set="main", count=pods, hosts=on),))


def decided(*waiting: Workload, there: tuple[Admitted, ...], **more: Any) -> Plan:
    snap = snapshot(NODES, QUEUES, admitted=there, pending=waiting, topology=TOPOLOGY, **more)
    plan = decide(snap, now=0.0, seed=0, budget=Budget())
    assert verify(snap, plan, now=0.0) == ()
    return plan


@pytest.mark.parametrize("asks", [(4, 1), (12, 1), (1, 8), (2, 4)])
@pytest.mark.parametrize("lands", [(2, 5), (9, 1), (4, 4)])
def test_who_fits_once_they_have_landed_evicts_nobody(lands: tuple[int, int], asks: tuple[int, int]) -> None:
    """16 to 23 of 32 GPUs are free, inside a guarantee of 32."""
    plan = decided(gang("g", pod_set(*asks)), there=(landing(*lands),))
    assert plan.evictions == ()
    if not plan.admissions:
        assert plan.explanations["g"].primary.token is Token.PENDING_EVALUATION
        assert plan.stats.status is not SolveStatus.OPTIMAL


def test_place_and_quota_are_kept_for_the_first() -> None:
    """Whoever comes later would take what it starts on in a second: n2 or n3, which nothing lands on. With fewer pods,
    too.
    """
    first, *later = (
        gang(uid, pod_set(pods, 8), queue=queue, submitted=number)
        for number, (uid, pods, queue) in enumerate(
            [("g", 3, "root.a"), ("h", 1, "root.b"), ("i", 3, "root.b")]
        )
    )
    plan = decided(first, *later, there=(landing(2, 4, on=("n0", "n1")),))
    assert (plan.admissions, plan.evictions) == ((), ())
    behind = plan.explanations["h"].primary
    assert (behind.token, behind.params["owner"]) == (Token.BEHIND_IN_QUEUE, "g")
    assert plan.explanations["h"].would_admit == plan.explanations["i"].would_admit == ()


def test_what_is_kept_on_one_of_its_flavors_is_told_before_the_limit_on_the_other() -> None:
    """f1 has one GPU left; f2 has as many as it asks for, all of them kept."""
    nodes = [node(f"n{i}", gpu=4, labels={"f": "2" if i else "1"}) for i in range(3)]
    flavors = tuple(Flavor(name=f"f{i}", node_labels={"f": i}) for i in "12")
    full = running(gang("full", pod_set(1, 3), preemptible=False), {"n0": 1}, flavor="f1")
    lands = replace(landing(4, 1, on=("n1", "n2")), flavors={"main": "f2"})
    waiting = gang("first", pod_set(1, 4)), gang("later", pod_set(1, 2), submitted=1)
    snap = snapshot(
        nodes, [queue("root.a"), queue("root.b")], admitted=[full, lands], pending=waiting, flavors=flavors
    )
    told = decide(snap, now=0.0, seed=0, budget=Budget()).explanations["later"]
    assert (told.primary.token, told.primary.params["owner"]) == (Token.BEHIND_IN_QUEUE, "first")
    assert [(r.token, r.params["flavor"]) for r in told.others] == [(Token.WAITING_FOR_QUOTA, "f1")]


def test_who_awaits_them_uses_nothing_yet() -> None:
    """Nobody of its queue is above the guarantee for it; no bound, and nobody else, takes its place for open."""
    work = gang("g", pod_set(1, 8)), gang("x", pod_set(4, 8), submitted=1)
    snap = snapshot(NODES, QUEUES, pending=work, topology=TOPOLOGY)
    greedy = Greedy(Board(Arrays.of(snap), now=0.0))
    board, gangs = greedy.board, greedy.board.arrays.offers.gangs
    (variant, charge), (wide, asked) = (gangs[uid].shape.smallest[0] for uid in ("g", "x"))
    account, line = (None, GPU), board.line().copy()
    assert not greedy.excluded(greedy.pool(gangs["x"], asked, later=False), gangs["x"], wide)
    greedy.keep(Chosen(gang=gangs["g"], variant=variant, charge=charge, spreads={"main": {0: 1}}))
    assert board.line().used("root.a", account) == line.used("root.a", account) == 0
    assert board.claimed.used("root.a", account) == 8
    assert greedy.excluded(greedy.pool(gangs["x"], asked, later=False), gangs["x"], wide)
    assert isinstance(greedy.start(gangs["x"]), Refusal)
    with greedy.none_kept():
        assert isinstance(greedy.start(gangs["x"]), Chosen)


@pytest.mark.parametrize("waits", [(), (gang("g", pod_set(2, 8), submitted=-5.0, estimate=60.0),)])
def test_what_is_kept_for_it_does_not_keep_others_from_a_reservation(waits: tuple[Workload, ...]) -> None:
    big = gang("big", pod_set(4, 8), queue="root.b")
    plan = decided(*waits, big, there=(landing(2, 4),))
    assert [(r.uid, r.start) for r in plan.reservations] == [("big", 499.0)]


def test_no_reservation_gives_way_before_it_starts() -> None:
    """`g` ranks higher and its place would be that of the reservation."""
    held = Reservation(uid="o", assignments=(at({"n2": 1}),), start=400.0, expires=2000.0)
    there = running(gang("v", pod_set(1, 4), queue="root.b"), {"n2": 1}, expected_end=400.0)
    full = running(gang("f", pod_set(1, 8), queue="root.b", preemptible=False), {"n3": 1})
    waits = gang("o", pod_set(1, 8), queue="root.b", submitted=-50.0), gang("g", pod_set(3, 4))
    lands = landing(2, 4, on=("n0", "n1"))
    plan = decided(*waits, there=(lands, there, full), reservations=(held,))
    assert plan.explanations["g"].primary.token is Token.PENDING_EVALUATION
    assert [(r.uid, r.start) for r in plan.reservations] == [("o", 400.0)]


@pytest.mark.parametrize(("age", "evicted"), [(60.0, []), (61.0, ["l"])])
def test_nobody_waits_for_what_does_not_land(age: float, evicted: list[str]) -> None:
    plan = decided(gang("g", pod_set(3, 8)), there=(landing(2, 1, since=-age),))
    assert [e.uid for e in plan.evictions] == evicted


def test_who_keeps_off_some_hosts_waits_for_them_too() -> None:
    """In a later attempt at the plan."""
    snap = snapshot(NODES, QUEUES, admitted=[landing(2, 4)], pending=[gang("g", pod_set(2, 8))])
    greedy = Greedy(Board(Arrays.of(snap), now=0.0), crowded={"g": frozenset({"n0"})})
    answer = greedy.turn(greedy.board.arrays.offers.gangs["g"])
    assert isinstance(answer, Refusal)
    assert answer.block is Block.LANDING
    assert list(greedy.awaiting) == ["g"]


def test_they_lie_on_the_fullest_nodes_that_hold_them() -> None:
    """So whole nodes stay whole; what finds no place counts everywhere."""

    def lying(pods: int, gpu: int, *free: int) -> dict[int, int]:
        snap = snapshot(NODES, QUEUES, admitted=[landing(pods, gpu)])
        holds = list(Arrays.of(snap).holds.values())
        column = Arrays.of(snap).frame.column[GPU]
        left = {n: np.array([f if c == column else 20 for c in range(2)]) for n, f in enumerate(free)}
        return {n: int(row[column]) for n, row in lying_tight(holds, left, now=0.0)["l"].items()}

    assert lying(2, 2, 8, 4, 5, 1) == {1: 4}
    assert lying(5, 2, 8, 4, 5, 1) == {1: 4, 2: 4, 0: 2}
    assert lying(4, 4, 4, 4, 4, 3) == {0: 4, 1: 4, 2: 4, 3: 0}


def test_who_has_no_room_even_then_evicts() -> None:
    plan = decided(gang("g", pod_set(4, 8)), there=(landing(2, 5),))
    assert [e.uid for e in plan.evictions] == ["l"]


def test_who_waits_for_them_takes_the_room_next_time() -> None:
    """The scheduler has packed them tightly."""
    bound = running(gang("l", pod_set(2, 4), queue="root.b", required="rack"), {"n0": 2}, since=-1.0)
    plan = decided(gang("g", pod_set(3, 8)), there=(bound,))
    assert [a.uid for a in plan.admissions] == ["g"]


def test_whoever_starts_however_they_land_waits_for_that_alone() -> None:
    """Every way in which they can land is looked up, for the gang that has the first turn."""
    asked = 0
    for snap in filter(None, map(unlanded, range(100))):
        plan = decide(snap, now=NOW, seed=0, budget=ALONE)
        uid = plan.order[0] if plan.order else ""
        ways = list(islice(landings(snap), 100))
        if not ways or uid in {a.uid for a in plan.admissions} or not all(_starts(w, uid) for w in ways):
            continue
        asked += 1
        assert not [e for e in plan.evictions if e.beneficiary == uid]
        assert plan.explanations[uid].primary.token is Token.PENDING_EVALUATION
    assert asked > 5


def _starts(snap: Snapshot, uid: str) -> bool:
    """Whether it would, with nobody beside it."""
    alone = replace(snap, pending=tuple(p for p in snap.pending if p.workload.uid == uid))
    return bool(decide(alone, now=NOW, seed=0, budget=ALONE).admissions)


def labelled(name: str, gpu: int, *gangs: str) -> Node:
    return node(name, gpu=gpu, labels={"kubernetes.io/hostname": name, **dict.fromkeys(gangs, "1")})


def on_its_way(work: Workload, *hosts: str, turn: Turn) -> Admitted:
    loose = Unbound(pod_set="main", count=work.pod_sets[0].count, hosts=hosts)
    return replace(running(work, {}), bound={}, unbound=(loose,), turn=turn)


@pytest.mark.parametrize("deterministic", [0.0, 2.0])
def test_who_lands_before_a_later_wave_of_its_cycle_is_robbed_by_nobody(deterministic: float) -> None:
    """`m` comes once `l` has landed, which is safe from it therefore; all pods of `n` might come to n1 before."""

    def work(uid: str, count: int, gpu: int) -> Workload:
        return gang(uid, pod_set(count, gpu, terms=SchedulingTerms(node_selector={uid: "1"})))

    nodes = [
        labelled("n1", 8, "l", "n"),
        labelled("n2", 8, "l", "m"),
        labelled("n3", 1, "n"),
        labelled("n4", 1, "m"),
    ]
    there = [
        on_its_way(work("l", 2, 5), "n1", "n2", turn=Turn(1, 0)),
        on_its_way(work("m", 4, 1), "n2", "n4", turn=Turn(1, 1, held=True)),
    ]
    snap = snapshot(nodes, [queue("root"), queue("root.a")], admitted=there, pending=[work("n", 4, 1)])
    made = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=deterministic))
    assert [(a.uid, a.wave) for a in made.admissions] == [("n", 1)]
    assert verify(snap, made, now=0.0) == ()
    at_once = replace(made, admissions=(replace(made.admissions[0], wave=0),))
    assert [v.rule for v in verify(snap, at_once, now=0.0)] == [Rule.LANDING]
