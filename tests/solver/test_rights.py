"""A gang's possible victims: each right by a case of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import EvictionRule
from queuer.domain.queue import Policy, Preempt, Queue
from queuer.domain.workload import Workload
from queuer.solver.eviction.rights import GangRights, Rights
from queuer.solver.records import Admitted, Pending, Snapshot
from queuer.solver.state import State
from tests.solver.make import decided, gang, node, pod_set, queue, row, running, snapshot, state_of

ACROSS = Policy(preempt=Preempt.LOWER_PRIORITY)
MINE = gang("mine", pod_set(1, 4), priority=10)


def busy(uid: str, queue: str, gpus: int, **more: Any) -> Admitted:
    """A pod of so many GPUs that runs on node `n`, for 1000 s so far."""
    admitted = {key: more.pop(key) for key in ("since", "releasing", "evicted") if key in more}
    return running(gang(uid, pod_set(1, gpus), queue=queue, **more), {"n": 1}, **admitted)


def world(queues: list[Queue], *work: Admitted, waiting: Workload | Pending = MINE) -> Snapshot:
    """One node of 64 GPUs."""
    return snapshot([node("n", gpu=64)], [queue("root"), *queues], admitted=work, pending=[waiting])


def reaches(state: State, uid: str = "mine") -> tuple[Rights, GangRights]:
    """The rights of this state, and how far they reach for a waiting gang."""
    rights, waiting = Rights(state), state.arrays.waiting.gangs[uid]
    return rights, rights.of(waiting, waiting.shape.charges[0])


def permitted(snap: Snapshot) -> dict[str, EvictionRule]:
    """The victims that `mine` may evict now, with the rule of each."""
    state = state_of(snap)
    rights, owned = reaches(state)
    pairs = [(hold.admitted.workload.uid, rule) for p, rule in rights.permitted(owned) for hold in p.runs]
    found = {uid: rule for uid, rule in pairs if uid not in owned.spared}
    assert rights.anybody(owned) == bool(found)
    return found


def shares(mine: int, theirs: int, **policy: Any) -> list[Queue]:
    """Two queues and what they are guaranteed."""
    said = Policy(**policy)
    return [queue("root.a", row(guaranteed=mine), policy=said), queue("root.b", row(guaranteed=theirs))]


def test_a_guarantee_is_taken_back_from_who_borrows() -> None:
    """`root.b` uses 8 of its 6; whoever of it goes first may go."""
    work = [busy("b1", "root.b", 4), busy("b2", "root.b", 4)]
    assert permitted(world(shares(8, 6), *work)) == dict.fromkeys(("b1", "b2"), EvictionRule.RECLAIM)


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        (shares(8, 8), "they use no more than they are guaranteed"),
        (shares(3, 6), "the gang would borrow itself"),
        (shares(8, 6, reclaim=False), "its queue says reclaim: false"),
    ],
)
def test_no_reclaim(queues: list[Queue], why: str) -> None:
    """Each condition alone forbids it."""
    assert permitted(world(queues, busy("b1", "root.b", 8))) == {}, why


@pytest.mark.parametrize(("team", "leaf", "may"), [(4, 2, True), (8, 2, False), (4, 4, False)])
def test_every_queue_up_to_the_common_one_must_be_above(team: int, leaf: int, *, may: bool) -> None:
    """A team inside its guarantee protects a member that is not, and the other way round."""
    queues = [
        queue("root.a", row(guaranteed=8)),
        queue("root.t", row(guaranteed=team)),
        queue("root.t.x", row(guaranteed=leaf)),
        queue("root.t.y", row(guaranteed=0)),
    ]
    work = [busy("x", "root.t.x", 4), busy("y", "root.t.y", 2)]
    assert ("x" in permitted(world(queues, *work))) is may


def test_what_nobody_claims_makes_nobody_a_borrower() -> None:
    """Only GPUs are guaranteed to the gang; pods above a guarantee of pods are no ground."""
    queues = [
        queue("root.a", row(guaranteed=8)),
        queue("root.b", row(guaranteed=8), row("pods", guaranteed=0)),
    ]
    assert permitted(world(queues, busy("b1", "root.b", 8))) == {}


def test_lower_priority_in_the_same_queue() -> None:
    """Equal priority never goes, nor does anybody where the queue says never."""
    work = [busy("low", "root.a", 4, priority=9), busy("equal", "root.a", 4, priority=10)]
    assert permitted(world([queue("root.a")], *work)) == {"low": EvictionRule.PREEMPT}
    assert permitted(world([queue("root.a", policy=Policy(preempt=Preempt.NEVER))], *work)) == {}


def test_lower_priority_across_queues_only_where_policy_says_so() -> None:
    """Of work above its guarantee; where nothing is guaranteed all of it is."""
    work = [busy("b", "root.b", 4), busy("c", "root.c", 4), busy("d", "root.d", 4)]
    queues = [
        queue("root.a"),
        queue("root.b"),
        queue("root.c", row(guaranteed=4)),
        queue("root.d", row(guaranteed=3)),
    ]
    assert permitted(world(queues, *work)) == {}
    across = snapshot(
        [node("n", gpu=64)], [queue("root", policy=ACROSS), *queues], admitted=work, pending=[MINE]
    )
    assert permitted(across) == dict.fromkeys(("b", "d"), EvictionRule.PREEMPT)


@pytest.mark.parametrize(("guaranteed", "may"), [(8, False), (7, True)])
def test_priority_spares_a_guarantee_that_it_asks_nothing_of(guaranteed: int, *, may: bool) -> None:
    """A gang that asks for pods alone meets the GPU guarantee of the work that is in its way."""
    waiting = Pending(workload=gang("mine", pod_set(1, 0), priority=10))
    queues = [queue("root", policy=ACROSS), queue("root.a"), queue("root.b", row(guaranteed=guaranteed))]
    snap = snapshot([node("n")], queues, admitted=[busy("b", "root.b", 8)], pending=[waiting])
    assert permitted(snap) == ({"b": EvictionRule.PREEMPT} if may else {})


def test_whom_both_rules_permit_goes_as_reclaim() -> None:
    """It costs less: a borrower comes before lower work."""
    queues = [queue("root", policy=ACROSS), *shares(8, 2)]
    snap = snapshot([node("n", gpu=64)], queues, admitted=[busy("b", "root.b", 4)], pending=[MINE])
    assert permitted(snap) == {"b": EvictionRule.RECLAIM}


@pytest.mark.parametrize(
    "protected",
    [{"preemptible": False}, {"since": -99.0}, {"releasing": True}, {"evicted": 2}],
    ids=["not preemptible", "too young", "releasing", "evicted twice in an hour"],
)
def test_who_is_protected(protected: dict[str, Any]) -> None:
    """For every right; the queue's `minRuntime` is 100 s."""
    queues = [queue("root.a", policy=Policy(min_runtime=100.0))]
    assert permitted(world(queues, busy("low", "root.a", 4, since=-100.0))) != {}
    assert permitted(world(queues, busy("low", "root.a", 4, **{"since": -100.0, **protected}))) == {}


def test_never_the_one_for_whose_sake_it_was_evicted() -> None:
    """Others of the same queue may go."""
    work = [busy("other", "root.a", 4), busy("low", "root.a", 4)]
    waiting = Pending(workload=MINE, displaced_by=frozenset({"low", "gone"}))
    assert permitted(world([queue("root.a")], *work, waiting=waiting)) == {"other": EvictionRule.PREEMPT}


def test_a_gang_whose_starts_fail_evicts_nobody_and_hinders_nobody() -> None:
    """Another gang that asks for the same still evicts, though the refused one was before it."""
    fails = Pending(workload=replace(MINE, uid="fails", submitted=-9.0), failed=True)
    snap = world([queue("root.a")], busy("low", "root.a", 64), waiting=fails)
    state = state_of(snap)
    rights, owned = reaches(state, "fails")
    assert not rights.anybody(owned)
    plan = decided(replace(snap, pending=(fails, Pending(workload=MINE))))
    assert [(e.uid, e.beneficiary) for e in plan.evictions] == [("low", MINE.uid)]


def test_who_leaves_frees_the_line_for_nobody_else() -> None:
    """Once one of the two has gone, the other's queue is inside its guarantee."""
    state = state_of(world(shares(8, 6), busy("b1", "root.b", 4), busy("b2", "root.b", 4)))
    rights, owned = reaches(state)
    mark = state.mark
    assert rights.anybody(owned)
    state.leave("b1")
    assert not rights.anybody(owned)
    state.undo(mark)
    assert rights.anybody(owned)


def test_equal_permissions_are_one_reach() -> None:
    """For all shapes; another priority reaches other work."""
    waiting = [gang(f"g{n}", pod_set(n, 1), priority=10 if n < 3 else 5) for n in (1, 2, 3)]
    work = [busy("low", "root.a", 4)]
    state = state_of(snapshot([node("n")], [queue("root"), queue("root.a")], admitted=work, pending=waiting))
    rights, gangs = Rights(state), state.arrays.waiting.gangs.values()
    first, second, third = (rights.of(waits, waits.shape.charges[0]) for waits in gangs)
    assert first is second
    assert first is not third


def test_a_guarantee_is_taken_back_from_who_was_evicted_often_too() -> None:
    """Only preemption spares them; nobody else stands in for what one is guaranteed."""
    often = busy("often", "root.b", 8, evicted=5)
    assert permitted(world(shares(8, 0), often)) == {"often": EvictionRule.RECLAIM}


def test_what_was_taken_back_is_no_answer_for_what_comes_instead() -> None:
    """As many changes, but others: the only one who may go leaves now."""
    state = state_of(
        world([queue("root.a")], busy("low", "root.a", 4), busy("firm", "root.a", 4, priority=10))
    )
    rights, owned = reaches(state)
    mark = state.mark
    state.leave("firm")
    assert rights.anybody(owned)
    state.undo(mark)
    state.leave("low")
    assert not rights.anybody(owned)
