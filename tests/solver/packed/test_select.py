"""The selection of a packed subtree, against trying every set of gangs: it holds, and is nearly always the
best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, permutations
from random import Random

from queuer.domain.nodes import Node
from queuer.domain.queue import Order, Policy
from queuer.domain.workload import Workload
from queuer.solver.cpsat import CpSat
from queuer.solver.packed import Selection, select
from queuer.solver.repair.decode import can_start
from queuer.solver.state import State
from tests.solver.make import GPU, decided, gang, node, pod_set, queue, row, snapshot, started, state_of
from tests.solver.repair.arrangements import arranged, cluster, gangs

PACKED = Policy(order=Order.PACKED)
QUEUES = [queue("root", policy=PACKED), queue("root.a")]


def selected(state: State, *, budget: float = 1.0) -> Selection:
    """Of all that waits."""
    waiting = sorted(state.arrays.waiting.gangs.values(), key=lambda g: g.place_in_line())
    return select(state, waiting, solver=CpSat(budget, seed=3))


def largest(
    nodes: Sequence[Node], foreign: Mapping[str, Mapping[str, int]], waiting: Sequence[Workload]
) -> int:
    """The most GPUs that can start together."""
    sets = chain.from_iterable(combinations(waiting, n) for n in range(len(waiting) + 1))
    by_sum = sorted(sets, key=gpus, reverse=True)
    return next(gpus(some) for some in by_sum if arranged(nodes, foreign, some))


def gpus(some: Sequence[Workload]) -> int:
    """Of all pods."""
    return sum(pods.count * pods.requests[GPU] for one in some for pods in one.pod_sets)


def test_the_largest_sum_starts_next_to_always() -> None:
    """Never less than by time, nowhere more than there is, the most in nearly every world."""
    best = 0
    for seed in range(60):
        rng = Random(seed)
        nodes, foreign = cluster(rng)
        waiting = gangs(rng, 6)
        snap = snapshot(nodes, QUEUES, pending=waiting, foreign=foreign)
        by_time, plan = started(decided(snap)), started(decided(snap, solver=1.0))
        most, sum_ = largest(nodes, foreign, waiting), gpus([g for g in waiting if g.uid in plan])
        assert gpus([g for g in waiting if g.uid in by_time]) <= sum_ <= most
        best += sum_ == most
    assert best >= 57


FIVE, FOURS = (
    gang("five", pod_set(1, 5), submitted=0.0),
    [gang(f"four{i}", pod_set(1, 4), submitted=1.0 + i) for i in range(2)],
)


def test_the_same_question_has_the_same_answer_and_changes_nothing() -> None:
    state = state_of(snapshot([node("a")], QUEUES, pending=[FIVE, *FOURS]))
    free = state.free_now.copy()
    first, second = selected(state), selected(state)
    assert tuple(first.starts) == tuple(second.starts) == ("four0", "four1")
    assert first.proven
    assert second.proven
    assert (state.free_now == free).all()
    assert not state.settled


def test_starts_may_start_in_any_order() -> None:
    fives = [FIVE, replace(FIVE, uid="five1")]
    fours = [*FOURS, *(replace(four, uid=f"{four.uid}-again") for four in FOURS)]
    state = state_of(snapshot([node("a"), node("b")], QUEUES, pending=[*fives, *fours]))
    starts = list(selected(state).starts.values())
    assert len(starts) == 4
    for order in permutations(starts):
        mark = state.mark
        for settled in order:
            assert can_start(state, settled)
            state.start(settled)
        state.undo(mark)


def test_without_time_the_turns_decide() -> None:
    state = state_of(snapshot([node("a")], QUEUES, pending=[FIVE, *FOURS]))
    assert selected(state, budget=0.0) == Selection(proven=False)


def test_each_limit_on_the_path_binds_what_is_selected_together() -> None:
    """Both fours would fit the node and each leaf, but not what their parent may use."""
    leaves = ["root.p.x", "root.p.y"]
    fours = [gang(f"four{i}", pod_set(1, 4), queue=leaf, submitted=1.0) for i, leaf in enumerate(leaves)]
    five = gang("five", pod_set(1, 5), queue="root.p.x", submitted=0.0)
    queues = [queue("root", policy=PACKED), queue("root.p", row(limit=7)), *map(queue, leaves)]
    state = state_of(snapshot([node("a")], queues, pending=[five, *fours]))
    assert tuple(selected(state).starts) == ()


def test_who_has_waited_long_counts_more_than_who_is_larger() -> None:
    """So that nobody waits for ever: two hours count as much as the gang itself."""
    hours = 3600.0
    for came, chosen in ((0.1 * hours, ("large",)), (5 * hours, ())):
        waiting = [gang("small", pod_set(1, 5)), gang("large", pod_set(1, 8), submitted=came)]
        state = state_of(snapshot([node("a")], QUEUES, pending=waiting), now=came + 0.1 * hours)
        assert tuple(selected(state).starts) == chosen  # none: what the turns do by time is as good
