"""Whatever is edited between two cycles, what stands from the last one stops nobody: there is a plan, a sound one, and
it is not the one that starts nobody because none was found.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import Order, Policy
from queuer.solver import attempts
from queuer.solver.decide import decide
from queuer.solver.problem import Assignment, Bond, Budget, Pending, Plan, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import Rule, Violation, verify
from tests.solver.cases import seeded
from tests.solver.cycles import Life
from tests.solver.edits import edited
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot
from tests.solver.plans import GREEDY, NOW

EXACT = Budget(deterministic=2.0)


def planned(snap: Snapshot, *, now: float = NOW, budget: Budget = GREEDY) -> Plan:
    """The plan, a sound one that was not given up."""
    made = decide(snap, now=now, seed=0, budget=budget)
    assert made.stats.status is not SolveStatus.FAILED, made.stats.note
    assert "without what was held" not in made.stats.note
    assert [str(v) for v in verify(snap, made, now=now)] == []
    return made


@pytest.mark.parametrize("first", range(60, 160, 20))
def test_there_is_a_plan_after_any_edit(first: int) -> None:
    """Lives of small worlds with bonds and reservations, edited at every cycle; a part with the exact solver, too."""
    standing = 0
    for seed in range(first, first + 20):
        rng, life = Random(seed), Life(Random(seed), seeded(seed))
        for number in range(8):
            snap, now = life.snapshot(), life.now
            if snap.bonds or snap.reservations:
                made, names = edited(rng, snap, now=now)
                standing += 1
                try:
                    greedy = planned(made, now=now)
                    if seed % 4 == 0:
                        exact = planned(made, now=now, budget=EXACT)
                        assert score(made, exact, now=now) >= score(made, greedy, now=now)
                except AssertionError as error:
                    raise AssertionError(f"life {seed}, cycle {number}, {', '.join(names)}") from error
            life.cycle(GREEDY)
    assert standing >= 20


def bonded() -> Snapshot:
    """g, in rack r0, is bound to n0 and n1; its victim on n0 is leaving, one of another on n2 is on its way out, and
    late wants the free node n3.
    """
    racks = [node(f"n{i}", labels={"rack": f"r{i // 2}", "f": "x"}) for i in range(4)]
    rows = Assignment(
        pod_set="main",
        flavor="x",
        nodes={"n0": 1, "n1": 1},
        selector={"f": "x", "rack": "r0"},
        hosts=("n0", "n1"),
    )
    return snapshot(
        racks,
        [queue("root.a")],
        admitted=[
            running(gang("victim", pod_set(1, 8)), {"n0": 1}, flavor="x", releasing=True),
            running(gang("out", pod_set(1, 8)), {"n2": 1}, flavor="x", releasing=True),
        ],
        pending=[gang("g", pod_set(2, 8), required="rack"), gang("late", pod_set(1, 8), submitted=1.0)],
        flavors=(Flavor(name="x", node_labels={"f": "x"}),),
        topology=Topology(keys=("rack",)),
        bonds=(Bond(uid="g", assignments=(rows,), victims=("victim", "out"), deadline=NOW + 100),),
    )


def labelled(snap: Snapshot, name: str, **labels: str) -> Snapshot:
    """With other labels at one node."""
    return replace(
        snap,
        nodes=tuple(
            replace(s, node=replace(s.node, labels={**s.node.labels, **labels})) if s.node.name == name else s
            for s in snap.nodes
        ),
    )


def started(made: Plan) -> set[str]:
    return {a.uid for a in made.admissions}


def test_a_bond_stays_where_its_rack_has_another_name() -> None:
    """Its pin is worded anew; it holds what it held."""
    snap = labelled(labelled(bonded(), "n0", rack="new"), "n1", rack="new")
    made = planned(snap)
    assert started(made) == {"late"}
    [bond] = made.bonds
    [row] = bond.assignments
    assert (row.nodes, row.selector) == ({"n0": 1, "n1": 1}, {"f": "x", "rack": "new"})


def test_a_bond_stays_where_its_flavor_has_other_labels() -> None:
    snap = bonded()
    for i in range(4):
        snap = labelled(snap, f"n{i}", g="y")
    made = planned(replace(snap, flavors=(Flavor(name="x", node_labels={"g": "y"}),)))
    assert started(made) == {"late"}
    assert [b.assignments[0].selector for b in made.bonds] == [{"g": "y", "rack": "r0"}]


def test_a_bond_ends_where_its_place_is_in_two_racks() -> None:
    """Free or not: to start there would break the level that is asked."""
    empty = tuple(replace(s, used={}) for s in bonded().nodes)
    for snap in (bonded(), replace(bonded(), admitted=(), nodes=empty)):
        made = planned(labelled(snap, "n0", rack="r1"))
        assert "late" in started(made)
        assert made.bonds == ()


def test_a_bond_ends_with_the_level_that_its_gang_asks_for() -> None:
    made = planned(replace(bonded(), topology=Topology(keys=("zone",))))
    assert started(made) == {"late"}
    assert made.bonds == ()


def test_a_bond_ends_where_its_nodes_are_of_another_flavor() -> None:
    snap = bonded()
    made = planned(replace(snap, flavors=(Flavor(name="first", node_labels={"rack": "r0"}), *snap.flavors)))
    assert made.bonds == ()


def test_a_bond_ends_with_its_leaf() -> None:
    """A queue that got children takes no jobs."""
    snap = bonded()
    other = replace(snap.pending[1], workload=replace(snap.pending[1].workload, queue="root.a.new"))
    tree = type(snap.tree).of([*snap.tree, queue("root.a.new")])
    made = planned(replace(snap, tree=tree, pending=(snap.pending[0], other)))
    assert started(made) == {"late"}
    assert made.bonds == ()


def test_a_bond_stays_where_less_is_taken_than_our_pods_say_that_they_hold() -> None:
    """Whom to believe nobody knows; g waits for its victim, as what is free and what leaves is enough for it."""
    rows = Assignment(pod_set="main", flavor="default", nodes={"n0": 1}, hosts=("n0",))
    snap = snapshot(
        [node("n0"), node("n1")],
        [queue("root.a")],
        admitted=[
            running(gang("victim", pod_set(1, 4)), {"n0": 1}, releasing=True),
            running(gang("stays", pod_set(1, 6), preemptible=False), {"n0": 1}),
        ],
        pending=[gang("g", pod_set(1, 4))],
        bonds=(Bond(uid="g", assignments=(rows,), victims=("victim",), deadline=NOW + 100),),
        foreign={"n1": {GPU: 8, "pods": 1}},
    )
    less = replace(snap.nodes[0], used={GPU: 8, "pods": 2})
    assert [bond.uid for bond in planned(replace(snap, nodes=(less, *snap.nodes[1:]))).bonds] == ["g"]


def test_who_comes_before_a_bound_gang_in_a_strict_queue_stops_nobody() -> None:
    """What was held before the newcomer was there is not passed to anybody now."""
    snap = bonded()
    strict = [queue("root.a", policy=Policy(order=Order.STRICT)), queue("root.b")]
    head = Pending(workload=gang("head", pod_set(9, 8), priority=9))
    late = replace(snap.pending[1], workload=replace(snap.pending[1].workload, queue="root.b"))
    made = planned(replace(snap, tree=type(snap.tree).of(strict), pending=(snap.pending[0], late, head)))
    assert started(made) == {"late"}
    assert [b.uid for b in made.bonds] == ["g"]


def test_a_bond_that_the_verifier_refuses_ends_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the two judge differently, to give the bond up is tried before the plan is."""

    def refusing(snap: Snapshot, made: Plan, *, now: float) -> tuple[Violation, ...]:
        held = [b.uid for b in made.bonds]
        return tuple(Violation(rule=Rule.BOND, uid=uid, text="is refused") for uid in held)

    monkeypatch.setattr(attempts, "verify", refusing)
    made = decide(bonded(), now=NOW, seed=0, budget=GREEDY)
    assert made.stats.status is not SolveStatus.FAILED
    assert (started(made), made.bonds) == ({"late"}, ())
    assert made.stats.note == "without what was held: bond g: is refused"
