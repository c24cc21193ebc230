"""What cannot be decided on is refused by field, not decided wrongly: in direct calls, and where one snapshot follows
another. One gang alone is set aside, and all others have their turns.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import Order, Policy, Queue, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.ends import expected_end
from queuer.solver.forecast import forecast
from queuer.solver.holds import Holds
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    Budget,
    Pending,
    Plan,
    Reservation,
    Snapshot,
    SolveStatus,
    Unbound,
)
from queuer.solver.verify import Rule, verify
from tests.solver.cases import seeded
from tests.solver.cycles import Life
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.spoiled import spoiled
from tests.solver.worlds import NOW, world

GREEDY = Budget(deterministic=0.0)
FULL = running(gang("v", pod_set(1, 8)), {"n0": 1})
GOOD = snapshot(
    [node("n0"), node("n1")], [queue("root.a")], admitted=[FULL], pending=[gang("g", pod_set(1, 1))]
)


def waiting(*workloads: Workload) -> Snapshot:
    return replace(GOOD, pending=tuple(Pending(workload=w) for w in workloads))


def sized(*gpus: int) -> Snapshot:
    """Nodes of other sizes."""
    nodes = (
        replace(s, node=replace(s.node, allocatable={GPU: n, "pods": 20}))
        for s, n in zip(GOOD.nodes, gpus, strict=True)
    )
    return replace(GOOD, nodes=tuple(nodes))


def holding(**changes: Any) -> Snapshot:
    """What runs changed."""
    return replace(GOOD, admitted=(replace(FULL, **changes),))


def grown(**queues: Queue) -> Snapshot:
    """Other queues, whether they make a tree or not."""
    return replace(GOOD, tree=QueueTree(queues))


LOOSE = "snapshot.admitted[0].unbound[0]."
NAN = float("nan")
PLACES = (Assignment(pod_set="main", flavor="default", nodes={"n1": 1}),)
TWICE = gang("g", pod_set(1, 1)), gang("g", pod_set(2, 1))


@pytest.mark.parametrize(
    ("snap", "field"),
    [
        (waiting(*TWICE), "snapshot: uid"),
        (waiting(gang("v", pod_set(1, 1))), "snapshot: uid"),
        (waiting(*(replace(w, hold=True) for w in TWICE)), "snapshot: uid"),
        (waiting(TWICE[0], replace(TWICE[1], hold=True)), "snapshot: uid"),
        (replace(GOOD, admitted=(FULL, FULL)), "snapshot: uid"),
        (sized(2**62, 2**62), f"snapshot.nodes: allocatable.{GPU}"),
        (sized(2**61, 2**61 + 1), f"snapshot.nodes: allocatable.{GPU}"),
        (sized(2**63, 8), f"snapshot.nodes[0].node.allocatable.{GPU}"),
        (sized(-1, 8), f"snapshot.nodes[0].node.allocatable.{GPU}"),
        (replace(GOOD, nodes=(*GOOD.nodes, GOOD.nodes[0])), "snapshot.nodes: name"),
        (replace(GOOD, nodes=(replace(GOOD.nodes[0], used={GPU: -1}),)), f"snapshot.nodes[0].used.{GPU}"),
        (replace(GOOD, flavors=(Flavor(name="x"), Flavor(name="x"))), "snapshot.flavors: name"),
        (replace(GOOD, topology=Topology(keys=("rack", "rack"))), "snapshot.topology.keys"),
        (grown(), "snapshot.tree"),
        (grown(root=Queue(path="root.a")), "snapshot.tree.queues.root.path"),
        (grown(root=queue("root", row(limit=-1))), "snapshot.tree.queues.root.quota[0].limit"),
        (grown(root=queue("root", policy=Policy(max_wait=NAN))), "snapshot.tree.queues.root.policy.max_wait"),
        (holding(counts={"main": -1}), "snapshot.admitted[0].counts.main"),
        (holding(bound={"n0": {GPU: -1}}), f"snapshot.admitted[0].bound.n0.{GPU}"),
        (holding(unbound=(Unbound(pod_set="x", count=1, hosts=("n0",)),)), LOOSE + "pod_set"),
        (holding(unbound=(Unbound(pod_set="main", count=-1, hosts=("n0",)),)), LOOSE + "count"),
        (holding(expected_end=NAN), "snapshot.admitted[0].expected_end"),
        (holding(releasing=True, gone_by=NAN), "snapshot.admitted[0].gone_by"),
        (holding(gone_by=30.0), "snapshot.admitted[0].gone_by"),
        (holding(since=float("-inf")), "snapshot.admitted[0].since"),
        (holding(workload=replace(FULL.workload, priority=2**63)), "snapshot.admitted[0].workload.priority"),
    ],
)
def test_what_would_give_a_wrong_plan_is_refused_by_field(snap: Snapshot, field: str) -> None:
    with pytest.raises(InvalidInput) as first:
        decide(snap, now=0.0, seed=0, budget=GREEDY)
    assert field in [p.field for p in first.value.problems]
    assert all(p.hint for p in first.value.problems)
    with pytest.raises(InvalidInput) as then:
        Arrays.of(GOOD).follow(snap)
    assert then.value.problems == first.value.problems


BOND = Bond(uid="g", assignments=PLACES, victims=("v",), deadline=9.0)
LATER = Reservation(uid="g", assignments=PLACES, start=1.0, expires=9.0)
LESS = (replace(PLACES[0], nodes={"n1": 2, "n0": -1}),)


@pytest.mark.parametrize(
    ("snap", "now", "budget", "field"),
    [
        (GOOD, NAN, GREEDY, "now"),
        (GOOD, 0.0, Budget(deterministic=NAN), "budget.deterministic"),
        (replace(GOOD, bonds=(replace(BOND, deadline=NAN),)), 0.0, GREEDY, "snapshot.bonds[0].deadline"),
        (
            replace(GOOD, bonds=(replace(BOND, assignments=LESS),)),
            0.0,
            GREEDY,
            "snapshot.bonds[0].assignments[0].nodes.n0",
        ),
        (
            replace(GOOD, reservations=(replace(LATER, start=NAN),)),
            0.0,
            GREEDY,
            "snapshot.reservations[0].start",
        ),
        (replace(GOOD, past={"root.a": {GPU: NAN}}), 0.0, GREEDY, f"snapshot.past.root.a.{GPU}"),
    ],
)
def test_what_arrays_do_not_depend_on_is_refused_too(
    snap: Snapshot, now: float, budget: Budget, field: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        decide(snap, now=now, seed=0, budget=budget)
    assert [p.field for p in error.value.problems] == [field]


AMOUNTS = (1.5, 1.0, "3", True, None, NAN, -1, 10**30)
TIMES = ("3", True, NAN, 10**30, float("inf"))


def spot(path: str, bad: Any) -> tuple[Snapshot, str]:
    """The good snapshot, with something that stands, and one number in it another."""
    snap = replace(
        holding(unbound=(Unbound(pod_set="main", count=1, hosts=("n1",)),)),
        tree=QueueTree.of(
            [queue("root.a", row(limit=8, lend=0, guaranteed=8), policy=Policy(min_runtime=1.0))]
        ),
        bonds=(BOND,),
        reservations=(LATER,),
    )

    def put(value: Any, names: list[str]) -> Any:
        if not names:
            return bad
        name, *rest = names
        if isinstance(value, tuple):
            at = int(name)
            return (*value[:at], put(value[at], rest), *value[at + 1 :])
        if isinstance(value, dict):
            return {**value, name: put(value[name], rest)}
        if isinstance(value, QueueTree):
            return QueueTree(put(value.queues, rest))
        return replace(value, **{name: put(getattr(value, name), rest)})

    names = [name.replace("GPU", GPU) for name in path.split("/")]
    return put(snap, names), ".".join(["snapshot", *names])


@pytest.mark.parametrize(
    ("path", "bads"),
    [
        ("nodes/0/node/allocatable/GPU", AMOUNTS),
        ("nodes/0/used/GPU", AMOUNTS),
        ("admitted/0/counts/main", AMOUNTS),
        ("admitted/0/unbound/0/count", AMOUNTS),
        ("admitted/0/bound/n0/GPU", AMOUNTS),
        ("admitted/0/since", (*TIMES, None)),
        ("admitted/0/expected_end", TIMES),
        ("admitted/0/workload/priority", (1.5, "3", True, None, NAN, 10**30)),
        ("admitted/0/workload/pod_sets/0/count", (1.5, 1.0, "3", True, None, NAN, 10**30)),
        ("admitted/0/workload/pod_sets/0/requests/GPU", AMOUNTS[:-1]),
        ("bonds/0/assignments/0/nodes/n1", AMOUNTS),
        ("bonds/0/deadline", (*TIMES, None)),
        ("reservations/0/assignments/0/nodes/n1", AMOUNTS),
        ("reservations/0/start", (*TIMES, None)),
        ("tree/queues/root.a/quota/0/limit", [bad for bad in AMOUNTS if bad is not None]),
        ("tree/queues/root.a/quota/0/lend", [bad for bad in AMOUNTS if bad is not None]),
        ("tree/queues/root.a/policy/min_runtime", TIMES),
        ("tree/queues/root.a/weight", (*TIMES, None)),
    ],
)
def test_a_number_of_another_type_is_refused_by_field(path: str, bads: tuple[Any, ...]) -> None:
    """True and 1.0 equal 1, and numpy rounds 1.5 and reads "3": neither would have been seen."""
    good, _ = spot("admitted/0/counts/main", 1)
    decide(good, now=0.0, seed=0, budget=GREEDY)
    for bad in bads:
        snap, field = spot(path, bad)
        with pytest.raises(InvalidInput) as error:
            decide(snap, now=0.0, seed=0, budget=GREEDY)
        told = error.value.problems[0]
        where = re.sub(r"\[(\d+)\]", r".\1", told.field).removeprefix("snapshot.")
        assert field.removeprefix("snapshot.").endswith(where), (bad, told)
        assert told.hint


@pytest.mark.parametrize("bad", ["3", True, None, 10**30])
def test_a_moment_that_is_no_number_is_refused(bad: Any) -> None:
    for now, budget, field in (
        (bad, GREEDY, "now"),
        (0.0, Budget(deterministic=bad), "budget.deterministic"),
    ):
        with pytest.raises(InvalidInput) as error:
            decide(GOOD, now=now, seed=0, budget=budget)
        assert [p.field for p in error.value.problems] == [field]


def test_work_that_was_to_end_before_it_began_is_overdue_from_then_on() -> None:
    """It was given a minute at a time from that end on, of which there is no end."""
    never = replace(FULL, since=-1000.0, expected_end=-5000.0)
    assert expected_end(never, now=-990.0) == -940.0


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_there_is_a_sound_plan_or_a_refusal_whatever_is_spoiled(first: int) -> None:
    """Any error but a refusal would stop all work for one record; and a plan must not be one that was given up."""
    told: Counter[str] = Counter()
    for seed in range(first, first + 15):
        rng, life = Random(seed), Life(Random(seed), seeded(seed))
        for _ in range(4):
            life.cycle(GREEDY)
        for snap, now in [(life.snapshot(), life.now), (world(seed), NOW)] * 4:
            part = rng.choice([f.name for f in fields(snap)])
            bad = replace(snap, **{part: spoiled(rng, getattr(snap, part))})
            try:
                plan = decide(bad, now=now, seed=0, budget=GREEDY)
            except InvalidInput as error:
                told[error.problems[0].field] += 1
            else:
                assert verify(bad, plan, now=now) == ()
                assert plan.stats.status is not SolveStatus.FAILED
    assert len(told) > 5


def test_the_largest_that_can_be_summed_is_decided_on() -> None:
    """Also where floating-point numbers would sum to more: all of these are rounded up."""
    up = [2**60 + 129] * 3
    nodes = [
        replace(
            GOOD.nodes[1], node=replace(GOOD.nodes[1].node, name=f"m{i}", allocatable={GPU: n, "pods": 20})
        )
        for i, n in enumerate([*up, 2**62 - sum(up)])
    ]
    for snap in (sized(2**61, 2**61), replace(GOOD, nodes=tuple(nodes), admitted=())):
        plan = decide(snap, now=0.0, seed=0, budget=GREEDY)
        assert [a.uid for a in plan.admissions] == ["g"]


@pytest.mark.parametrize(("pods", "gpu", "gangs"), [(2, 2**62, 1), (1, 2**62, 2), (2, 2**61, 3)])
def test_what_runs_may_hold_more_than_64_bits_can_sum(pods: int, gpu: int, gangs: int) -> None:
    """A job that was started beside the queue may ask for anything: it counts in full, alone and with others, until it
    is evicted.
    """
    over = [
        replace(
            running(gang(f"v{i}", pod_set(pods, gpu)), {}),
            counts={"main": pods},
            bound={f"n{i}": {GPU: 4, "pods": 1}},
        )
        for i in range(gangs)
    ]
    snap = snapshot(
        [node(f"n{i}") for i in range(gangs)],
        [queue("root", row(limit=8)), queue("root.a"), queue("root.b", row(guaranteed=8))],
        admitted=over,
        pending=[gang("g", pod_set(1, 8), queue="root.b")],
    )
    for budget in (GREEDY, Budget()):
        plan = decide(snap, now=0.0, seed=0, budget=budget)
        assert [b.uid for b in plan.bonds] == ["g"]
        assert [e.uid for e in plan.evictions] == [one.workload.uid for one in over]
        assert verify(snap, plan, now=0.0) == ()
    board = Board(Arrays.of(snap), now=0.0)
    holds, usage = Holds(board), board.now.usage.copy()
    everyone = holds.flagged(board.holds)
    assert holds.charged((None, GPU), everyone) == usage.used("root", (None, GPU)) == pods * gpu * gangs
    holds.release(usage, everyone, only=frozenset({(None, GPU)}))
    assert usage.used("root", (None, GPU)) == 0


def test_a_fault_of_the_program_is_not_told_as_one_of_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal always names a field."""

    def breaks(*_: object) -> None:
        raise OverflowError("in the program")

    monkeypatch.setattr("queuer.solver.arrays.Usage", breaks)
    with pytest.raises(OverflowError, match="in the program"):
        Arrays.of(GOOD)


def unsound(**changes: Any) -> Workload:
    return replace(gang("z", pod_set(1, 1), submitted=-1.0), **changes)


ODD: tuple[Any, ...] = (1.5, 1.0, "3", True, 10**30, None)
UNSOUND = [
    (unsound(pod_sets=(pod_set(0, 1),)), "workload.pod_sets[0].count"),
    (unsound(pod_sets=(pod_set(2, 1), pod_set(-1, 1, name="b"))), "workload.pod_sets[1].count"),
    (unsound(pod_sets=(pod_set(1, 1), pod_set(1, 1))), "workload.pod_sets: name"),
    (unsound(pod_sets=(pod_set(1, 1, min_count=0),)), "workload.pod_sets[0].min_count"),
    (unsound(pod_sets=(pod_set(1, 1, min_count=2),)), "workload.pod_sets[0].min_count"),
    (unsound(pod_sets=()), "workload.pod_sets"),
    (unsound(pod_sets=(pod_set(2, 2**62),)), f"workload.pod_sets[0].requests.{GPU}"),
    (unsound(pod_sets=(pod_set(1, 2**63),)), f"workload.pod_sets[0].requests.{GPU}"),
    (unsound(pod_sets=(pod_set(1, -1),)), f"workload.pod_sets[0].requests.{GPU}"),
    (unsound(submitted=NAN), "workload.submitted"),
    (unsound(max_runtime=NAN), "workload.max_runtime"),
    (unsound(estimate=float("inf")), "workload.estimate"),
    (unsound(priority=2**63), "workload.priority"),
    *((unsound(pod_sets=(pod_set(bad, 1),)), "workload.pod_sets[0].count") for bad in ODD),
    *(
        (unsound(pod_sets=(pod_set(2, 1, min_count=bad),)), "workload.pod_sets[0].min_count")
        for bad in ODD[:-1]
    ),
    *((unsound(pod_sets=(pod_set(1, bad),)), f"workload.pod_sets[0].requests.{GPU}") for bad in ODD),
    *((unsound(priority=bad), "workload.priority") for bad in ODD),
    *((unsound(submitted=bad), "workload.submitted") for bad in ("3", True, None)),
]


@pytest.mark.parametrize(("bad", "field"), UNSOUND)
def test_a_gang_that_cannot_be_decided_on_is_told_so_and_stops_nobody(bad: Workload, field: str) -> None:
    """It is first in its line, which is strict, something was held for it, and a job that equals it may be known."""
    snap = replace(
        waiting(bad, gang("g", pod_set(1, 8))),
        tree=snapshot([], [queue("root.a", policy=Policy(order=Order.STRICT))]).tree,
        bonds=(Bond(uid="z", assignments=PLACES, victims=("v",), deadline=9.0),),
        reservations=(Reservation(uid="z", assignments=PLACES, start=1.0, expires=9.0),),
    )
    plan = decide(snap, now=0.0, seed=0, budget=Budget())
    reason = plan.explanations["z"].primary
    assert (reason.token, reason.params["fields"]) == (Token.MISCONFIGURED, [field])
    assert reason.text.startswith(f"{field}: ")
    assert [a.uid for a in plan.admissions] == ["g"]
    assert (plan.bonds, plan.reservations) == ((), ())
    assert verify(snap, plan, now=0.0) == ()
    arrays = Arrays.of(replace(GOOD, tree=snap.tree)).follow(snap)
    assert decide(snap, now=0.0, seed=0, budget=Budget(), arrays=arrays) == plan
    assert forecast(snap, now=0.0, seed=0).keys() == {"g"}


@pytest.mark.parametrize(("bad", "field"), UNSOUND)
def test_it_stops_nobody_where_order_is_packed(bad: Workload, field: str) -> None:
    snap = replace(
        waiting(bad, gang("g", pod_set(1, 8))),
        tree=snapshot([], [queue("root.a", policy=Policy(order=Order.PACKED))]).tree,
    )
    plan = decide(snap, now=0.0, seed=0, budget=Budget())
    assert plan.explanations["z"].primary.params["fields"] == [field]
    assert [a.uid for a in plan.admissions] == ["g"]


@pytest.mark.parametrize(("bad", "field"), UNSOUND)
def test_a_plan_that_starts_such_a_gang_is_unsound(bad: Workload, field: str) -> None:
    """The verifier has its own eye for it."""
    snap = waiting(bad)
    plan = decide(snap, now=0.0, seed=0, budget=GREEDY)
    started = replace(plan, admissions=(Admission(uid="z", assignments=PLACES),), explanations={})
    rules = {violation.rule for violation in verify(snap, started, now=0.0)}
    assert rules & {Rule.CLOSED, Rule.REFERENCE}


def test_what_is_mended_has_its_turn() -> None:
    """The arrays that set it aside do not remember."""
    bad = waiting(unsound(pod_sets=(pod_set(-1, 1),)))
    arrays = Arrays.of(bad)
    good = waiting(unsound())
    plan: Plan = decide(good, now=0.0, seed=0, budget=GREEDY, arrays=arrays.follow(good))
    assert [a.uid for a in plan.admissions] == ["z"]
    assert [*arrays.follow(good).follow(bad).offers.aside] == ["z"]
