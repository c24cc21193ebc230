"""A chain of differences, as sent to the solver process, gives the snapshots that it was made of."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from queuer.domain.queue import QueueTree
from queuer.domain.workload import Workload
from queuer.solver.process import wire, worker
from queuer.solver.process.difference import Difference
from queuer.solver.process.worker import Outcome, SolverProcess
from queuer.solver.records import Budget, Pending, Reservation, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot
from tests.solver.process.targets import words


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
def test_a_life_told_by_differences_is_the_same_life(seed: int) -> None:
    """Records that stay are the same objects, in the process as here."""
    random = Random(seed)
    here = there = first()
    for _ in range(6):
        after = later(here, random)
        message = wire.pack(wire.Request(told=Difference.between(here, after)))
        told = wire.unpack(message[wire.HEADER.size :]).told
        assert isinstance(told, Difference)
        kept = {id(p) for p in there.pending}
        there = told.after(there)
        assert there == after
        stayed = [p in here.pending for p in after.pending]
        assert [id(p) in kept for p in there.pending] == stayed
        here = after


def test_what_equals_the_record_before_is_taken_over() -> None:
    before = first()
    again = replace(before.pending[3])
    assert again is not before.pending[3]
    after = replace(before, pending=(*before.pending[:3], again, *before.pending[4:]))
    assert Difference.between(before, after).after(before).pending[3] is before.pending[3]


def test_nothing_new_says_next_to_nothing() -> None:
    before = first(nodes=64, waiting=1000, held=64)
    assert len(wire.pack(wire.Request(told=Difference.between(before, replace(before))))) < 500


async def test_the_process_knows_each_snapshot_also_after_it_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is killed at the fourth request, and made again by the next process."""
    monkeypatch.setattr(worker, "verify", lambda *_, **__: ())
    snaps, random = [first()], Random(5)
    while len(snaps) < 7:
        snaps.append(later(snaps[-1], random))
    async with SolverProcess(target="tests.solver.process.targets:echo", ready_within=30.0) as solver:
        for number, snap in enumerate([*snaps, snaps[0]]):
            budget = Budget(deterministic=1.0, wall=30.0)
            plan = await solver.decide(snap, now=0.0, seed=number, budget=budget)
            assert plan.stats.turns == len(snap.pending)
            assert (plan.stats.note == words(snap)) is (number != 3)
        assert solver.counts == {Outcome.SOLVED: 8, Outcome.CRASHED: 1}
        assert solver.restarts == 1
