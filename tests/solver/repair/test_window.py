"""Which gangs the repair is asked about, and which nodes and starts it looks at."""

from __future__ import annotations

import pytest

from queuer.domain.nodes import Node
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted, Pending
from queuer.solver.repair.window import Lifted, Window
from tests.solver.make import gang, landing, node, pod_set, queue, snapshot
from tests.solver.repair.turns import contested, played

QUEUES = [queue("root"), queue("root.a")]


def nodes(*free: int) -> list[Node]:
    """Two nodes a rack."""
    return [
        node(f"n{i}", gpu=gpus, labels={"block": "b", "rack": f"r{i // 2}"}) for i, gpus in enumerate(free)
    ]


def excluded(made: list[Node], *waiting: Workload | Pending, admitted: tuple[Admitted, ...] = ()) -> bool:
    """Whether sums exclude the gang `late` after the turns of the others."""
    state = played(snapshot(made, QUEUES, pending=waiting, admitted=admitted), but="late")
    return Lifted(state).excludes(contested(state, "late"))


START = gang("start", pod_set(1, 4), submitted=0.0)


@pytest.mark.parametrize(
    ("free", "asks", "out"),
    [
        ((8, 8), gang("late", pod_set(1, 8), submitted=1.0), False),  # as soon as the start moves
        ((8,), gang("late", pod_set(1, 8), submitted=1.0), True),  # it has nowhere to go
        ((8, 4), gang("late", pod_set(2, 6), submitted=1.0), True),  # one slot of 6
        ((8, 4), gang("late", pod_set(3, 4), submitted=1.0), True),  # 12 of 12, less the start's 4
        ((8, 4, 8, 4), gang("late", pod_set(3, 4), submitted=1.0, required="rack"), False),
        (
            (8, 0, 4, 4),
            gang("late", pod_set(3, 4), submitted=1.0, required="rack"),
            True,
        ),  # no rack has three
    ],
)
def test_sums_of_free_slots_exclude_what_nobody_can_make_room_for(
    free: tuple[int, ...], asks: Workload, *, out: bool
) -> None:
    assert excluded(nodes(*free), START, asks) is out


def test_avoided_nodes_are_closed() -> None:
    late = gang("late", pod_set(1, 8), submitted=1.0)
    assert not excluded(nodes(8, 8), START, late)
    assert excluded(nodes(8, 8), START, Pending(workload=late, avoid=frozenset({"n0", "n1"})))


def test_hosts_on_which_pods_of_earlier_cycles_land_are_closed() -> None:
    """Two pods of 4 have a choice among three hosts of 8, so they have them to themselves."""
    late = gang("late", pod_set(1, 8), submitted=1.0)
    lands = landing("lands", 2, 4, "n0", "n1", "n2")
    assert excluded(nodes(8, 8, 8), late, admitted=(lands,))
    assert not excluded(nodes(8, 8, 8, 8), late, admitted=(lands,))


def test_no_more_nodes_than_asked_for_are_looked_at() -> None:
    """All else stays as it is, so that answers for large clusters cost no more."""
    spread = [gang(f"g{i}", pod_set(1, 1), submitted=float(i), required="host") for i in range(200)]
    late = gang("late", pod_set(2, 8), submitted=999.0)
    state = played(snapshot(nodes(*[8] * 60), QUEUES, pending=[*spread, late]), but="late")
    window = Window(Lifted(state), [contested(state, "late")], most=6)
    around = {host for start in window.starts.values() for host in start.hosts}
    assert len(around) <= 6
    assert len({int(n) for spot in window.model.tree.spots for n in spot.nodes} - around) <= 6
    assert len(window.starts) < len(spread)


def test_who_prefers_a_level_stays_where_that_was_found() -> None:
    """It could only be moved to where it is wider apart."""
    for level in ({"preferred": "rack"}, {}):
        start = gang("start", pod_set(2, 4), submitted=0.0, **level)
        late = gang("late", pod_set(1, 8), submitted=1.0)
        state = played(snapshot(nodes(8, 4, 4), QUEUES, pending=[start, late]), but="late")
        window = Window(Lifted(state), [contested(state, "late")], most=100)
        assert ("start" in window.starts) is not bool(level)
