"""`order: packed`: the largest sum of one priority instead of the order of time; higher priority still comes first."""

from __future__ import annotations

from queuer.domain.queue import Order, Policy
from queuer.solver.records import Pending, Plan
from tests.solver.make import decided, gang, node, pod_set, queue, row, snapshot, started


def plan_of(*sizes: int, order: Order = Order.PACKED, first: int = 0, limit: int | None = None) -> Plan:
    """One node of 8 GPUs and jobs of so many, in this order. `first`: priority of the first."""
    waiting = [
        gang(f"g{i}", pod_set(1, size), submitted=float(i), priority=0 if i else first)
        for i, size in enumerate(sizes)
    ]
    queues = [queue("root"), queue("root.a", row(limit=limit), policy=Policy(order=order))]
    return decided(snapshot([node("a")], queues, pending=waiting), solver=1.0)


def test_the_larger_sum_starts() -> None:
    """By time 5 of 8 GPUs would be used; 4 and 4 use all."""
    assert started(plan_of(5, 4, 4, order=Order.PRIORITY)) == {"g0"}
    assert started(plan_of(5, 4, 4)) == {"g1", "g2"}


def test_priority_comes_before_the_sum() -> None:
    """Only candidates of one priority are weighed against each other."""
    assert started(plan_of(5, 4, 4, first=10)) == {"g0"}


def test_limits_bind_the_selection() -> None:
    """8 would be the larger sum, but the queue may use 7."""
    assert started(plan_of(5, 4, 4, limit=7)) == {"g0"}


def test_what_all_fits_starts_in_order() -> None:
    """Nothing is contested."""
    assert started(plan_of(2, 3, 3)) == {"g0", "g1", "g2"}


def test_who_was_interrupted_goes_before_the_whole_subtree() -> None:
    """Else a higher priority behind it would come after lower ones of other leaves."""
    again = Pending(workload=gang("again", pod_set(1, 1)), first=True)
    high = gang("high", pod_set(1, 7), priority=5)
    other = gang("other", pod_set(1, 8), queue="root.b", priority=3)
    queues = [queue("root", policy=Policy(order=Order.PACKED)), queue("root.a"), queue("root.b")]
    snap = snapshot([node("a")], queues, pending=[again, high, other])
    assert started(decided(snap, solver=1.0)) == started(decided(snap)) == {"again", "high"}
