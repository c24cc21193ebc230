"""Whose reservation is named to a gang that must leave it whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms
from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.cycle import MOST_NAMED, Cycle
from queuer.solver.explain.explainer import Explainer
from queuer.solver.explain.sentences import MADE_ROOM
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal
from queuer.solver.problem import Pending, Snapshot
from queuer.solver.reserve import Reserver
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.reserved import FOUR, NOW, asks, busy, plan_of, two


@pytest.mark.parametrize(
    ("pods", "only", "named"),
    [
        (1, "n1", "b holds a reservation of 1 node that this job would break."),
        (1, "", "a holds a reservation of 1 node that this job would break."),
        (2, "", "a holds a reservation of 1 node that this job would break, as well as 1 other."),
    ],
)
def test_of_several_reservations_one_that_is_in_the_way_is_named(pods: int, only: str, named: str) -> None:
    """Without that of `a`, or of `b`, there is room for a pod."""
    snap = half_reserved(gang("g", pod_set(pods, 4, terms=_terms(only)), submitted=3.0))
    told = plan_of(snap).explanations["g"].primary
    assert (told.text, told.params["owner"]) == (f"test/{named}", named[0])


@pytest.mark.parametrize(
    ("many", "pods", "free", "named", "looks"),
    [
        (MOST_NAMED, 1, [3], ["o3"], 4),
        (MOST_NAMED, 4, [0, 1, 2, 3], ["o0", "o1", "o2", "o3"], 8),
        (16, 1, [11], ["o11"], 4),
        (16, 2, [4, 11], ["o11"], 4),
        (16, 16, range(16), ["o15"], 4),
    ],
)
def test_of_many_reservations_one_that_is_in_the_way_is_found_with_few_looks(
    many: int, pods: int, free: Sequence[int], named: list[str], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look for a place beside all the others is one on all nodes. Of some nodes a half is `free`, else nothing."""
    seen, fits, owners = list[tuple[str, ...]](), Cycle.fits_beside, [f"o{n}" for n in range(many)]
    runs = [busy(f"r{n}", f"n{n}", end=1500.0, gpus=4 if n in free else 8) for n in range(many)]
    held = [two(uid, f"n{n}", start=1500.0) for n, uid in enumerate(owners)]
    waits = asks("g", pods, 4, submitted=1.0)
    queues = [queue("root", policy=Policy(preempt=Preempt.NEVER, reservations=many)), queue("root.a")]
    snap = snapshot(
        [node(f"n{n}") for n in range(many)],
        queues,
        admitted=runs,
        pending=[*(asks(uid, 1, submitted=0.0) for uid in owners), waits],
        reservations=held,
    )

    def noted(cycle: Cycle, gang: Gang, variant: Variant, bars: tuple[str, ...]) -> bool:
        seen.append(bars)
        return fits(cycle, gang, variant, bars)

    monkeypatch.setattr(Cycle, "fits_beside", noted)
    greedy = Greedy(Board(Arrays.of(snap), now=NOW))
    gangs = greedy.board.arrays.offers.gangs
    Reserver(greedy).resume(gangs)
    assert greedy.in_the_way(gangs["g"], gangs["g"].shape.variants[0], owners) == tuple(named)
    assert len(seen) == looks


@pytest.mark.parametrize(("only", "owner"), [("n1", "b"), ("n3", None)])
def test_a_reservation_is_named_only_if_it_is_still_in_the_way(only: str, owner: str | None) -> None:
    """Whoever had the place at its turn has given it back; n3 is reserved by nobody."""
    snap = half_reserved(gang("g", pod_set(1, 4, terms=_terms(only)), submitted=3.0), on_n3=4)
    greedy = Greedy(Board(Arrays.of(snap), now=NOW))
    gangs = greedy.board.arrays.offers.gangs
    Reserver(greedy).resume(gangs)
    refusal = Refusal(block=Block.PLACE, variant=gangs["g"].shape.variants[0])
    told = Explainer(greedy.board, greedy).refused(gangs["g"], refusal).primary
    assert told.params.get("owner") == owner
    assert (told == MADE_ROOM) is (owner is None)


def half_reserved(*waits: Workload, on_n3: int = 8) -> Snapshot:
    """Half of n0 and of n1 is free; `a` gets all of n0 at 1500, `b` all of n1 at 2000."""
    nodes = [replace(n, labels={**n.labels, "only": n.name}) for n in FOUR]
    runs = [busy("x", "n0", end=1500.0, gpus=4), busy("y", "n1", end=2000.0, gpus=4)]
    runs += [busy("z", "n2"), busy("w", "n3", gpus=on_n3)]
    owners = asks("a", 1, submitted=1.0), asks("b", 1, submitted=2.0)
    held = two("a", "n0", start=1500.0), two("b", "n1", start=2000.0)
    queues = [queue("root", policy=Policy(preempt=Preempt.NEVER, reservations=2)), queue("root.a")]
    return snapshot(nodes, queues, admitted=runs, pending=[*owners, *waits], reservations=held)


def _terms(only: str) -> SchedulingTerms:
    return SchedulingTerms(node_selector={"only": only} if only else {})


def test_a_reservation_is_named_on_the_flavor_where_the_gang_is_not_entitled() -> None:
    """Inside its guarantee on `x`, which is full, it would outrank the reservation, which is on `y`."""
    nodes = [node(name, gpu=4, labels={"f": name[0]}) for name in ("x0", "y0", "y1")]
    flavors = tuple(Flavor(name=f, node_labels={"f": f}) for f in "xy")
    queues = [
        queue("root", policy=Policy(reservations=1)),
        queue("root.a", row(flavor="x", guaranteed=2), row(flavor="y")),
        queue("root.b", row(flavor="y"), row(flavor="x", limit=4)),
    ]
    runs = [
        running(gang("full", pod_set(1, 4), queue="root.b", preemptible=False), {"x0": 1}, flavor="x"),
        running(gang("ends", pod_set(1, 4), queue="root.b"), {"y0": 1}, flavor="y", expected_end=NOW + 99.0),
    ]
    large = gang("large", pod_set(2, 4), queue="root.b")
    snap = snapshot(nodes, queues, admitted=runs, pending=[large], flavors=flavors)
    held = plan_of(snap).reservations
    assert [one.uid for one in held] == ["large"]
    small = gang("small", pod_set(1, 2), submitted=1.0)
    pending = (*snap.pending, Pending(workload=small))
    told = plan_of(replace(snap, pending=pending, reservations=held)).explanations["small"].primary
    assert told.text == "test/large holds a reservation of 2 nodes that this job would break."


@pytest.mark.parametrize("least", [3, 4])
def test_a_reservation_is_in_the_way_of_whom_it_binds_at_the_smallest_size(least: int) -> None:
    """Inside its guarantee of 3 it outranks the reservation of `n0`, where alone there is room."""
    policy = Policy(preempt=Preempt.NEVER, reclaim=False)
    queues = [queue("root", policy=policy), queue("root.a", row(guaranteed=3)), queue("root.b")]
    runs = [
        running(
            gang(f"r{n}", pod_set(1, 8 if n else 4), queue="root.b"), {f"n{n}": 1}, expected_end=NOW + 99.0
        )
        for n in range(4)
    ]
    large = gang("large", pod_set(1, 8), queue="root.b")
    waits = gang("g", pod_set(4, 1, min_count=least, exclusive_host=True), submitted=1.0)
    held = (two("large", "n0", start=NOW + 99.0),)
    snap = snapshot(FOUR, queues, admitted=runs, pending=[large, waits], reservations=held)
    plan = plan_of(snap)
    assert [one.uid for one in plan.reservations] == ["large"]
    parts = plan.explanations["g"].detail
    assert any(cause["why"] == "Reserved" for cause in parts["excluded"]["by"]) is (least == 4)
    assert any("reservation" in one for one in parts["holders"]) is (least == 4)
