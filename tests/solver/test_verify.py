"""The verifier finds each broken rule: sound plans are broken once each, and it must say which rule.

The plans come from the greedy decision, so they are realistic; whether those are sound is asserted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms, Taint
from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueState
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    Budget,
    CycleStats,
    Eviction,
    EvictionRule,
    Pending,
    Plan,
    Reservation,
    Snapshot,
    SolveStatus,
    Unbound,
)
from queuer.solver.verify import Rule, verify
from queuer.solver.verify_landing import Group, certain_slots
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot

NOW = 0.0
GREEDY = Budget(deterministic=0.0)
RACKS = [
    node("n1", labels={"rack": "r1", "block": "b1"}),
    node("n2", labels={"rack": "r1", "block": "b1"}),
    node("n3", labels={"rack": "r2", "block": "b1"}),
]
STATS = CycleStats(status=SolveStatus.GREEDY)


def waits(token: Token = Token.WAITING_FOR_QUOTA) -> Explanation:
    return Explanation(primary=Reason(token=token, text="It waits."))


def at(nodes: dict[str, int], *, pod_set: str = "main", flavor: str = "default") -> Assignment:
    return Assignment(pod_set=pod_set, flavor=flavor, nodes=nodes, hosts=tuple(sorted(nodes)))


def plan(
    snap: Snapshot,
    starts: Mapping[str, tuple[Assignment, ...]],
    *,
    bonds: tuple[Bond, ...] = (),
    evictions: tuple[Eviction, ...] = (),
    waves: dict[str, int] | None = None,
    reservations: tuple[Reservation, ...] = (),
) -> Plan:
    """A plan with a reason for everyone who waits."""
    uids = [p.workload.uid for p in snap.pending]
    bound = {b.uid for b in bonds}
    return Plan(
        admissions=tuple(
            Admission(uid=u, assignments=rows, wave=(waves or {}).get(u, 0)) for u, rows in starts.items()
        ),
        evictions=evictions,
        bonds=bonds,
        reservations=reservations,
        explanations={
            u: waits(Token.WAITING_FOR_PREEMPTED_WORKLOADS if u in bound else Token.WAITING_FOR_QUOTA)
            for u in uids
            if u not in starts
        },
        order=tuple(uids),
        stats=STATS,
    )


def rules(snap: Snapshot, made: Plan, *, now: float = NOW) -> set[Rule]:
    return {violation.rule for violation in verify(snap, made, now=now)}


# One gang on nodes


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


Mutation = Callable[[Plan], Plan]
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
    "a reason to wait": (lambda p: replace(p, explanations={"g": waits()}), Rule.EXPLANATION),
    "forgotten": (lambda p: replace(p, admissions=()), Rule.EXPLANATION),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_place_is_found(name: str) -> None:
    snap, made = rack_gang()
    change, rule = MUTATIONS[name]
    assert rule in rules(snap, change(made))


def altered(snap: Snapshot, **change: object) -> Snapshot:
    """The snapshot with its only waiting gang changed."""
    only = snap.pending[0]
    return replace(snap, pending=(replace(only, workload=replace(only.workload, **change)),))  # type: ignore[arg-type]


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


def queues(snap: Snapshot, *new: Queue) -> Snapshot:
    return replace(snap, tree=type(snap.tree).of(new))


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


# Eviction


@dataclass(frozen=True)
class Story:
    """A full cluster: b borrows 16 beyond its 8, a asks 8 of its 16; a's own low work is on n3."""

    snap: Snapshot
    made: Plan


def eviction_story() -> Story:
    low = running(gang("low", pod_set(1, 8), queue="root.a"), {"n3": 1})
    victims = [running(gang(f"v{i}", pod_set(1, 8), queue="root.b"), {f"n{i}": 1}) for i in (1, 2)]
    snap = snapshot(
        RACKS,
        [queue("root.a", row(guaranteed=16)), queue("root.b", row(guaranteed=8))],
        admitted=[low, *victims],
        pending=[gang("g", pod_set(1, 8), queue="root.a", priority=5)],
    )
    bond = Bond(uid="g", assignments=(at({"n1": 1}),), victims=("v1",), deadline=100.0)
    eviction = Eviction(uid="v1", beneficiary="g", rule=EvictionRule.RECLAIM)
    return Story(snap, plan(snap, {}, bonds=(bond,), evictions=(eviction,)))


def test_reclaim_from_a_borrower_is_sound() -> None:
    story = eviction_story()
    assert verify(story.snap, story.made, now=NOW) == ()
    greedy = decide(story.snap, now=NOW, seed=0, budget=GREEDY)
    assert len(greedy.evictions) == 1
    assert verify(story.snap, greedy, now=NOW) == ()


def bonded(made: Plan, **change: object) -> Plan:
    return replace(made, bonds=(replace(made.bonds[0], **change),))  # type: ignore[arg-type]


def evicting(made: Plan, *uids: str, rule: EvictionRule = EvictionRule.RECLAIM) -> Plan:
    gone = tuple(Eviction(uid=u, beneficiary="g", rule=rule) for u in uids)
    return replace(bonded(made, victims=uids), evictions=gone)


BAD_EVICTIONS: dict[str, tuple[Mutation, Rule]] = {
    "without a bond": (lambda p: replace(p, bonds=()), Rule.BOND),
    "victim left out of the bond": (lambda p: bonded(p, victims=()), Rule.BOND),
    "victim not evicted": (lambda p: replace(p, evictions=()), Rule.BOND),
    "deadline passed": (lambda p: bonded(p, deadline=-1.0), Rule.BOND),
    "place not freed": (lambda p: bonded(p, assignments=(at({"n3": 1}),)), Rule.CAPACITY),
    "below its guarantee": (lambda p: evicting(p, "v1", "v2"), Rule.VICTIM),
    "wrong rule": (lambda p: evicting(p, "v1", rule=EvictionRule.PREEMPT), Rule.VICTIM),
    "reclaim at home": (lambda p: evicting(p, "low"), Rule.VICTIM),
    "starts over its victim": (
        lambda p: replace(
            p,
            admissions=(Admission(uid="g", assignments=(at({"n1": 1}),)),),
            explanations={},
        ),
        Rule.CAPACITY,
    ),
    "wrong reason": (lambda p: replace(p, explanations={"g": waits()}), Rule.EXPLANATION),
}


@pytest.mark.parametrize("name", BAD_EVICTIONS)
def test_broken_eviction_is_found(name: str) -> None:
    story = eviction_story()
    change, rule = BAD_EVICTIONS[name]
    assert rule in rules(story.snap, change(story.made))


def victim(snap: Snapshot, **change: object) -> Snapshot:
    """The victim v1 changed, in its workload or its admission."""
    rows = []
    for a in snap.admitted:
        if a.workload.uid == "v1":
            own = {k: v for k, v in change.items() if hasattr(a, k)}
            rest = {k: v for k, v in change.items() if k not in own}
            a = replace(a, workload=replace(a.workload, **rest), **own)  # type: ignore[arg-type]
        rows.append(a)
    return replace(snap, admitted=tuple(rows))


A, B = queue("root.a", row(guaranteed=16)), queue("root.b", row(guaranteed=8))
BAD_VICTIMS: dict[str, Callable[[Snapshot], Snapshot]] = {
    "not preemptible": lambda s: victim(s, preemptible=False),
    "leaving already": lambda s: victim(s, releasing=True),
    "too young": lambda s: queues(s, A, replace(B, policy=Policy(min_runtime=2000.0))),
    "reclaim is off": lambda s: queues(s, replace(A, policy=Policy(reclaim=False)), B),
    "gang not entitled": lambda s: queues(s, queue("root.a", row(guaranteed=15)), B),
    "no borrower": lambda s: queues(s, A, queue("root.b", row(guaranteed=16))),
    "displaced it": lambda s: replace(s, pending=(replace(s.pending[0], displaced_by=frozenset({"v1"})),)),
    "displaced it by a bond": lambda s: replace(
        s, bonds=(Bond(uid="v1", assignments=(), victims=("g",), deadline=50.0),)
    ),
}


@pytest.mark.parametrize("name", BAD_VICTIMS)
def test_victim_that_may_not_be_one(name: str) -> None:
    story = eviction_story()
    found = rules(BAD_VICTIMS[name](story.snap), story.made)
    assert found == {Rule.VICTIM}


def test_preempt_within_the_queue_needs_lower_priority() -> None:
    story = eviction_story()
    made = bonded(evicting(story.made, "low", rule=EvictionRule.PREEMPT), assignments=(at({"n3": 1}),))
    assert rules(story.snap, made) == set()
    assert rules(altered(story.snap, priority=0), made) == {Rule.VICTIM}
    never = replace(A, policy=Policy(preempt=Preempt.NEVER))
    assert rules(queues(story.snap, never, B), made) == {Rule.VICTIM}


def test_preempt_across_queues_only_where_an_ancestor_says_so() -> None:
    story = eviction_story()
    made = evicting(story.made, "v1", rule=EvictionRule.PREEMPT)
    assert rules(story.snap, made) == {Rule.VICTIM}
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    assert rules(queues(story.snap, root, A, B), made) == set()
    entitled = queue("root.b", row(guaranteed=16))
    assert rules(queues(story.snap, root, queue("root.a", row(guaranteed=8)), entitled), made) == {
        Rule.VICTIM
    }


def test_quota_is_checked_with_the_victims_gone() -> None:
    story = eviction_story()
    capped = queue("root.a", row(guaranteed=16, limit=16))
    assert rules(queues(story.snap, capped, B), story.made) == set()
    short = queue("root.a", row(guaranteed=8, limit=15))
    assert Rule.QUOTA in rules(queues(story.snap, short, B), story.made)


# What is held


def held_story() -> Snapshot:
    """g is bound to n1 and n2; v on n1 is leaving, n2 is free; late wants one node."""
    victim = running(gang("v", pod_set(1, 8), queue="root.b"), {"n1": 1}, releasing=True)
    bond = Bond(uid="g", assignments=(at({"n1": 1, "n2": 1}),), victims=("v",), deadline=100.0)
    return snapshot(
        RACKS,
        [queue("root.a"), queue("root.b")],
        admitted=[victim],
        pending=[gang("g", pod_set(2, 8)), gang("late", pod_set(1, 8), submitted=1.0)],
        bonds=(bond,),
    )


def test_place_of_a_bond_is_kept() -> None:
    snap = held_story()
    assert rules(snap, plan(snap, {"late": (at({"n3": 1}),)}, bonds=snap.bonds)) == set()
    assert Rule.CAPACITY in rules(snap, plan(snap, {"late": (at({"n2": 1}),)}, bonds=snap.bonds))


def test_wide_pin_may_not_reach_into_a_held_place() -> None:
    snap = held_story()
    wide = Assignment(pod_set="main", flavor="default", nodes={"n3": 1}, hosts=("n2", "n3"))
    assert rules(snap, plan(snap, {"late": (wide,)}, bonds=snap.bonds)) == {Rule.LANDING}


def test_quota_of_a_bond_is_kept() -> None:
    snap = queues(held_story(), queue("root", row(limit=23)), queue("root.a"), queue("root.b"))
    assert Rule.QUOTA in rules(snap, plan(snap, {"late": (at({"n3": 1}),)}, bonds=snap.bonds))


def test_bond_is_not_dropped_while_it_stands() -> None:
    snap = held_story()
    assert rules(snap, plan(snap, {})) == {Rule.BOND}
    assert rules(snap, plan(snap, {}), now=100.0) == set()
    lost = replace(
        snap,
        nodes=tuple(
            replace(s, node=replace(s.node, ready=False)) if s.node.name == "n2" else s for s in snap.nodes
        ),
    )
    assert rules(lost, plan(lost, {})) == set()


def test_bond_starts_as_it_was_proven() -> None:
    snap = held_story()
    free = replace(snap, admitted=(), nodes=tuple(replace(s, used={}) for s in snap.nodes))
    assert rules(free, plan(free, {"g": (at({"n1": 1, "n2": 1}),)})) == set()
    shrunk = replace(
        free,
        pending=tuple(
            replace(p, workload=replace(p.workload, pod_sets=(pod_set(2, 8, min_count=1),)))
            for p in free.pending
        ),
    )
    assert rules(shrunk, plan(shrunk, {"g": (at({"n1": 1}),)})) == {Rule.BOND}


def test_reservation_is_left_whole_by_what_outlives_it() -> None:
    busy = running(gang("busy", pod_set(1, 8), queue="root.b"), {"n1": 1}, expected_end=50.0)
    held = Reservation(uid="big", assignments=(at({"n1": 1, "n2": 1}),), start=50.0, expires=500.0)

    def world(estimate: float | None = None) -> Snapshot:
        jobs = [gang("big", pod_set(2, 8)), gang("fill", pod_set(1, 1), submitted=1.0, estimate=estimate)]
        return snapshot(
            RACKS, [queue("root.a"), queue("root.b")], admitted=[busy], pending=jobs, reservations=(held,)
        )

    def broken(snap: Snapshot, name: str) -> set[Rule]:
        return rules(snap, plan(snap, {"fill": (at({name: 1}),)}, reservations=(held,)))

    assert broken(world(), "n2") == {Rule.RESERVATION}
    assert broken(world(), "n3") == set()
    assert broken(world(estimate=50.0), "n2") == set()
    assert broken(world(estimate=51.0), "n2") == {Rule.RESERVATION}


# Landing


def test_gangs_on_shared_hosts_need_a_later_wave() -> None:
    """Free 5 and 4: a pod of 1 may land where the two pods of 4 need both hosts."""
    nodes = [node("n1", gpu=5), node("n2", gpu=4)]
    jobs = [gang("big", pod_set(2, 4)), gang("tiny", pod_set(1, 1), submitted=1.0)]
    snap = snapshot(nodes, [queue("root.a")], pending=jobs)
    both = ("n1", "n2")
    big = Assignment(pod_set="main", flavor="default", nodes={"n1": 1, "n2": 1}, hosts=both)
    tiny = Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=both)
    starts = {"big": (big,), "tiny": (tiny,)}
    assert rules(snap, plan(snap, starts)) == {Rule.LANDING}
    assert rules(snap, plan(snap, starts, waves={"tiny": 1})) == set()
    assert rules(snap, plan(snap, starts, waves={"big": 1})) == {Rule.LANDING}
    assert rules(snap, plan(snap, {"big": (big,), "tiny": (replace(tiny, hosts=("n1",)),)})) == set()


def test_pods_still_landing_are_not_robbed() -> None:
    nodes = [node("n1", gpu=8), node("n2", gpu=8)]
    loose = Unbound(pod_set="main", count=1, hosts=("n1", "n2"))
    landing = replace(running(gang("l", pod_set(1, 8)), {"n1": 1}), bound={}, unbound=(loose,))
    snap = snapshot(nodes, [queue("root.a")], admitted=[landing], pending=[gang("g", pod_set(1, 8))])
    assert rules(snap, plan(snap, {"g": (at({"n1": 1}),)})) == {Rule.LANDING}
    pinned = replace(landing, unbound=(replace(loose, hosts=("n2",)),))
    snap = replace(snap, admitted=(pinned,))
    assert rules(snap, plan(snap, {"g": (at({"n1": 1}),)})) == set()


def group(uid: str, count: int, gpu: int, hosts: str, **more: bool) -> Group:
    return Group(
        uid=uid, pod_set="main", count=count, requests={GPU: gpu}, hosts=frozenset(hosts.split()), **more
    )


@pytest.mark.parametrize(
    ("own", "rivals", "free", "left"),
    [
        (group("g", 2, 8, "a b c"), [], [8, 8, 7], 2),
        (group("g", 9, 1, "a b c"), [], [8, 8, 7], 23),
        (group("g", 2, 4, "a b"), [group("r", 1, 1, "a b")], [5, 4], 1),
        (group("g", 1, 4, "a b"), [group("r", 2, 4, "a b")], [8, 4], 1),
        (group("g", 3, 4, "a b c"), [group("r", 1, 8, "a b c")], [8, 8, 8], 4),
        (group("g", 3, 8, "a b c"), [group("r", 2, 1, "a")], [10, 8, 8], 3),
        (group("g", 3, 8, "a b c"), [group("r", 2, 1, "a"), group("s", 1, 1, "a b")], [10, 8, 8], 2),
        (group("g", 2, 2, "a b c", exclusive=True), [group("r", 1, 8, "a b c")], [8, 8, 8], 2),
    ],
)
def test_worst_choice_of_rivals(own: Group, rivals: list[Group], free: list[int], left: int) -> None:
    by_host = {name: {GPU: n} for name, n in zip("abc", free, strict=False)}
    got = certain_slots(own, rivals, by_host)
    assert min(got, own.count) == min(left, own.count)


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
