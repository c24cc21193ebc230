"""Of a user's waiting jobs those are offered that fit, in order, beside what the user has; the others are told why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.controller.cycle.snapshot import over_user_limit
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Bond
from queuer.domain.queue import Access, PerUser, Queue, QueueState, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State, Workload
from tests.unit.make import gang, placed

GPU = "nvidia.com/gpu"
A, B, OTHER = "root.a.one", "root.a.two", "root.b"


def tree(**limits: PerUser) -> QueueTree:
    """`root.a` with two leaves, and `root.b`; limits by last name, `a` for both leaves together."""
    paths = {"a": "root.a", "one": A, "two": B, "b": OTHER}
    return QueueTree.of(Queue(path=p, access=Access(per_user=limits.get(name))) for name, p in paths.items())


def job(uid: str, gpus: int = 1, *, user: str = "bob", queue: str = A, **fields: Any) -> Workload:
    """One pod with so many GPUs."""
    requests = {GPU: gpus, "pods": 1} if gpus else {"pods": 1}
    return gang(uid, requests=requests, user=user, queue=queue, **{"submitted": 1.0, **fields})


def waits(workload: Workload, why: Explanation | None = None) -> Live:
    return Live(workload=workload, state=State.QUEUED, explanation=why)


def runs(workload: Workload) -> Live:
    return Live(workload=workload, state=State.RUNNING, placement=placed({"n": 1}))


def told(tree: QueueTree, *lives: Live, bonds: Iterable[Bond] = ()) -> dict[str, Explanation]:
    """Those of them that are not offered."""
    state = ClusterState()
    state.restore(lives, rules=Rules(tree=tree), bonds=tuple(bonds))
    return over_user_limit((live for live in lives if live.state.waiting), state)


def test_two_that_fit_each_alone_are_not_offered_in_one_cycle() -> None:
    found = told(
        tree(one=PerUser(limits={GPU: 8})), runs(job("r", 2)),
        waits(job("x", 4)), waits(job("y", 4)), waits(job("z", 2)), waits(job("carol", 8, user="carol")),
    )  # fmt: skip
    assert found.keys() == {"y"}
    reason = found["y"].primary
    assert reason.token is Token.WAITING_FOR_QUOTA
    assert reason.text == (
        f"user bob has 2 of 8 gpu in {A} (perUser), and asks 4 in waiting jobs before this one; this job asks 4."
    )
    assert reason.params == {
        "queue": A, "user": "bob", "perUser": "limits", "resource": GPU,
        "limit": "8", "used": "2", "ahead": "4", "asks": "4",
    }  # fmt: skip


def test_jobs_are_counted_in_the_whole_subtree_and_the_first_in_order_comes_first() -> None:
    found = told(
        tree(a=PerUser(max_running=2)), runs(job("r", queue=B)), runs(job("elsewhere", queue=OTHER)),
        waits(job("early")), waits(job("urgent", queue=B, priority=5, submitted=9.0)),
    )  # fmt: skip
    assert found.keys() == {"early"}
    assert found["early"].primary.text == (
        "user bob has 1 of 2 jobs in root.a (perUser), and asks 1 in waiting jobs before this one."
    )


def test_where_several_queues_limit_a_user_all_hold() -> None:
    limits = tree(a=PerUser(limits={GPU: 4}), one=PerUser(max_running=3))
    found = told(limits, runs(job("r1", 0)), runs(job("r2", 0)), waits(job("x", 4)), waits(job("y", 0)))
    assert {uid: why.primary.params["queue"] for uid, why in found.items()} == {"y": A}
    found = told(limits, waits(job("x", 3)), waits(job("y", 2)))
    assert {uid: why.primary.params["queue"] for uid, why in found.items()} == {"y": "root.a"}


def test_what_is_too_large_by_itself_is_told_so_and_takes_nothing_from_others() -> None:
    found = told(tree(one=PerUser(limits={GPU: 4})), waits(job("huge", 9, priority=9)), waits(job("x", 4)))
    assert found.keys() == {"huge"}
    assert found["huge"].primary.token is Token.EXCEEDS_MAX_QUOTA
    assert found["huge"].primary.text == f"Asks 9 gpu; user bob may have 4 at most in {A} (perUser)."


def test_what_can_never_start_takes_nothing_from_what_can_and_keeps_its_reason() -> None:
    never = Explanation(primary=Reason(Token.NO_MATCHING_FLAVOR, {}, "no such nodes"))
    found = told(
        tree(one=PerUser(max_running=1)), waits(job("first", priority=9), never), waits(job("second"))
    )
    assert found == {"first": never}


def test_who_is_bound_is_offered_whatever_the_limit() -> None:
    """Work was lost for its place; the others reckon with it."""
    bond = Bond(uid="last", assignments=(), victims=(), deadline=9.0)
    found = told(
        tree(one=PerUser(max_running=1)), waits(job("first", priority=9)), waits(job("last")), bonds=[bond]
    )
    assert found.keys() == {"first"}


def test_jobs_of_a_queue_that_is_held_take_nothing_from_those_of_another() -> None:
    """They are offered, to be told that it is held."""
    held = Queue(path=A, state=QueueState.HELD)
    rules = QueueTree.of([*(q for q in tree(a=PerUser(max_running=1)) if q.path != A), held])
    assert told(rules, waits(job("x")), waits(job("y", queue=B))) == {}
    assert told(rules, runs(job("r")), waits(job("x")), waits(job("y", queue=B))).keys() == {"y"}


def test_without_a_limit_nobody_is_looked_at() -> None:
    assert told(tree(), waits(job("x"))) == {}
    assert told(tree(two=PerUser(max_running=1)), waits(job("x")), waits(job("y"))) == {}


jobs = st.tuples(
    st.sampled_from([A, B, OTHER]), st.sampled_from(["bob", "carol"]), st.integers(0, 4), st.booleans()
)
limits = st.none() | st.builds(
    PerUser, limits=st.just({}) | st.builds(lambda n: {GPU: n}, st.integers(1, 6)),
    max_running=st.none() | st.integers(1, 3),
)  # fmt: skip


@given(asked=st.lists(jobs, max_size=8), outer=limits, inner=limits)
def test_whoever_is_offered_starts_without_exceeding_a_limit_and_nobody_waits_without_need(
    asked: list[tuple[str, str, int, bool]], outer: PerUser | None, inner: PerUser | None
) -> None:
    rules = tree(**{k: v for k, v in {"a": outer, "one": inner}.items() if v is not None})
    lives = [
        (runs if running else waits)(job(f"j{n}", gpus, user=user, queue=queue))
        for n, (queue, user, gpus, running) in enumerate(asked)
    ]
    found = told(rules, *lives)
    charged = [live.workload for live in lives if not live.state.waiting]
    offered = [live.workload for live in lives if live.state.waiting and live.uid not in found]

    def over(*workloads: Workload) -> bool:
        """Whether these exceed a limit of the last one's user, on its path."""
        own = workloads[-1]
        for path, said in rules.per_user.get(own.queue, ()):
            mine = [w for w in workloads if w.user == own.user and path in rules.lineage(w.queue)]
            most = said.max_running
            gpus = sum(w.demand.get(GPU, 0) for w in mine)
            if most is not None and len(mine) > most:
                return True
            if GPU in said.limits and own.demand.get(GPU) and gpus > said.limits[GPU]:
                return True
        return False

    for n, one in enumerate(offered):
        assert not over(*charged, *offered[:n], one)
    for live in lives:
        if live.uid in found:
            before = [w for w in offered if w.uid < live.uid]
            assert over(*charged, *before, live.workload)


@pytest.mark.parametrize("user", ["", "system:serviceaccount:kube-system:cronjob-controller"])
def test_whoever_shares_an_identity_shares_its_limit(user: str) -> None:
    found = told(tree(one=PerUser(max_running=1)), waits(job("x", user=user)), waits(job("y", user=user)))
    assert found.keys() == {"y"}
