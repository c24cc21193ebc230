"""Gangs whose hosts overlap start together where each lands whatever kube-scheduler picks, in some order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from queuer.domain.nodes import Flavor, Node, SchedulingTerms, Taint, TaintEffect
from queuer.domain.queue import Policy, QuotaRow
from queuer.domain.reasons import Deferral, Verdict
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner
from queuer.solver.problem import Admission, Admitted, Assignment, Budget, Pending, Plan, Snapshot, Unbound
from queuer.solver.verify import verify
from queuer.solver.verify.landing import Group, certain_slots
from queuer.solver.yielding import Yielding
from tests.solver.cases_crowded import drawn, world
from tests.solver.make import GPU, TOPOLOGY, gang, node, pod_set, queue, running, snapshot


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


@pytest.mark.parametrize(
    "close",
    [
        lambda node: replace(node, unschedulable=True),
        lambda node: replace(node, ready=False),
        lambda node: replace(node, taints=(Taint(key="k", value="v", effect=TaintEffect.NO_SCHEDULE),)),
    ],
    ids=["cordoned", "not ready", "tainted"],
)
def test_a_rack_of_which_a_node_is_closed_is_no_pin_while_pods_have_still_to_land(
    close: Callable[[Node], Node],
) -> None:
    """They may be those that wait for that node."""
    nodes = [node(n, labels={"block": "b", "rack": "r"}) for n in "abc"]
    nodes[0] = close(nodes[0])
    waiting = [gang("g", pod_set(2, 8), submitted=1.0, required="rack")]
    snap = snapshot(nodes, [queue("root.a")], admitted=[landing_on("l")], pending=waiting, topology=TOPOLOGY)
    assert by_uid(decided(snap))["g"].assignments[0].hosts == ("b", "c")
    alone = replace(snap, admitted=())
    assert by_uid(decided(alone))["g"].assignments[0].hosts is None


@pytest.mark.parametrize("flavors", [True, False], ids=["of another flavor", "excluded by its own selector"])
def test_a_rack_is_a_pin_beside_closed_nodes_that_its_pods_never_use(flavors: bool) -> None:
    """While pods have still to land elsewhere, too: what opens there is no place for this gang."""
    labels = {"block": "b", "rack": "r"}
    small = node("a", labels={**labels, "pool": "small"}, unschedulable=True)
    large = [node(n, labels={**labels, "pool": "large"}) for n in "bc"]
    other = node("d", labels={"block": "b", "rack": "s", "pool": "large"})
    pools = tuple(Flavor(name=name, node_labels={"pool": name}) for name in ("small", "large"))
    terms = SchedulingTerms() if flavors else SchedulingTerms(node_selector={"pool": "large"})
    snap = snapshot(
        [small, *large, other],
        [queue("root.a", *(QuotaRow(resource=GPU, flavor="large") for _ in range(flavors)))],
        flavors=pools if flavors else (),
        admitted=[landing_on("l", "d", flavor="large" if flavors else "default")],
        pending=[gang("g", pod_set(2, 8, terms=terms), submitted=1.0, required="rack")],
    )
    (row,) = by_uid(decided(snap))["g"].assignments
    assert (row.hosts, row.selector["rack"], set(row.nodes)) == (None, "r", {"b", "c"})


def landing_on(uid: str, *hosts: str, flavor: str = "default") -> Admitted:
    """A gang of one pod that has still to land on these hosts, which may be none now."""
    loose = Unbound(pod_set="main", count=1, hosts=hosts)
    return replace(running(gang(uid, pod_set(1, 8)), {"a": 1}, flavor=flavor), bound={}, unbound=(loose,))


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
    """The second keeps the gang off all hosts for good, as the first says that it could not land, but starts it."""
    run, tried = Attempt.run, list[Plan]()

    def pessimistic(one: Attempt) -> tuple[Plan, Yielding | None]:
        plan, late = run(one)
        tried.append(plan)
        return plan, Yielding(off={"a": frozenset({"n0", "n1"})}) if len(tried) == 1 else late

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


def any_pins(sizes: Sequence[int], shapes: Sequence[tuple[int, int]]) -> bool:
    """Whether all sets land for certain on some hosts, by the verifier."""
    free = {f"n{i}": {GPU: gpu} for i, gpu in enumerate(sizes)}
    some = [frozenset(h) for n in range(1, len(free) + 1) for h in combinations(free, n)]
    for pins in product(some, repeat=len(shapes)):
        groups = [
            Group(uid="g", pod_set=str(i), count=count, requests={GPU: gpu}, hosts=hosts)
            for i, ((count, gpu), hosts) in enumerate(zip(shapes, pins, strict=True))
        ]
        if all(certain_slots(one, groups, free) >= one.count for one in groups):
            return True
    return False


@pytest.mark.parametrize(("sets", "most"), [(2, 4), (3, 3)])
def test_sets_of_one_gang_start_wherever_some_pins_let_them_land(sets: int, most: int) -> None:
    """One waits only where no pins do; then it is told what is missing, room or that."""
    random, refused = Random(sets), 0
    for _ in range(60):
        sizes = [random.randint(1, 8) for _ in range(random.randint(2, most))]
        shapes = [(random.randint(1, 3), random.randint(1, 4)) for _ in range(sets - 1)]
        left = sum(sizes) - sum(count * gpu for count, gpu in shapes)
        shapes.append((max(1, left - random.randint(0, 3)), 1))
        work = gang("g", *(pod_set(count, gpu, name=f"s{i}") for i, (count, gpu) in enumerate(shapes)))
        plan = decided(world(sizes, work))
        assert bool(plan.admissions) == any_pins(sizes, shapes), (sizes, shapes)
        refused += not plan.admissions
    assert 0 < refused < 60


def test_of_three_sets_one_alone_may_need_more_hosts() -> None:
    """The small pod is sure of its place on n1 only as long as both others may come to n0."""
    sizes, shapes = [2, 7], [(1, 1), (2, 2), (2, 2)]
    assert any_pins(sizes, shapes)
    work = gang("g", *(pod_set(count, gpu, name=f"s{i}") for i, (count, gpu) in enumerate(shapes)))
    assert by_uid(decided(world(sizes, work)))


def test_sets_that_would_take_each_others_places_are_told_so() -> None:
    """28 small pods may leave 3 of 8 everywhere; with one less the large one has its 4 somewhere."""
    sets = pod_set(28, 1), pod_set(1, 4, name="large")
    told = decided(world([8] * 4, gang("g", *sets))).explanations["g"]
    assert told.verdict is Verdict.CHANGE
    assert told.primary.text == (
        "main needs room for 28 pods of 1 example.com/gpu; large needs room for 1 pod of 4 example.com/gpu: there is "
        "room, even with every node idle, but its pod sets could take each other's places while they land."
    )
    assert by_uid(decided(world([8] * 4, gang("g", pod_set(19, 1), sets[1]))))


def test_a_bound_gang_has_the_hosts_on_which_its_sets_land_beside_each_other() -> None:
    """13 of 16 pods may fill either node; the pair of GPUs is on the other one then."""
    nodes = [node("n0"), node("n1")]
    runs = running(gang("low", pod_set(1, 8)), {"n0": 1})
    waits = gang("g", pod_set(13, 1), pod_set(1, 2, name="pair"), priority=1)
    plan = decided(snapshot(nodes, [queue("root.a")], admitted=[runs], pending=[waits]))
    assert [e.uid for e in plan.evictions] == ["low"]
    (bond,) = plan.bonds
    assert {a.hosts for a in bond.assignments} == {("n0", "n1")}
    waits_still = snapshot(nodes, [queue("root.a")], pending=[waits], bonds=plan.bonds)
    assert {a.hosts for a in by_uid(decided(waits_still))["g"].assignments} == {("n0", "n1")}


@pytest.mark.parametrize("max_wait", [None, 60.0])
def test_nobody_is_evicted_for_sets_that_would_not_land_beside_each_other(max_wait: float | None) -> None:
    """With `low` gone the three small pods may still take the large one's node, which no other one is: no jobs that
    land are to blame.
    """
    nodes = [node("n0", gpu=4), node("n1", gpu=4)]
    stays = running(gang("stays", pod_set(1, 2), preemptible=False), {"n1": 1})
    low = running(gang("low", pod_set(1, 1)), {"n1": 1})
    waits = gang("g", pod_set(3, 1), pod_set(1, 3, name="large"), priority=1)
    snap = snapshot(
        nodes,
        [
            queue("root", policy=Policy(max_wait=max_wait)),
            queue("root.a", QuotaRow(resource=GPU, guaranteed=8)),
        ],
        admitted=[stays, low],
        pending=[waits],
    )
    plan = decide(snap, now=100.0, seed=1, budget=Budget())
    assert verify(snap, plan, now=100.0) == ()
    assert (plan.admissions, plan.evictions, plan.bonds) == ((), (), ())
    told = plan.explanations["g"].primary
    assert told.params["cause"] == Deferral.CROSSING
    assert told.text == (
        "Room was found for it in this cycle, but its pod sets could take each other's places there; the next one "
        "tries again."
    )


def test_greedy_looks_further_where_a_leader_has_room_but_could_be_robbed_of_it() -> None:
    """With `second` gone there is room enough, but all workers might come to the leader's node."""
    runs = [
        running(gang("first", pod_set(1, 4), queue="root.b"), {"n0": 1}, since=0.0),
        running(gang("second", pod_set(1, 6), queue="root.b"), {"n1": 1}, since=80.0),
    ]
    queues = [queue("root.a", QuotaRow(resource=GPU, guaranteed=8)), queue("root.b")]
    nodes = [node("n0", gpu=6), node("n1", gpu=6)]
    waits = gang("g", pod_set(1, 4, name="leader"), pod_set(4, 1, name="workers"))
    snap = snapshot(nodes, queues, admitted=runs, pending=[waits])
    plan = decide(snap, now=100.0, seed=1, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=100.0) == ()
    assert {e.uid for e in plan.evictions} == {"first", "second"}


@pytest.mark.parametrize(
    ("sets", "first"), [([(2, 1), (4, 2)], 2), ([(5, 1), (2, 2)], 3), ([(1, 4), (4, 1)], 4)]
)
def test_one_victim_more_goes_where_sets_would_not_land_otherwise(
    sets: list[tuple[int, int]], first: int
) -> None:
    """`second` costs least and leaves room enough, where the sets could take each other's places. `first` may be
    reclaimed only before it, as their queue is within its guarantee then.
    """
    runs = [
        running(gang("first", pod_set(1, first), queue="root.b"), {"n0": 1}, since=0.0),
        running(gang("second", pod_set(1, 6), queue="root.b"), {"n1": 1}, since=80.0),
    ]
    asked = sum(count * gpu for count, gpu in sets)
    queues = [
        queue("root.a", QuotaRow(resource=GPU, guaranteed=asked)),
        queue("root.b", QuotaRow(resource=GPU, guaranteed=first)),
    ]
    waits = gang("g", *(pod_set(count, gpu, name=f"s{i}") for i, (count, gpu) in enumerate(sets)))
    nodes = [node("n0", gpu=6), node("n1", gpu=6)]
    snap = snapshot(nodes, queues, admitted=runs, pending=[waits])
    plan = decide(snap, now=100.0, seed=1, budget=Budget())
    assert verify(snap, plan, now=100.0) == ()
    assert [e.uid for e in plan.evictions] == ["first", "second"]
    (bond,) = plan.bonds
    left = snapshot(nodes, queues, pending=[waits], bonds=[bond])
    assert by_uid(decided(left)).keys() == {"g"}
