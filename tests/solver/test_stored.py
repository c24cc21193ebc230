"""Stored cycles: what is read back is what was written, and the decision made again gives the same plan."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from queuer.domain.assignments import (
    Admission,
    Assignment,
    Bond,
    Eviction,
    EvictionRule,
    Reservation,
    SolveStatus,
)
from queuer.domain.errors import InvalidInput
from queuer.domain.outside import Outside
from queuer.domain.reasons import Token, simple
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan
from queuer.solver.stored import StoredCycle, again, decode, difference, encode
from tests.solver.make import gang, landing, node, pod_set, queue, row, running, snapshot

NO_CPSAT = Budget(deterministic=0.0)


def cycle(budget: Budget = NO_CPSAT) -> StoredCycle:
    """Some of those who wait find a place; what runs is known to end, on its way out, or on its way to its node."""
    whole = pod_set(1, 8)
    held = [
        running(gang("h1", whole), {"n1": 1}, expected_end=500.0, checkpoint=5.0),
        running(gang("h2", whole), {"n2": 1}, releasing=True, gone_by=30.0, displaced_by=frozenset({"h1"})),
        landing("h3", 1, 4, "n3"),
    ]
    waiting = [gang(f"g{i}", pod_set(1, 4), queue=f"root.{q}") for i, q in enumerate("abaaa")]
    given = snapshot(
        [node(f"n{i}") for i in range(1, 5)],
        [queue("root.a"), queue("root.b", row(guaranteed=8))],
        admitted=held,
        pending=[*waiting, gang("wide", pod_set(2, 8))],
    )
    plan = decide(given, now=10.0, seed=3, budget=budget)
    return StoredCycle(snapshot=given, now=10.0, seed=3, budget=budget, plan=plan)


def plan_of(stored: StoredCycle) -> Plan:
    assert stored.plan is not None
    return stored.plan


@pytest.mark.parametrize("budget", [NO_CPSAT, Budget(deterministic=0.2)])
def test_what_is_read_back_decides_the_same(budget: Budget) -> None:
    made = cycle(budget)
    read = decode(encode(made))
    assert read.snapshot == made.snapshot
    assert (read.now, read.seed, read.budget) == (10.0, 3, budget)
    assert plan_of(read).admissions
    assert plan_of(read).explanations
    assert difference(plan_of(made), plan_of(read)) == ""
    assert difference(plan_of(read), again(read)) == ""


def test_a_cycle_that_tells_no_lost_work_is_read_and_made_again() -> None:
    """Older ones say of an eviction another `next`, and of its gang nothing."""
    low, high = gang("low", pod_set(1, 8)), gang("high", pod_set(1, 8), priority=1)
    given = snapshot([node("n1")], [queue("root.a")], admitted=[running(low, {"n1": 1})], pending=[high])
    made = StoredCycle(
        snapshot=given, now=9.0, seed=0, budget=NO_CPSAT, plan=decide(given, now=9.0, seed=0, budget=NO_CPSAT)
    )
    head, _, body = encode(made).partition(b"\n")
    plain = msgspec.msgpack.decode(zlib.decompress(body))
    plan, (waits,) = plain[1]["plan"], plain[1]["reasons"]
    plan["evictions"][0]["lost"] = {"resource": "pods", "amount": 9, "next": 1}
    del plan["bonds"][0]["lost"], waits["primary"]["params"]["lost"]
    old = decode(head + b"\n" + zlib.compress(msgspec.msgpack.encode(plain)))
    assert plan_of(old).bonds[0].lost is None
    assert difference(plan_of(old), again(old)) == ""


def test_a_cycle_without_pods_outside_the_queues_is_read_as_before() -> None:
    """They are told and never decided on: a file from before they were recorded replays to the same plan."""
    strangers = (
        Outside(namespace="ml", kind="Job", name="big", amounts={"pods": 1}, nodes={"n4": {"pods": 1}}),
    )
    made = replace(cycle(), snapshot=replace(cycle().snapshot, outside=strangers))
    assert decode(encode(made)).snapshot.outside == strangers
    head, _, body = encode(made).partition(b"\n")
    plain = msgspec.msgpack.decode(zlib.decompress(body))
    del plain[0]["snapshot"]["outside"]
    old = decode(head + b"\n" + zlib.compress(msgspec.msgpack.encode(plain)))
    assert old.snapshot == cycle().snapshot
    assert difference(plan_of(old), again(made)) == ""


def test_every_part_of_a_plan_is_kept_and_shared_explanations_stay_shared() -> None:
    place = (Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=("n1",)),)
    quota = simple(Token.WAITING_FOR_QUOTA, "The queue is full.", asks=8)
    plan = replace(
        plan_of(cycle()),
        admissions=(Admission(uid="a", assignments=place),),
        evictions=(Eviction(uid="v", beneficiary="b", rule=EvictionRule.RECLAIM),),
        bonds=(Bond(uid="b", assignments=place, victims=("v",), deadline=300.0),),
        reservations=(Reservation(uid="r", assignments=place, start=50.0, expires=90.0),),
        explanations=MappingProxyType({"b": simple(Token.ON_HOLD, "It is on hold."), "r": quota, "s": quota}),
    )
    read = plan_of(decode(encode(replace(cycle(), plan=plan))))
    assert read == plan
    assert read.explanations["r"] is read.explanations["s"]
    assert decode(encode(replace(cycle(), plan=None))).plan is None


@pytest.mark.parametrize("given_up", [True, False])
def test_a_plan_made_after_the_process_failed_is_made_again_without_cp_sat(
    given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cycle()
    stats = replace(plan_of(made).stats, phases={"solve": 0.1})
    if given_up:
        stats = replace(stats, status=SolveStatus.FAILED, note="late: 5 s", fallback="late")
    asked = list[Budget]()

    def watched(*given: Any, budget: Budget, **more: Any) -> Plan:
        asked.append(budget)
        return decide(*given, budget=NO_CPSAT, **more)

    monkeypatch.setattr("queuer.solver.stored.decide", watched)
    stored = replace(made, budget=Budget(), plan=replace(plan_of(made), stats=stats))
    assert difference(plan_of(stored), again(stored)) == ""
    assert asked == [replace(Budget(), deterministic=0.0 if given_up else Budget().deterministic)]


def test_the_first_difference_is_named() -> None:
    plan = plan_of(cycle())
    first = plan.admissions[0]
    other = replace(plan, admissions=(replace(first, uid="x"), *plan.admissions[1:]))
    assert difference(other, plan) == f"admissions[0].uid: 'x', '{first.uid}'"
    assert difference(replace(plan, admissions=()), plan) == f"admissions: 0 entries, {len(plan.admissions)}"
    more = replace(plan, stats=replace(plan.stats, solver_time=9.0))
    assert difference(more, plan) == f"stats.solver_time: 9.0, {plan.stats.solver_time}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"PK\x03\x04 something else\n", "c.cycle: is not a stored cycle"),
        (
            lambda data: data.replace(b" 6\n", b" 4\n", 1),
            "has version 4 .*reads version 6; use the version of",
        ),
        (lambda data: data[:-20], "c.cycle: has no end"),
        (lambda data: data + b"more", "c.cycle: has bytes after its end"),
        (lambda data: data[:100] + b"\x00\x01\x02" + data[103:], "c.cycle: is damaged"),
    ],
)
def test_a_wrong_file_is_told_from_a_right_one(change: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        decode(change(encode(cycle())), name="c.cycle")


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        ((0, "snapshot", "nodes", 0, "node", "name"), 5, r"snapshot\.nodes\[0\]\.node\.name: Expected `str`"),
        ((0, "snapshot", "nodes", 0, "node", "name"), "n2", "snapshot.nodes: name: 'n2' is there 2 times"),
        ((0, "now"), float("nan"), "now: Expected `float` >= -4.6"),
        ((1, "reason_of", "wide"), 99, "index out of range"),
        ((1, "plan", "order"), None, "plan.order: Expected `array`"),
    ],
)
def test_a_wrong_field_is_named(path: tuple[str | int, ...], to: object, said: str) -> None:
    head, _, body = encode(cycle()).partition(b"\n")
    plain = place = msgspec.msgpack.decode(zlib.decompress(body))
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    with pytest.raises(InvalidInput, match=f"^c.cycle.*: .*{said}"):
        decode(head + b"\n" + zlib.compress(msgspec.msgpack.encode(plain)), name="c.cycle")


def test_a_file_that_unfolds_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuer.solver.stored.MOST_BYTES", 1000)
    with pytest.raises(InvalidInput, match="unpacks to more than 1000 bytes"):
        decode(encode(cycle()), name="c.cycle")
