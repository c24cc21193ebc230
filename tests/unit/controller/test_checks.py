"""A job is checked against the rules before it has a place in line: what it hears, with the nearest right answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.intake.read import waits_in
from queuer.controller.memory.live import Live
from queuer.domain.intake import check
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Access, Queue, QueueState, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.store.tables import NotAsked
from tests.unit.make import gang, sure

RACK = "topology.kubernetes.io/rack"
RULES = Rules(
    tree=QueueTree.of(
        [Queue(path="root.a.one", namespaces=("ns",)), Queue(path="root.a"), Queue(path="root.b")]
    ),
    topology=Topology(keys=(RACK,)),
    revision=1,
)
WORKLOAD = gang(pods=3, requests={"gpu": 4, "pods": 1}, name="job", queue="root.a.one")
NODE = Node(name="n1", labels={HOSTNAME: "n1", RACK: "r1"}, allocatable={"gpu": 8, "pods": 10})


def laws(rules: Rules) -> tuple[QueueTree, Topology]:
    """The facts that a job is checked against."""
    return rules.tree, rules.topology


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"queue": "root.a.oen"}, "did you mean root.a.one"),
        ({"queue": "nonsense"}, "from here use root.a.one"),
        ({"queue": "root.a"}, "choose root.a.one"),
        ({"queue": "root.b"}, "serves no namespace yet; from here use root.a.one"),
        ({"required": "rak"}, "did you mean rack?"),
        ({"preferred": "zone"}, "the levels are rack, host"),
    ],
)  # fmt: skip
def test_what_cannot_start_is_told_with_the_nearest_right_answer(
    change: dict[str, str], expected: str
) -> None:
    found = sure(check(replace(WORKLOAD, **change), *laws(RULES), [NODE], priorities={}))  # type: ignore[arg-type]
    assert expected in found.explanation.primary.text


PRIORITIES = {"low": 1, "high": 100, "top": 900, "system-node-critical": 2_000_001_000}


@pytest.mark.parametrize(
    ("priority", "highest", "expected"),
    [
        (100, "high", None),
        (900, "high", "priority 900 is above 100, the most that queue root.a.one allows (maxPriority high); "
                      "set the label queuer.dev/priority-class to high or low"),
        (0, "gone", None),
        (1, "gone", "the most that queue root.a.one allows (maxPriority gone, a PriorityClass that does not exist)"),
        (900, None, None),
    ],
)  # fmt: skip
def test_a_class_above_what_the_queue_allows_is_told_with_the_numbers(
    priority: int, highest: str | None, expected: str | None
) -> None:
    """A class that is not there bounds like none, so that its deletion lets nobody pass and holds no plain job."""
    queues = [replace(queue, access=Access(max_priority=highest)) for queue in RULES.tree]
    rules = replace(RULES, tree=QueueTree.of(queues))
    found = check(replace(WORKLOAD, priority=priority), *laws(rules), [], priorities=PRIORITIES)
    if expected is None:
        assert found is None
    else:
        assert expected in sure(found).explanation.primary.text


ACCESSES = [
    Queue(path="root.one", namespaces=("ns",), access=Access(users=("bob",), groups=("ml", "ops"))),
    Queue(path="root.two", namespaces=("ns",), access=Access(users=("alice",))),
    Queue(path="root.three", namespaces=("other",)),
]


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("bob", (), None),
        ("alice", ("x", "ops"), None),
        ("alice", ("x",), "user alice may not use queue root.one: it is for user bob and groups ml, ops; "
                          "alice may use root.two from here"),
        ("carol", (), "user carol may not use queue root.one: it is for user bob and groups ml, ops"),
        ("", (), "a job without the annotation queuer.dev/user may not use queue root.one: it is for user bob "
                 "and groups ml, ops"),
    ],
)  # fmt: skip
def test_who_may_not_use_a_queue_is_told_who_may_and_what_is_nearest(
    user: str, groups: tuple[str, ...], expected: str | None
) -> None:
    rules = replace(RULES, tree=QueueTree.of(ACCESSES))
    asked = replace(WORKLOAD, queue="root.one", namespace="ns", user=user)
    found = check(asked, *laws(rules), [], priorities={}, groups=groups)
    assert (None if found is None else found.explanation.primary.text) == expected


@pytest.mark.parametrize(
    ("promised", "expected"),
    [
        (3600.0, None),
        (7200.0, "queue root.a.one takes jobs that run for 1h at most (maxRuntime), this one may run for 2h; "
                 "set the annotation queuer.dev/max-runtime to 1h or less"),
        (None, "this one promises no end; set the annotation queuer.dev/max-runtime to 1h or less"),
    ],
)  # fmt: skip
def test_a_job_promises_to_end_within_what_its_queue_allows(
    promised: float | None, expected: str | None
) -> None:
    rules = replace(
        RULES, tree=QueueTree.of(replace(queue, access=Access(max_runtime=3600.0)) for queue in RULES.tree)
    )
    found = check(replace(WORKLOAD, max_runtime=promised), *laws(rules), [], priorities={})
    if expected is None:
        assert found is None
    else:
        assert expected in sure(found).explanation.primary.text


def test_nothing_new_comes_into_a_queue_that_drains_and_what_waits_keeps_its_place() -> None:
    queues = [replace(q, state=QueueState.DRAINING) if q.path == "root.a" else q for q in RULES.tree]
    rules = replace(RULES, tree=QueueTree.of(queues))

    refused = sure(check(WORKLOAD, *laws(rules), [], priorities={}))
    assert refused.draining
    assert refused.explanation.primary.token is Token.SUSPENDED, "the job is not at fault"
    assert refused.explanation.primary.text == "root.a drains."
    assert check(WORKLOAD, *laws(rules), [], priorities={}, waits=True) is None
    waits = Live(workload=WORKLOAD, state=State.QUEUED)
    assert waits_in("root.a.one", waits)
    assert not waits_in("root.b", waits)
    drained = replace(waits, not_asked=NotAsked.DRAINING)
    assert not waits_in("root.a.one", drained), "it is not let in by being read again"


def test_a_level_whose_label_no_node_carries_is_named() -> None:
    bare = Node(name="n", labels={}, allocatable={})
    found = sure(check(replace(WORKLOAD, required="rack"), *laws(RULES), [bare], priorities={}))
    assert RACK in found.explanation.primary.text
    assert check(replace(WORKLOAD, required="rack"), *laws(RULES), [NODE], priorities={}) is None
    assert check(replace(WORKLOAD, preferred="rack"), *laws(RULES), [bare], priorities={}) is None
