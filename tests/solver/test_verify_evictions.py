"""The verifier finds each eviction that is not permitted, and each place that is not held as it was promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.solver.decide import decide
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    Eviction,
    EvictionRule,
    Plan,
    Snapshot,
    SolveStatus,
    Unbound,
)
from queuer.solver.verify import Rule, verify
from tests.solver.make import gang, pod_set, queue, row, running, snapshot
from tests.solver.plans import GREEDY, NOW, RACKS, Mutation, altered, at, plan, queues, rules, waits


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


def test_who_is_bound_anew_to_the_same_place_is_judged_at_its_turn() -> None:
    """`v` has come back, so the bond of `g` ended; who comes after `g` takes nothing of its guarantee."""
    low = running(gang("low", pod_set(1, 4), queue="root.a"), {"n3": 1})
    victim = running(gang("v", pod_set(1, 8), queue="root.b"), {"n1": 1})
    bond = Bond(uid="g", assignments=(at({"n1": 1}),), victims=("v",), deadline=100.0)
    snap = snapshot(
        RACKS,
        [queue("root.a", row(guaranteed=12)), queue("root.b", row(guaranteed=0))],
        admitted=[low, victim],
        pending=[gang("g", pod_set(1, 8)), gang("later", pod_set(1, 4), submitted=1)],
        bonds=(bond,),
    )
    eviction = Eviction(uid="v", beneficiary="g", rule=EvictionRule.RECLAIM)
    made = plan(snap, {"later": (at({"n3": 1}),)}, bonds=(bond,), evictions=(eviction,))
    assert verify(snap, made, now=NOW) == ()
    hurried = replace(made, order=("later", "g"))
    assert rules(snap, hurried) == {Rule.VICTIM}


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
    "displaced whom it was displaced by": lambda s: displaced(s, low="v1"),
    "displaced it by a bond": lambda s: replace(
        s, bonds=(Bond(uid="v1", assignments=(), victims=("g",), deadline=50.0),)
    ),
}


def displaced(snap: Snapshot, **by: str) -> Snapshot:
    """The gang was displaced by `low`, and these who run by others."""
    return replace(
        snap,
        pending=(replace(snap.pending[0], displaced_by=frozenset({"low"})),),
        admitted=tuple(
            replace(a, displaced_by=frozenset({by[a.workload.uid]})) if a.workload.uid in by else a
            for a in snap.admitted
        ),
    )


def test_whoever_is_gone_ends_the_chain_of_those_to_spare() -> None:
    story = eviction_story()
    assert rules(displaced(story.snap, low="gone"), story.made) == set()


@pytest.mark.parametrize("name", BAD_VICTIMS)
def test_victim_that_may_not_be_one(name: str) -> None:
    story = eviction_story()
    found = rules(BAD_VICTIMS[name](story.snap), story.made)
    assert found == {Rule.VICTIM}


def test_what_leaves_makes_nobody_a_borrower() -> None:
    """b is above its 8 with v2 alone, which is going: once it has gone nothing more may be taken back."""
    story = eviction_story()
    going = tuple(replace(a, releasing=a.workload.uid == "v2") for a in story.snap.admitted)
    assert rules(replace(story.snap, admitted=going), story.made) == {Rule.VICTIM}


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


@pytest.mark.parametrize("rule", EvictionRule)
def test_who_holds_nothing_of_what_its_queue_borrows_is_no_victim(rule: EvictionRule) -> None:
    """Another of its queue uses 4 GPUs above the guarantee; it has none itself."""
    story = eviction_story()
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    snap = queues(story.snap, root, A, queue("root.b", row(guaranteed=4)))
    made = evicting(story.made, "v1", rule=rule)
    assert rules(snap, made) == set()
    assert rules(victim(snap, pod_sets=(pod_set(1, 0),)), made) == {Rule.VICTIM}


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


@pytest.mark.parametrize("pin", [("n2",), ("n1", "n2")])
def test_room_to_which_pods_have_still_to_come_is_not_held(pin: tuple[str, ...]) -> None:
    """Though the gang might find other room inside its pin: the place that it is promised is not there."""
    story = eviction_story()
    low, victim, other = story.snap.admitted
    coming = replace(other, bound={}, unbound=(Unbound(pod_set="main", count=1, hosts=pin),))
    snap = snapshot(RACKS, [A, B], admitted=[low, victim, coming], pending=story.snap.pending)
    place = Assignment(pod_set="main", flavor="default", nodes={"n2": 1}, hosts=("n1", "n2"))
    assert rules(snap, bonded(story.made, assignments=(place,))) == {Rule.CAPACITY}
    assert (rules(snap, story.made) == set()) is ("n1" not in pin)


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


@pytest.mark.parametrize(("deadline", "broken"), [(NOW + 1, set()), (NOW, {Rule.NON_PREEMPTIBLE})])
def test_a_bond_that_has_ended_permits_nothing(deadline: float, broken: set[Rule]) -> None:
    """Work that nobody may evict starts outside its guarantee only while what was held for it is."""
    fixed = gang("fixed", pod_set(1, 1), queue="root.b", preemptible=False)
    borrower = running(gang("borrower", pod_set(1, 3), queue="root.b"), {"n1": 1})
    slow = running(gang("slow", pod_set(1, 8)), {"n2": 1}, releasing=True)
    bond = Bond(uid="fixed", assignments=(at({"n2": 1}),), victims=("slow",), deadline=deadline)
    tree = [queue("root.a"), queue("root.b", row(guaranteed=1))]
    snap = snapshot(RACKS, tree, admitted=[borrower, slow], pending=[fixed], bonds=(bond,))
    assert rules(snap, plan(snap, {"fixed": (at({"n3": 1}),)}), now=NOW) == broken


@pytest.mark.parametrize(("asked", "starts"), [(1, True), (3, False)])
def test_a_bond_ends_with_what_it_was_given_for(asked: int, starts: bool) -> None:
    """A gang that asks for more or fewer pods than its bond holds takes its turn like any other."""
    snap = held_story()
    resized = tuple(
        replace(p, workload=replace(p.workload, pod_sets=(pod_set(asked, 8),)))
        if p.workload.uid == "g"
        else p
        for p in snap.pending
    )
    snap = replace(snap, pending=resized)
    made = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert verify(snap, made, now=NOW) == ()
    assert made.stats.status is not SolveStatus.FAILED
    assert ("g" in {a.uid for a in made.admissions}) == starts
    assert made.bonds == ()


def test_a_bond_ends_when_its_queue_allows_the_flavor_no_more() -> None:
    snap = queues(held_story(), queue("root.a", row(flavor="other")), queue("root.b"))
    assert rules(snap, plan(snap, {})) == set()
