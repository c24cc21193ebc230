"""Messages arrive as they were sent, with the records that stayed; other bytes are told from a message."""

from __future__ import annotations

import pickle
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest

from queuer.domain.assignments import Reservation
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload
from queuer.solver.process import parent as solving
from queuer.solver.process import wire
from queuer.solver.process.parent import SolverOutcome, SolverProcess
from queuer.solver.records import Budget, Pending, Plan, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot
from tests.solver.process.targets import sound, words

QUOTA = simple(Token.WAITING_FOR_QUOTA, "The queue is full.", queue="root.a", asks=8)


def body(message: bytes) -> bytes:
    head = message[: wire.HEADER.size]
    assert wire.length_of(head) == len(message) - wire.HEADER.size
    return message[wire.HEADER.size :]


def plan(**explanations: Explanation) -> Plan:
    empty = sound(snapshot([], []), now=0.0, seed=0, budget=Budget())
    return replace(empty, explanations=explanations, order=tuple(explanations))


def test_a_request_arrives_with_its_read_only_mappings() -> None:
    held = replace(running(gang("g", pod_set(1, 1)), {"n1": 1}), counts=MappingProxyType({"main": 1}))
    told = snapshot([node("n1")], [queue("root.a")], admitted=[held])
    request = wire.SolveRequest(snapshot=told, now=1.5, seed=7, budget=Budget(wall=2.0))
    found = wire.unpack(body(wire.pack(request)))
    assert found == request
    with pytest.raises(TypeError):
        found.snapshot.admitted[0].counts["main"] = 2


def test_a_plan_arrives_and_shared_explanations_are_sent_once() -> None:
    many = plan(**{f"g{i}": QUOTA for i in range(1000)}, other=simple(Token.ON_HOLD, "It is on hold."))
    message = wire.pack(wire.Reply(value=many))
    found = wire.unpack(body(message)).value
    assert found == many
    assert len({id(reason) for reason in found.explanations.values()}) == 2
    assert message.count(b"The queue is full.") == 1


def test_noise_is_no_message() -> None:
    with pytest.raises(ValueError, match="no message"):
        wire.length_of(b"noise noise ")
    with pytest.raises(pickle.UnpicklingError):
        wire.unpack(b"\xff\x00abc")


# Snapshots that follow each other


def job(uid: str) -> Workload:
    return gang(uid, pod_set(1, 1))


def first(nodes: int = 12, waiting: int = 16, held: int = 8) -> Snapshot:
    return snapshot(
        [node(f"n{i}") for i in range(nodes)],
        [queue("root.a")],
        pending=[job(f"p{i}") for i in range(waiting)],
        admitted=[running(job(f"r{i}"), {f"n{i}": 1}) for i in range(held)],
    )


def later(before: Snapshot, random: Random) -> Snapshot:
    """Somebody starts, ends, comes, changes or moves; nodes fill and go; queues and reservations change."""
    pending = [replace(p, first=True) if random.random() < 0.2 else p for p in before.pending]
    pending = [Pending(workload=job(f"q{random.random()}")), *(p for p in pending if random.random() < 0.8)]
    random.shuffle(pending)
    return Snapshot(
        nodes=tuple(replace(s, used={GPU: 1}) if random.random() < 0.3 else s for s in before.nodes[1:]),
        tree=QueueTree.of([queue(f"root.{random.choice('ab')}")]),
        admitted=tuple(a for a in before.admitted if random.random() < 0.8),
        pending=tuple(pending),
        reservations=(Reservation(uid="q", assignments=(), start=random.random(), expires=2.0),),
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_life_told_by_what_changes_is_the_same_life(seed: int) -> None:
    """Records that stay are the same objects, in the process as here."""
    random = Random(seed)
    here = there = first()
    for _ in range(6):
        after = later(here, random)
        message = wire.pack(wire.SolveRequest(snapshot=after), known=here)
        kept = {id(p) for p in there.pending}
        there = wire.unpack(body(message), known=there).snapshot
        assert there == after
        stayed = [p in here.pending for p in after.pending]
        assert [id(p) in kept for p in there.pending] == stayed
        here = after


def test_what_equals_the_record_before_is_taken_over() -> None:
    before = first()
    again = replace(before.pending[3])
    after = replace(before, pending=(*before.pending[:3], again, *before.pending[4:]))
    message = wire.pack(wire.SolveRequest(snapshot=after), known=before)
    assert wire.unpack(body(message), known=before).snapshot.pending[3] is before.pending[3]


def test_nothing_new_says_next_to_nothing() -> None:
    before = first(nodes=64, waiting=1000, held=64)
    assert len(wire.pack(wire.SolveRequest(snapshot=replace(before)), known=before)) < 6_000


async def test_the_process_knows_each_snapshot_also_after_it_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is killed at the fourth request, and made again by the next process."""
    monkeypatch.setattr(solving, "verify", lambda *_, **__: ())
    snaps, random = [first()], Random(5)
    while len(snaps) < 7:
        snaps.append(later(snaps[-1], random))
    async with SolverProcess(target="tests.solver.process.targets:echo", ready_within=30.0) as solver:
        for number, snap in enumerate([*snaps, snaps[0]]):
            budget = Budget(deterministic=1.0, wall=30.0)
            plan = await solver.decide(snap, now=0.0, seed=number, budget=budget)
            assert plan.stats.turns == len(snap.pending)
            assert (plan.stats.note == words(snap)) is (number != 3)
        assert solver.counts == {SolverOutcome.SOLVED: 8, SolverOutcome.CRASHED: 1}
        assert solver.restarts == 1
