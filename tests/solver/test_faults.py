"""A snapshot that cannot be decided on is refused by its fields; a malformed waiting workload harms nobody
else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import Assignment, Bond, Reservation
from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Flavor
from queuer.domain.queue import QueueTree
from queuer.domain.workload import Workload
from queuer.solver.decide import Following, decide
from queuer.solver.faults import check_moment, faults_of_admitted, faults_of_workload, problems_of
from queuer.solver.records import Admitted, Budget, Pending, Snapshot, Unbound
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot

NAN, FAR = float("nan"), 2**63
PLACE = Assignment(pod_set="main", flavor="default", nodes={"n1": 1})
HELD = running(gang("h", pod_set(1, 4)), {"n1": 1}, releasing=True, gone_by=60.0)
GIVEN = snapshot(
    [node("n1"), node("n2")],
    [queue("root.a", row(guaranteed=8))],
    admitted=[HELD],
    pending=[gang("g", pod_set(2, 4), max_runtime=60.0)],
    bonds=(Bond(uid="b", assignments=(PLACE,), victims=("h",), deadline=300.0),),
    reservations=(Reservation(uid="r", assignments=(PLACE,), start=9.0, expires=99.0),),
    past={"root.a": {"cpu": 1.5}},
)


def of_first(field: str, **change: Any) -> Callable[[Snapshot], Snapshot]:
    """The snapshot with its first record of a kind changed."""

    def changed(given: Snapshot) -> Snapshot:
        first, *others = getattr(given, field)
        instead: dict[str, Any] = {field: (replace(first, **change), *others)}
        return replace(given, **instead)

    return changed


def with_tree(*queues: Any) -> Callable[[Snapshot], Snapshot]:
    return lambda given: replace(given, tree=QueueTree({q.path: q for q in queues}))


ROOT = queue("root")
FAULTS: list[tuple[Callable[[Snapshot], Snapshot], str]] = [
    (of_first("nodes", used={"pods": 1.5}), "nodes[0].used[...]: Expected `int`, got `float`"),
    (of_first("nodes", used={"pods": -1}), "nodes[0].used[...]: Expected `int` >= 0"),
    (of_first("nodes", node=node("n2")), "nodes: name: 'n2' is there 2 times"),
    (lambda s: replace(s, pending=(Pending(workload=HELD.workload),)), "uid: 'h' is there 2 times"),
    (of_first("admitted", since=NAN), "admitted[0].since: Expected `float` >= -4.6"),
    (of_first("admitted", evicted=0.5), "admitted[0].evicted: Expected `int`, got `float`"),
    (of_first("admitted", releasing=False), "admitted[0].gone_by: it is not releasing"),
    (
        of_first("admitted", unbound=(Unbound(pod_set="x", count=1, hosts=()),)),
        "unbound[0]: it is none of its pod sets",
    ),
    (lambda s: replace(s, bonds=s.bonds * 2), "bonds: uid: 'b' is there 2 times"),
    (of_first("admitted", counts={}), "admitted[0].counts: pod set 'main' is missing"),
    (lambda s: replace(s, flavors=(Flavor(name="f"),) * 2), "flavors: name: 'f' is there 2 times"),
    (of_first("bonds", deadline=NAN), "bonds[0].deadline: Expected `float` >= -4.6"),
    (of_first("reservations", start=1e300), "reservations[0].start: Expected `float` <= 4.6"),
    (lambda s: replace(s, past={"root": {"cpu": NAN}}), "past[...][...]: Expected `float` >= -4.6"),
    (with_tree(queue("root.a")), "tree: root is missing"),
    (with_tree(ROOT, queue("root.a.b")), "queues.root.a.b: parent root.a does not exist"),
    (with_tree(queue("root", row(guaranteed=1)), queue("root.a", row(guaranteed=2))), "more than its 1"),
]


def told(given: Snapshot, *, now: float = 0.0, budget: Budget | None = None) -> list[str]:
    return [str(problem) for problem in problems_of(given, now=now, budget=budget or Budget())]


def test_nothing_is_wrong_with_a_sound_snapshot() -> None:
    assert told(GIVEN) == []
    plan = decide(GIVEN, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert [admission.uid for admission in plan.admissions] == ["g"]


@pytest.mark.parametrize(("change", "said"), FAULTS)
@pytest.mark.parametrize("follows", [False, True])
def test_a_contradiction_is_refused_by_its_field(
    change: Callable[[Snapshot], Snapshot], said: str, follows: bool
) -> None:
    """Also where a sound snapshot came before."""
    given, deciding = change(GIVEN), Following()
    assert said in told(given)[0]
    if follows:
        deciding.follow(GIVEN)
    with pytest.raises(InvalidInput) as error:
        deciding(given, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert said in str(error.value)


def test_a_defect_stays_what_it_is_whatever_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("queuer.solver.decide.Turns", broken)
    odd = replace(GIVEN, pending=(Pending(workload=gang("g")),))
    with pytest.raises(KeyError, match="a defect"):
        decide(odd, now=0.0, seed=0, budget=Budget())


@pytest.mark.parametrize(("now", "budget"), [(NAN, Budget()), (0.0, Budget(wall=FAR))])
def test_a_moment_that_is_none_is_refused(now: float, budget: Budget) -> None:
    with pytest.raises(InvalidInput):
        check_moment(GIVEN, now=now, budget=budget)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (gang("g"), "workload.pod_sets: is empty"),
        (gang("g", pod_set(1, 1), pod_set(2, 1)), "pod_sets: name: 'main' is there 2 times"),
        (gang("g", pod_set(0, 1)), "pod_sets[0].count: 0 is less than 1"),
        (gang("g", pod_set(2, 1, min_count=3)), "min_count: 3 is not between 1 and 2"),
        (gang("g", pod_set(2**10, 2**55)), "1024 times 36028797018963968 is beyond 2^62"),
        (gang("g", pod_set(1, -1)), "pod_sets[0].requests[...]: Expected `int` >= 0"),
        (gang("g", pod_set(1, 1), submitted=NAN), "workload.submitted: Expected `float` >= -4.6"),
    ],
)
def test_a_malformed_workload_is_told_its_field(workload: Workload, said: str) -> None:
    assert said in str(next(iter(faults_of_workload(workload))))
    assert told(replace(GIVEN, pending=(Pending(workload=workload),))) == []


@pytest.mark.parametrize(
    "held",
    [
        replace(HELD, since=NAN),
        replace(HELD, releasing=False),
        replace(HELD, counts={"main": -1}),
        replace(HELD, counts={}),
        replace(HELD, bound={"n1": {"pods": 0.5}}),  # type: ignore[dict-item]
        replace(HELD, workload=gang("h", pod_set(1, 1), priority=1.0)),
        replace(HELD, workload=gang("h", pod_set(1, -1))),
    ],
)
def test_what_arithmetic_cannot_use_is_known_at_once(held: Admitted) -> None:
    assert not any(faults_of_admitted(HELD))
    assert any(faults_of_admitted(held))
