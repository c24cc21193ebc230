"""A simulated start is one that the decision makes, and the slots of the map are those that it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import Policy
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.clustermap import ANYWHERE, ClusterMap
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Pending, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.solver.whatif import UID, simulate
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.worlds import NOW, world

GREEDY = Budget(deterministic=0.0)
RACKS = [node(f"n{i}", gpu=4, labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]


def stored(snap: Snapshot, *, now: float = 0.0) -> StoredCycle:
    """A cycle that was decided."""
    plan = decide(snap, now=now, seed=0, budget=GREEDY)
    return StoredCycle(snapshot=snap, now=now, seed=0, budget=GREEDY, plan=plan)


def asks(count: int, gpus: int = 1, path: str = "root.a", **more: object) -> Workload:
    """The gang that is asked about."""
    return gang(UID, pod_set(count, gpus), queue=path, **more)  # type: ignore[arg-type]


def test_it_starts_where_there_is_room_after_what_the_cycle_started() -> None:
    first = gang("g", pod_set(2, 4), queue="root.a", required="rack")
    there = AfterCycle.of(stored(snapshot(RACKS, [queue("root.a")], pending=[first])))
    found = simulate(there, asks(2, 4, required="rack"))
    assert (sum(found.places[0].nodes.values()), found.leaving, found.explanation) == (2, (), None)
    told = simulate(there, asks(3, 4)).explanation
    assert told is not None
    assert "uses 8 of 16" in told.primary.text
    assert [change.text for change in told.would_admit]


def test_whom_it_would_evict_is_told_by_queue_and_amount() -> None:
    queues = [queue("root.a", row(guaranteed=8), policy=Policy(reclaim=True)), queue("root.b")]
    work = [running(gang(f"w{i}", pod_set(1, 4), queue="root.b"), {f"n{i}": 1}) for i in range(4)]
    there = AfterCycle.of(stored(snapshot(RACKS, queues, admitted=work)))
    found = simulate(there, asks(2, 4))
    assert [(gone.queue, gone.gangs, gone.amounts[GPU]) for gone in found.leaving] == [("root.b", 2, 8)]
    assert sum(found.places[0].nodes.values()) == 2


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_decision_that_gets_the_same_job(seed: int) -> None:
    """Submitted on the frozen cluster it starts, or is bound, exactly if that was said."""
    cycle = stored(world(seed), now=NOW)
    assert cycle.plan is not None
    left = AfterCycle.of(cycle).snapshot
    for pending in cycle.snapshot.pending[:4]:
        asked = replace(pending.workload, uid=UID, submitted=NOW)
        said = simulate(AfterCycle.of(cycle), asked)
        really = replace(left, pending=(*left.pending, Pending(workload=asked)))
        plan = decide(really, now=NOW, seed=0, budget=GREEDY)
        started = {a.uid for a in plan.admissions} | {b.uid for b in plan.bonds}
        assert bool(said.places) == (UID in started)


@pytest.mark.parametrize("seed", range(40))
def test_slots_agree_with_simulations(seed: int) -> None:
    """Where quota does not bind: a gang starts in one domain of a level exactly if the table has a gang of it there."""
    drawn = world(seed)
    bare = replace(drawn, tree=snapshot([], [queue("root.free")]).tree, admitted=(), pending=(), flavors=())
    cycle = stored(bare, now=NOW)
    after = AfterCycle.of(cycle)
    there = ClusterMap(after)
    for count in (1, 2, 3, 5):
        shape = PodSet(name="main", count=count, requests={"cpu": 2000, "pods": 1})
        for found in there.slots(shape, "default"):
            level = None if found.level == ANYWHERE else found.level
            asked = replace(asks(1, path="root.free"), pod_sets=(shape,), required=level)
            said = simulate(after, asked)
            assert bool(said.places) == (found.gangs > 0), (found, said.explanation)


def test_the_map_adds_up_and_counts_what_can_be_used() -> None:
    """Used is what queues pay for, as on every other screen; the pod of nobody's queue is outside."""
    out = node("n4", gpu=4, labels={"block": "b", "rack": "r2"}, unschedulable=True)
    work = [running(gang("w", pod_set(1, 3), queue="root.a"), {"n0": 1})]
    seen = snapshot([*RACKS, out], [queue("root.a")], admitted=work, foreign={"n1": {GPU: 1}})
    rows = ClusterMap(AfterCycle.of(stored(seen))).domains("rack", GPU)
    assert [(row.path[-1], row.used, row.outside, row.free, row.whole_nodes, row.cordoned) for row in rows] == [
        ("r1", 0, 0, 8, 2, 0), ("r0", 3, 1, 4, 0, 0), ("r2", 0, 0, 0, 0, 1),
    ]  # fmt: skip
    assert sum(row.allocatable for row in rows) == 20


def test_reserved_hosts_are_reserved_and_not_used() -> None:
    """The rack of a reservation has what pods use there and what is held; the sums of each rack are its allocatable."""
    work = [
        running(gang("long", pod_set(1, 4), queue="root.a"), {"n0": 1}, expected_end=600.0),
        *(running(gang(f"stays{n}", pod_set(1, 3), queue="root.a"), {f"n{n}": 1}) for n in (2, 3)),
    ]
    waits = gang("waits", pod_set(2, 4), queue="root.b", required="rack")
    queues = [queue("root.a"), queue("root.b")]
    there = ClusterMap(AfterCycle.of(stored(snapshot(RACKS, queues, admitted=work, pending=[waits]))))
    r0, r1 = sorted(there.domains("rack", GPU), key=lambda row: row.path)
    assert (r0.used, r0.reserved, r0.free) == (4, 4, 0)
    assert (r1.used, r1.reserved, r1.free, r1.held_for) == (6, 0, 2, ())
    assert [(held.name, held.queue, held.start, held.amount) for held in r0.held_for] == [
        ("waits", "root.b", 600.0, 8)
    ]
    hosts = {row.path[-1]: row for row in there.domains("host", GPU)}
    assert [(hosts[n].used, hosts[n].reserved) for n in ("n0", "n1")] == [(4, 0), (0, 4)]
    assert [held.amount for held in hosts["n1"].held_for] == [4]


def test_room_that_is_held_while_victims_leave_is_reserved_once_they_have_left() -> None:
    queues = [queue("root.a", row(guaranteed=8), policy=Policy(reclaim=True)), queue("root.b")]
    work = [running(gang(f"w{i}", pod_set(1, 4), queue="root.b"), {f"n{i}": 1}) for i in range(3)]
    owner = gang("owner", pod_set(2, 4), queue="root.a")
    there = ClusterMap(AfterCycle.of(stored(snapshot(RACKS, queues, admitted=work, pending=[owner]))))
    hosts = [row for row in there.domains("host", GPU) if row.held_for]
    assert sorted((row.used, row.reserved) for row in hosts) == [(0, 4), (4, 0)]
    assert {held.start for row in hosts for held in row.held_for} == {None}
