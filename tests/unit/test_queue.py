"""The queue tree: inheritance, validation with numbers, nearest names."""

from __future__ import annotations

import pytest

from queuer.domain.errors import InvalidInput
from queuer.domain.queue import (
    DEFAULT_POLICY,
    Access,
    Order,
    PerUser,
    Policy,
    Preempt,
    Queue,
    QueueState,
    QueueTree,
    QuotaRow,
)
from queuer.domain.routing import RoutingRule


def row(*, guaranteed: int | None = None, limit: int | None = None, lend: int | None = None) -> QuotaRow:
    """A GPU row for all flavors."""
    return QuotaRow(resource="gpu", guaranteed=guaranteed, limit=limit, lend=lend)


def test_policy_comes_from_the_nearest_ancestor_that_says_it() -> None:
    """Each key by itself."""
    tree = QueueTree.of(
        [
            Queue(path="root", policy=Policy(order=Order.STRICT, reclaim=False)),
            Queue(path="root.a", policy=Policy(reclaim=True)),
            Queue(path="root.a.b", policy=Policy(preempt=Preempt.NEVER)),
        ]
    )
    policy = tree.policy("root.a.b")
    assert (policy.order, policy.reclaim, policy.preempt) == (Order.STRICT, True, Preempt.NEVER)
    assert policy.sharing is DEFAULT_POLICY.sharing


def test_access_is_inherited_by_key() -> None:
    """Each key comes from the nearest queue that says it; nobody need bound the waiting jobs of a namespace."""
    tree = QueueTree.of(
        [
            Queue(path="root.a", access=Access(max_priority="high", max_pending=10)),
            Queue(path="root.a.b", access=Access(max_pending=20)),
            Queue(path="root.c"),
        ]
    )
    assert tree.access("root.a.b") == Access(max_priority="high", max_pending=20)
    assert tree.access("root.c") == Access(max_pending=5000)


def test_who_may_use_a_queue_is_said_by_the_nearest_that_names_anybody() -> None:
    """Users and groups together: a group that an ancestor names does not come in where a queue names its users."""
    tree = QueueTree.of(
        [
            Queue(path="root.a", access=Access(groups=("ml",), max_runtime=60.0)),
            Queue(path="root.a.b", access=Access(users=("alice",))),
            Queue(path="root.a.c", access=Access(max_runtime=30.0)),
            Queue(path="root.d"),
        ]
    )
    may = {
        path: [
            user
            for user in ("alice", "bob")
            if tree.access(path).admits(user, {"bob": ("ml",)}.get(user, ()))
        ]
        for path in tree.queues
    }
    assert may == {
        "root": ["alice", "bob"], "root.a": ["bob"], "root.a.b": ["alice"], "root.a.c": ["bob"],
        "root.d": ["alice", "bob"],
    }  # fmt: skip
    assert [tree.access(f"root.a.{name}").max_runtime for name in "bc"] == [60.0, 30.0]


def test_limits_per_user_hold_at_every_queue_that_says_them() -> None:
    """They count where they are said, so none stands in for another."""
    outer, inner = PerUser(max_running=4), PerUser(limits={"gpu": 2})
    tree = QueueTree.of(
        [
            Queue(path="root.a", access=Access(per_user=outer)),
            Queue(path="root.a.b", access=Access(per_user=inner)),
            Queue(path="root.a.c"),
            Queue(path="root.d"),
        ]
    )
    assert tree.per_user == {
        "root.a": (("root.a", outer),),
        "root.a.b": (("root.a.b", inner), ("root.a", outer)),
        "root.a.c": (("root.a", outer),),
    }
    assert tree.access("root.a.c").per_user is None


def test_a_job_that_names_an_inner_queue_goes_where_the_first_rule_that_matches_says() -> None:
    """A rule may lead to an inner queue, whose own rules then count; without a match it stays."""
    to = RoutingRule
    tree = QueueTree.of(
        [
            Queue(
                path="root", placement=(to(user="eve", queue="root.b"), to(namespace="ns", queue="root.a"))
            ),
            Queue(
                path="root.a",
                placement=(
                    to(labels={"app": "night"}, namespace="ns", queue="root.a.night"),
                    to(namespace="ns", group="ml", queue="root.a.one"),
                    to(queue="root.a.two"),
                ),
            ),
            *(Queue(path=path) for path in ("root.a.one", "root.a.two", "root.a.night", "root.b")),
        ]
    )

    def lands(
        named: str, *, namespace: str = "ns", user: str = "bob", groups: tuple[str, ...] = (), **labels: str
    ) -> str:
        steps = tree.routed(named, namespace=namespace, user=user, groups=groups, labels=labels)
        return steps[-1][1].queue if steps else named

    assert lands("root") == "root.a.two"
    assert lands("root", groups=("x", "ml")) == "root.a.one"
    assert lands("root", user="eve") == "root.b"
    assert lands("root", namespace="other") == "root"
    assert lands("root.a", namespace="other", groups=("ml",)) == "root.a.two"
    assert lands("root", app="night", tier="x") == "root.a.night"
    assert lands("root", app="day") == "root.a.two"
    assert lands("root.a", namespace="other", app="night") == "root.a.two"
    assert lands("root.b") == "root.b"
    assert lands("root.gone") == "root.gone"


def test_a_rule_leads_down_to_a_queue_that_is_there() -> None:
    with pytest.raises(InvalidInput) as caught:
        QueueTree.of(
            [
                Queue(
                    path="root.a",
                    placement=tuple(RoutingRule(queue=q) for q in ("root.a", "root", "root.a.x")),
                ),
                Queue(path="root.a.b"),
            ]
        )
    assert [str(problem) for problem in caught.value.problems] == [
        f"queues.root.a.placement[{n}].queue: {said} (name a queue below it, or take the rule out)"
        for n, said in enumerate(
            ("root.a is not below root.a", "root is not below root.a", "root.a.x does not exist")
        )
    ]


def test_namespaces_and_state_are_inherited() -> None:
    """Nobody may use a queue without a namespace on its path; the strictest state wins."""
    tree = QueueTree.of(
        [
            Queue(path="root.a", namespaces=("team-a",), state=QueueState.HELD),
            Queue(path="root.a.b"),
            Queue(path="root.c"),
        ]
    )
    assert tree.namespaces("root.a.b") == ("team-a",)
    assert tree.namespaces("root.c") == ()
    assert tree.effective_state("root.a.b") is QueueState.HELD
    assert tree.effective_state("root.c") is QueueState.OPEN


def test_children_above_a_stated_guarantee_are_refused_with_the_numbers() -> None:
    """3 + 2 do not fit into 4."""
    queues = [
        Queue(path="root.p", quota=(row(guaranteed=4),)),
        Queue(path="root.p.a", quota=(row(guaranteed=3),)),
        Queue(path="root.p.b", quota=(row(guaranteed=2),)),
    ]
    with pytest.raises(InvalidInput) as caught:
        QueueTree.of(queues)
    text = str(caught.value)
    assert "queues.root.p.quota[0].guaranteed" in text
    assert "a 3 + b 2" in text


@pytest.mark.parametrize(
    ("queue", "field"),
    [
        (Queue(path="root.a", weight=0), "queues.root.a.weight"),
        (Queue(path="root.a", quota=(row(guaranteed=4, limit=3),)), "quota[0].guaranteed"),
        (Queue(path="root.a", quota=(row(guaranteed=4, lend=5),)), "quota[0].lend"),
        (Queue(path="root.a", quota=(row(limit=1), row(limit=2))), "quota[1]"),
        (Queue(path="root.a.b"), "queues.root.a.b"),
        (Queue(path="root.A"), "queues.root.A"),
    ],
)
def test_problems_name_queue_and_field(queue: Queue, field: str) -> None:
    """Nothing of a wrong tree is taken."""
    with pytest.raises(InvalidInput) as caught:
        QueueTree.of([queue])
    assert field in str(caught.value)


def test_guarantees_above_are_sums() -> None:
    """A parent that states none has its children's; (any) falls back to the queue's own rows by flavor."""
    tree = QueueTree.of(
        [
            Queue(path="root.p"),
            Queue(path="root.p.a", quota=(QuotaRow(resource="gpu", flavor="x", guaranteed=3),)),
            Queue(path="root.p.b", quota=(QuotaRow(resource="gpu", flavor="y", guaranteed=2),)),
        ]
    )
    assert tree.guaranteed("root.p", "x", "gpu") == 3
    assert tree.guaranteed("root.p", None, "gpu") == 5


def test_nearest_names() -> None:
    """A typing slip is answered with what was meant."""
    tree = QueueTree.of([Queue(path="root.research"), Queue(path="root.research.team-a")])
    assert tree.nearest("root.reserch.team-a")[0] == "root.research.team-a"


def test_guarantees_that_nobody_can_sum_are_refused() -> None:
    """Numbers beyond 64 bits in a reason kept every decision from being stored."""
    half = row(guaranteed=2**61)
    QueueTree.of([Queue(path=f"root.{name}", quota=(half,)) for name in "ab"])
    with pytest.raises(
        InvalidInput, match=r"queues\.root\.c\.quota: guarantees of all queues are beyond 2\^62 gpu"
    ):
        QueueTree.of([Queue(path=f"root.{name}", quota=(half,)) for name in "abc"])
