"""The verifier finds each broken rule of one gang on nodes: sound plans, broken once each, are told which rule.

The plans come from the greedy decision, so they are realistic; whether those are sound is asserted first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import nan

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms, Taint
from queuer.domain.queue import Order, Policy, QueueState
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.problem import Bond, Pending, Plan, Snapshot, SolveStatus
from queuer.solver.verify import Rule, verify
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.plans import GREEDY, NOW, RACKS, Mutation, altered, at, plan, queues, rules, waits


def rack_gang() -> tuple[Snapshot, Plan]:
    snap = snapshot(
        RACKS,
        [queue("root.a", row(guaranteed=24))],
        pending=[gang("g", pod_set(2, 8), required="rack")],
    )
    return snap, decide(snap, now=NOW, seed=0, budget=GREEDY)


def test_greedy_plan_is_sound() -> None:
    snap, made = rack_gang()
    assert [a.uid for a in made.admissions] == ["g"]
    assert verify(snap, made, now=NOW) == ()


def moved(made: Plan, **change: object) -> Plan:
    """The only assignment of the only admission changed."""
    only = made.admissions[0]
    rows = (replace(only.assignments[0], **change),)  # type: ignore[arg-type]
    return replace(made, admissions=(replace(only, assignments=rows),))


MUTATIONS: dict[str, tuple[Mutation, Rule]] = {
    "a pod is missing": (lambda p: moved(p, nodes={"n1": 1}), Rule.GANG),
    "a pod too many": (lambda p: moved(p, nodes={"n1": 1, "n2": 1, "n3": 1}), Rule.GANG),
    "no pods on a node": (lambda p: moved(p, nodes={"n1": 2, "n2": 0}), Rule.GANG),
    "two racks": (lambda p: moved(p, nodes={"n1": 1, "n3": 1}, hosts=("n1", "n3"), selector={}), Rule.LEVEL),
    "one node for two": (lambda p: moved(p, nodes={"n1": 2}), Rule.CAPACITY),
    "a pin that leaves the rack": (lambda p: moved(p, selector={}, hosts=("n1", "n2", "n3")), Rule.PIN),
    "a pin beside the place": (lambda p: moved(p, hosts=("n2",)), Rule.PIN),
    "a pin too narrow": (lambda p: moved(p, hosts=("n2",)), Rule.LANDING),
    "a flavor that is none": (lambda p: moved(p, flavor="gold"), Rule.FLAVOR),
    "no such node": (lambda p: moved(p, nodes={"n9": 2}), Rule.REFERENCE),
    "no such pod set": (lambda p: moved(p, pod_set="other"), Rule.REFERENCE),
    "no such workload": (
        lambda p: replace(p, admissions=(replace(p.admissions[0], uid="ghost"),)),
        Rule.REFERENCE,
    ),
    "twice": (lambda p: replace(p, admissions=p.admissions * 2), Rule.REFERENCE),
    "pod set twice": (
        lambda p: replace(
            p,
            admissions=(replace(p.admissions[0], assignments=p.admissions[0].assignments * 2),),
        ),
        Rule.GANG,
    ),
    "no pod set at all": (
        lambda p: replace(p, admissions=(replace(p.admissions[0], assignments=()),)),
        Rule.GANG,
    ),
    "a wave before all": (
        lambda p: replace(p, admissions=(replace(p.admissions[0], wave=-2),)),
        Rule.REFERENCE,
    ),
    "a wave that is no number": (
        lambda p: replace(p, admissions=(replace(p.admissions[0], wave=nan),)),  # type: ignore[arg-type]
        Rule.REFERENCE,
    ),
    "a reason to wait": (lambda p: replace(p, explanations={"g": waits()}), Rule.EXPLANATION),
    "forgotten": (lambda p: replace(p, admissions=()), Rule.EXPLANATION),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_place_is_found(name: str) -> None:
    snap, made = rack_gang()
    change, rule = MUTATIONS[name]
    assert rule in rules(snap, change(made))


def with_nodes(snap: Snapshot, **change: object) -> Snapshot:
    """Every node changed."""
    changed = (replace(s, node=replace(s.node, **change)) for s in snap.nodes)  # type: ignore[arg-type]
    return replace(snap, nodes=tuple(changed))


WORLDS: dict[str, tuple[Callable[[Snapshot], Snapshot], Rule]] = {
    "cordoned": (lambda s: with_nodes(s, unschedulable=True), Rule.NODE),
    "not ready": (lambda s: with_nodes(s, ready=False), Rule.NODE),
    "tainted": (lambda s: with_nodes(s, taints=(Taint(key="gpu"),)), Rule.NODE),
    "foreign pods": (
        lambda s: replace(s, nodes=tuple(replace(n, used={GPU: 1, "pods": 1}) for n in s.nodes)),
        Rule.CAPACITY,
    ),
    "no pods left": (
        lambda s: replace(s, nodes=tuple(replace(n, used={"pods": 20}) for n in s.nodes)),
        Rule.CAPACITY,
    ),
    "selector": (
        lambda s: altered(
            s,
            pod_sets=(pod_set(2, 8, terms=SchedulingTerms(node_selector={"disk": "ssd"})),),
        ),
        Rule.NODE,
    ),
    "avoid": (
        lambda s: replace(s, pending=(replace(s.pending[0], avoid=frozenset({"n1", "n2", "n3"})),)),
        Rule.NODE,
    ),
    "one per host": (lambda s: altered(s, pod_sets=(pod_set(3, 4, exclusive_host=True),)), Rule.GANG),
    "on hold": (lambda s: altered(s, hold=True), Rule.CLOSED),
    "no leaf": (lambda s: altered(s, queue="root"), Rule.CLOSED),
    "not entitled": (lambda s: altered(s, preemptible=False), Rule.NON_PREEMPTIBLE),
    "limit of the queue": (lambda s: queues(s, queue("root.a", row(limit=15))), Rule.QUOTA),
    "limit of root": (lambda s: queues(s, queue("root", row(limit=15)), queue("root.a")), Rule.QUOTA),
    "kept for another": (
        lambda s: queues(s, queue("root.a"), queue("root.b", row(guaranteed=16, lend=0))),
        Rule.QUOTA,
    ),
    "held queue": (lambda s: queues(s, queue("root.a", state=QueueState.HELD)), Rule.CLOSED),
    "draining parent": (
        lambda s: queues(s, queue("root", state=QueueState.DRAINING), queue("root.a")),
        Rule.CLOSED,
    ),
    "flavor not allowed": (
        lambda s: replace(
            queues(s, queue("root.a", row(flavor="x", guaranteed=8))),
            flavors=(Flavor(name="default"), Flavor(name="x")),
        ),
        Rule.FLAVOR,
    ),
    "level unknown": (lambda s: altered(s, required="zone"), Rule.LEVEL),
}


@pytest.mark.parametrize("name", WORLDS)
def test_plan_in_a_world_that_does_not_permit_it(name: str) -> None:
    snap, made = rack_gang()
    change, rule = WORLDS[name]
    world = change(snap)
    if name == "not entitled":
        world = queues(world, queue("root.a", row(guaranteed=8)))
    assert rule in rules(world, made)


def test_two_pods_of_an_exclusive_set_on_one_host() -> None:
    snap = snapshot(RACKS, [queue("root.a")], pending=[gang("g", pod_set(2, 4, exclusive_host=True))])
    assert rules(snap, plan(snap, {"g": (at({"n1": 1, "n2": 1}),)})) == set()
    assert Rule.EXCLUSIVE in rules(snap, plan(snap, {"g": (at({"n1": 2}),)}))


def test_min_count_bounds_the_size() -> None:
    snap = snapshot(RACKS, [queue("root.a")], pending=[gang("g", pod_set(3, 8, min_count=2))])
    assert rules(snap, plan(snap, {"g": (at({"n1": 1, "n2": 1}),)})) == set()
    assert rules(snap, plan(snap, {"g": (at({"n1": 1}),)})) == {Rule.GANG}


def test_strict_order_lets_nothing_pass() -> None:
    strict = queue("root.a", policy=Policy(order=Order.STRICT))
    jobs = [gang("head", pod_set(9, 8)), gang("small", pod_set(1, 1), submitted=1.0)]
    snap = snapshot(RACKS, [strict], pending=jobs)
    passing = plan(snap, {"small": (at({"n1": 1}),)})
    assert rules(snap, passing) == {Rule.STRICT}
    assert rules(queues(snap, queue("root.a")), passing) == set()


def test_overfull_foreign_node_is_no_fault_of_work_elsewhere() -> None:
    snap = snapshot(
        RACKS,
        [queue("root.a")],
        pending=[gang("g", pod_set(1, 8))],
        foreign={"n1": {GPU: 20}, "n2": {"other": 3}},
    )
    assert rules(snap, plan(snap, {"g": (at({"n2": 1}),)})) == set()


def test_level_of_one_pod_set_apart_from_the_others() -> None:
    sets = (pod_set(2, 8, name="worker", required="rack"), pod_set(1, 8, name="leader"))
    snap = snapshot(RACKS, [queue("root.a")], pending=[gang("g", *sets)])
    leader, workers = at({"n3": 1}, pod_set="leader"), at({"n1": 1, "n2": 1}, pod_set="worker")
    assert rules(snap, plan(snap, {"g": (leader, workers)})) == set()
    swapped = (at({"n1": 1}, pod_set="leader"), at({"n2": 1, "n3": 1}, pod_set="worker"))
    assert rules(snap, plan(snap, {"g": swapped})) == {Rule.LEVEL, Rule.PIN}


def test_resource_that_no_node_has() -> None:
    odd = PodSet(name="main", count=1, requests={"example.com/fpga": 1, "pods": 1})
    snap = snapshot(RACKS, [queue("root.a")], pending=[gang("g", odd)])
    assert Rule.CAPACITY in rules(snap, plan(snap, {"g": (at({"n1": 1}),)}))


def test_first_in_line_after_a_failure_is_the_head() -> None:
    strict = queue("root.a", policy=Policy(order=Order.STRICT))
    early = gang("early", pod_set(1, 1))
    head = Pending(workload=gang("head", pod_set(9, 8), submitted=5.0), first=True)
    snap = snapshot(RACKS, [strict], pending=[early, head])
    assert rules(snap, plan(snap, {"early": (at({"n1": 1}),)})) == {Rule.STRICT}


POOLS = [node(f"n{i}", labels={"pool": pool}) for i, pool in enumerate("xy")]
FLAVORS = tuple(Flavor(name=pool, node_labels={"pool": pool}) for pool in "xy")


def test_a_pin_does_not_replace_what_a_pod_asks_of_its_node() -> None:
    """The flavor's label, or that of the pin, would take the place of the job's own when it is patched."""
    asks_y = pod_set(1, 8, terms=SchedulingTerms(node_selector={"pool": "y"}))
    snap = snapshot(POOLS, [queue("root.a")], pending=[gang("g", asks_y)], flavors=FLAVORS)
    on_x, on_y = (at({f"n{i}": 1}, flavor=pool, selector={"pool": pool}) for i, pool in enumerate("xy"))
    assert rules(snap, plan(snap, {"g": (on_y,)})) == set()
    assert Rule.NODE in rules(snap, plan(snap, {"g": (on_x,)}))
    assert Rule.PIN in rules(snap, plan(snap, {"g": (replace(on_y, selector={"pool": "x"}),)}))


def test_a_flavor_s_labels_pin_only_where_they_are_in_the_pin() -> None:
    """Nothing else puts them on the pods."""
    snap = snapshot(POOLS, [queue("root.a")], pending=[gang("g", pod_set(1, 8))], flavors=FLAVORS)
    open_to_all = replace(at({"n0": 1}, flavor="x"), hosts=None)
    assert rules(snap, plan(snap, {"g": (replace(open_to_all, selector={"pool": "x"}),)})) == set()
    assert rules(snap, plan(snap, {"g": (open_to_all,)})) == {Rule.PIN}


def test_a_bond_whose_gang_asks_for_another_flavor_by_now_may_be_dropped() -> None:
    asks_y = pod_set(1, 8, terms=SchedulingTerms(node_selector={"pool": "y"}))
    victim = running(gang("v", pod_set(1, 8)), {"n0": 1}, flavor="x", releasing=True)
    bond = Bond(uid="g", assignments=(at({"n0": 1}, flavor="x"),), victims=("v",), deadline=9.0)
    snap = snapshot(
        POOLS,
        [queue("root.a")],
        admitted=[victim],
        pending=[gang("g", asks_y)],
        flavors=FLAVORS,
        bonds=(bond,),
    )
    made = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert [a.uid for a in made.admissions] == ["g"]
    assert made.stats.status is not SolveStatus.FAILED
