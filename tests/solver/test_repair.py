"""The repair: starts of this cycle move so that more gangs start; none is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import SolveStatus
from queuer.domain.nodes import Flavor, SchedulingTerms
from queuer.domain.queue import Policy, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.records import NodeState, Snapshot
from tests.solver.make import GPU, decided, gang, hosts, node, pod_set, queue, row, running, snapshot, started


def racks(*waiting: Workload) -> Snapshot:
    """Free: 4 and 4 in rack x, 8 in rack y, 4 in rack z. By turns the first takes a node of x, the second all of y."""
    free = {"n0": (4, "x"), "n1": (4, "x"), "n2": (8, "y"), "n3": (4, "z")}
    nodes = [node(name, labels={"block": "b", "rack": rack}) for name, (_, rack) in free.items()]
    foreign = {name: {GPU: 8 - gpus} for name, (gpus, _) in free.items()}
    queues = [queue("root"), queue("root.a"), queue("root.b", row(limit=7))]
    return snapshot(nodes, queues, pending=waiting, foreign=foreign)


ONE = gang("one", pod_set(1, 4), submitted=0.0)
TWO = gang("two", pod_set(2, 4), submitted=1.0, required="rack")
THREE = gang("three", pod_set(1, 8), submitted=2.0)


def test_starts_move_so_that_one_more_starts() -> None:
    """One to z, two to x, three to y: each alone could go elsewhere, together only so."""
    without = decided(racks(ONE, TWO, THREE))
    assert started(without) == {"one", "two"}
    plan = decided(racks(ONE, TWO, THREE), solver=1.0)
    assert started(plan) == {"one", "two", "three"}
    assert [hosts(plan, uid) for uid in ("one", "two", "three")] == [{"n3": 1}, {"n0": 1, "n1": 1}, {"n2": 1}]
    assert (plan.stats.contested, plan.stats.repaired) == (1, 1)
    assert plan.stats.status is SolveStatus.OPTIMAL


def test_nobody_who_starts_is_taken_away() -> None:
    """Four pods of 4 would need what the first two have."""
    more = gang("more", pod_set(4, 4), submitted=3.0)
    plan = decided(racks(ONE, TWO, more), solver=1.0)
    assert started(plan) == {"one", "two"}
    assert hosts(plan, "two") == hosts(decided(racks(ONE, TWO, more)), "two")


def test_limits_bind_the_repair() -> None:
    """There would be room for it, but its queue may use 7."""
    limited = gang("three", pod_set(1, 8), queue="root.b", submitted=2.0)
    assert started(decided(racks(ONE, TWO, limited), solver=1.0)) == {"one", "two"}


def test_nothing_contested_nothing_asked() -> None:
    """Most cycles: CP-SAT costs them nothing."""
    plan = decided(racks(ONE, TWO), solver=1.0)
    assert (plan.stats.status, plan.stats.solver_time) == (SolveStatus.GREEDY, 0.0)


def test_who_is_fitted_in_takes_nobodys_entitlement() -> None:
    """Three uses all that its queue is guaranteed. Work that was entitled at its turn, without three, starts or is
    bound all the same, and nothing is taken out of the plan.
    """
    waiting = [replace(w, queue=q) for w, q in ((ONE, "root.a"), (TWO, "root.a"), (THREE, "root.c.y"))]
    queues = [
        *(queue("root"), queue("root.a", row(guaranteed=12)), queue("root.b", row(guaranteed=0))),
        *(
            queue("root.c", row(guaranteed=8)),
            queue("root.c.y", row(guaranteed=8), policy=Policy(reclaim=False)),
        ),
        queue("root.c.x"),
    ]
    fixed = gang("fixed", pod_set(1, 2), queue="root.c.y", submitted=3.0, preemptible=False)
    base = racks(*waiting, fixed)
    small = NodeState(node=node("m", gpu=2, labels={"block": "b", "rack": "m"}), used={})
    plan = decided(replace(base, nodes=(*base.nodes, small), tree=QueueTree.of(queues)), solver=1.0)
    assert started(plan) == {"one", "two", "three", "fixed"}
    assert plan.order[-1] == "three"

    borrows = running(gang("borrows", pod_set(1, 8), queue="root.b"), {"m": 1})
    base = racks(*waiting, gang("claims", pod_set(1, 8), queue="root.c.x", submitted=3.0))
    full = NodeState(node=node("m", labels={"block": "b", "rack": "m"}), used={GPU: 8, "pods": 1})
    both = replace(base, nodes=(*base.nodes, full), tree=QueueTree.of(queues), admitted=(borrows,))
    plan = decided(both, solver=1.0)
    assert started(plan) == {"one", "two", "three"}
    assert [(e.uid, e.beneficiary) for e in plan.evictions] == [("borrows", "claims")]


def test_an_entitled_gang_is_fitted_in_before_a_borrower() -> None:
    """For all priorities, as in the turns."""
    first = [replace(w, priority=20) for w in (ONE, TWO)]
    mine = gang("mine", pod_set(1, 8), queue="root.c", submitted=5.0)
    borrows = gang("borrows", pod_set(1, 8), queue="root.d", submitted=5.0, priority=9)
    queues = [queue("root"), queue("root.a", row(guaranteed=12)), queue("root.c", row(guaranteed=8))]
    snap = replace(racks(*first, mine, borrows), tree=QueueTree.of([*queues, queue("root.d")]))
    assert started(decided(snap, solver=1.0)) == {"one", "two", "mine"}


FLAVORS = tuple(Flavor(name=name, node_labels={"gpu": name}) for name in ("old", "new"))
TIED = gang(
    "tied", pod_set(1, 8, terms=SchedulingTerms(node_selector={"gpu": "old"})), queue="root.b", submitted=1.0
)


def flavored(*waiting: Workload, limit: int | None = None, **more: Any) -> Snapshot:
    """A node of each flavor; `root.a` may use so much of the new one."""
    nodes = [node(name, labels={"gpu": name}) for name in ("old", "new")]
    queues = [
        queue("root"),
        queue("root.a", row(flavor="old"), row(flavor="new", limit=limit)),
        queue("root.b"),
    ]
    return snapshot(nodes, queues, pending=waiting, flavors=FLAVORS, **more)


@pytest.mark.parametrize(
    ("limit", "starts"), [(None, {"free", "tied"}), (8, {"free", "tied"}), (7, {"free"})]
)
def test_a_start_moves_to_another_flavor_for_one_that_has_no_other(
    limit: int | None, starts: set[str]
) -> None:
    """Within the limits of its queue there; the flavor that is used up is place, and no matter of quota."""
    plan = decided(flavored(gang("free", pod_set(1, 8)), TIED, limit=limit), solver=1.0)
    assert started(plan) == starts
    assert hosts(plan, "free") == ({"new": 1} if "tied" in starts else {"old": 1})


def test_a_start_keeps_its_flavor_beside_work_that_must_be_inside_its_guarantee() -> None:
    """That of the queue in the new flavor is for `fixed`, which has its turn later."""
    new = SchedulingTerms(node_selector={"gpu": "new"})
    fixed = gang("fixed", pod_set(1, 1, terms=new), submitted=1.0, preemptible=False)
    snap = flavored(gang("free", pod_set(1, 7)), fixed, replace(TIED, submitted=2.0))
    rows = (row(flavor="old"), row(flavor="new", guaranteed=1))
    for path, starts in (("root.a", {"free", "fixed"}), ("root.c", {"free", "fixed", "tied"})):
        free = replace(snap.pending[0], workload=replace(snap.pending[0].workload, queue=path))
        queues = [queue("root"), queue("root.a", *rows), queue("root.b"), queue("root.c", *rows)]
        both = replace(snap, pending=(free, *snap.pending[1:]), tree=QueueTree.of(queues))
        assert started(decided(both, solver=1.0)) == starts


def test_who_asks_for_more_than_is_free_is_not_asked_about() -> None:
    """Wherever the start goes: it has both flavors but 4 GPUs."""
    foreign = {"new": {GPU: 4}}
    plan = decided(flavored(gang("free", pod_set(1, 8)), TIED, foreign=foreign), solver=1.0)
    assert (started(plan), plan.stats.contested) == ({"free"}, 0)


def test_gangs_on_one_host_are_fitted_in_with_all_their_pod_sets() -> None:
    """The first pods leave the large node, on which leader and workers find room together."""
    sets = (pod_set(1, 1, name="leader"), pod_set(2, 3, name="worker"))
    nodes = [node("large"), *(node(f"s{i}", gpu=4) for i in range(2))]
    snap = snapshot(
        nodes,
        [queue("root"), queue("root.a")],
        pending=[gang("loose", pod_set(2, 4)), gang("tight", *sets, required="host", submitted=1.0)],
    )
    assert started(decided(snap)) == {"loose"}
    plan = decided(snap, solver=1.0)
    assert hosts(plan, "loose") == {"s0": 1, "s1": 1}
    assert hosts(plan, "tight") == {"large": 3}


def test_a_start_keeps_the_flavor_on_which_it_is_entitled() -> None:
    """Moved to where it borrows, it would be evicted as soon as the owner there comes."""
    flavors = tuple(Flavor(name=name, node_labels={"gpu": name}) for name in ("old", "new"))
    nodes = [node(name, labels={"gpu": name}) for name in ("old", "new")]
    queues = [
        queue("root"),
        queue("root.a", row(flavor="old", guaranteed=8), row(flavor="new")),
        queue("root.b"),
        queue("root.c", row(flavor="new", guaranteed=8)),
    ]
    only_old = pod_set(1, 8, terms=SchedulingTerms(node_selector={"gpu": "old"}))
    waiting = [
        gang("mine", pod_set(1, 8), submitted=0.0),
        gang("tied", only_old, queue="root.b", submitted=1.0),
    ]
    plan = decided(snapshot(nodes, queues, pending=waiting, flavors=flavors), solver=1.0)
    assert hosts(plan, "mine") == {"old": 1}
    assert started(plan) == {"mine"}
