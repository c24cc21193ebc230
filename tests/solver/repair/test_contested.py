"""Which gangs the repair is asked about, and which nodes and starts it looks at."""

from __future__ import annotations

import pytest

from queuer.domain.nodes import Node
from queuer.domain.workload import Workload
from queuer.solver.cpsat import CpSat
from queuer.solver.records import Admitted, Pending, Snapshot
from queuer.solver.refusal import Block, Refusal
from queuer.solver.repair import repair
from queuer.solver.repair.contested import excluded, first_contested, starts_of, without
from tests.solver.make import gang, landing, node, pod_set, queue, snapshot, state_of
from tests.solver.repair.turns import contested, played

QUEUES = [queue("root"), queue("root.a")]


def nodes(*free: int) -> list[Node]:
    """Two nodes a rack."""
    return [
        node(f"n{i}", gpu=gpus, labels={"block": "b", "rack": f"r{i // 2}"}) for i, gpus in enumerate(free)
    ]


def out_of_reach(made: list[Node], *waiting: Workload | Pending, admitted: tuple[Admitted, ...] = ()) -> bool:
    """Whether sums exclude the gang `late` after the turns of the others."""
    state = played(snapshot(made, QUEUES, pending=waiting, admitted=admitted), but="late")
    late, (choice,) = contested(state, "late")
    return excluded(state, late, choice, without(state, starts_of(state)))


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
    assert out_of_reach(nodes(*free), START, asks) is out


def test_avoided_nodes_are_closed() -> None:
    late = gang("late", pod_set(1, 8), submitted=1.0)
    assert not out_of_reach(nodes(8, 8), START, late)
    assert out_of_reach(nodes(8, 8), START, Pending(workload=late, avoid=frozenset({"n0", "n1"})))


def test_hosts_on_which_pods_of_earlier_cycles_land_are_closed() -> None:
    """Two pods of 4 have a choice among three hosts of 8, so they have them to themselves."""
    late = gang("late", pod_set(1, 8), submitted=1.0)
    lands = landing("lands", 2, 4, "n0", "n1", "n2")
    assert out_of_reach(nodes(8, 8, 8), late, admitted=(lands,))
    assert not out_of_reach(nodes(8, 8, 8, 8), late, admitted=(lands,))


def moved(snap: Snapshot) -> set[str]:
    """Gangs that start elsewhere, or move, after a repair for `late`."""
    state = played(snap, but="late")
    before = dict(state.settled)
    repair(state, [contested(state, "late")], solver=CpSat(1.0, seed=1))
    return {uid for uid, s in state.settled.items() if uid not in before or before[uid].spreads != s.spreads}


@pytest.mark.parametrize("most", [4, 2])
def test_no_more_nodes_than_these_are_looked_at(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else stays as it is, so that answers for large clusters cost no more. Four nodes are needed here."""
    monkeypatch.setattr("queuer.solver.repair.NODES", most)
    made = [
        node(f"n{i}", gpu=gpus, labels={"block": "b", "rack": rack})
        for i, (gpus, rack) in enumerate([(4, "x"), (4, "x"), (8, "y"), (4, "z")])
    ]
    one, late = gang("one", pod_set(1, 4), submitted=0.0), gang("late", pod_set(1, 8), submitted=2.0)
    two = gang("two", pod_set(2, 4), submitted=1.0, required="rack")
    assert ("late" in moved(snapshot(made, QUEUES, pending=[one, two, late]))) is (most == 4)


def test_who_prefers_a_level_stays_where_that_was_found() -> None:
    """It could only be moved to where it is wider apart."""
    for level in ({"preferred": "rack"}, {"required": "block"}):
        start = gang("start", pod_set(2, 4), submitted=0.0, **level)
        late = gang("late", pod_set(1, 8), submitted=1.0)
        snap = snapshot(nodes(8, 4, 4), QUEUES, pending=[start, late])
        assert ("start" in moved(snap)) is ("required" in level)


def test_nodes_that_one_gang_avoids_exclude_no_other() -> None:
    """The first may go nowhere; the second asks for the same and is fitted in."""
    shy = Pending(workload=gang("shy", pod_set(1, 8), submitted=1.0), avoid=frozenset({"n0", "n1"}))
    late = gang("late", pod_set(1, 8), submitted=2.0)
    state = state_of(snapshot(nodes(8, 8), QUEUES, pending=[START, shy, late]))
    gangs = state.arrays.waiting.gangs
    refusals = {
        uid: Refusal(
            block=Block.PLACE, variant=gangs[uid].shape.variants[0], charge=gangs[uid].shape.charges[0]
        )
        for uid in ("shy", "late")
    }
    found = first_contested(state, state.arrays.waiting.by_leaf.values(), refusals)
    assert [asked.gang.uid for asked in found] == ["late"]
