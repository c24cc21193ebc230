"""The small worlds of `cases` in which work leaves that nobody has evicted, most of it by a known time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from queuer.domain.queue import QueueTree
from queuer.solver.problem import Snapshot
from tests.solver.cases import NOW, seeded
from tests.solver.cases_reserved import reserving


def vacated(seed: int) -> Snapshot:
    """The world of a seed, at `NOW`, without reservations."""
    return unreserved(_leaving(seed, seeded(seed)))


def vacated_later(seed: int) -> Snapshot:
    """The same with declared ends and reservations."""
    return _leaving(seed, reserving(seed, calmly=0.3))


def _leaving(seed: int, snap: Snapshot) -> Snapshot:
    rng = Random(f"vacated {seed}")
    admitted = (replace(a, releasing=a.releasing or rng.random() < 0.4) for a in snap.admitted)
    return expected(rng, replace(snap, admitted=tuple(admitted)), at=NOW)


def expected(rng: Random, snap: Snapshot, *, at: float) -> Snapshot:
    """Until when pods of what leaves are expected to be there."""
    times = (None, at, at + 30.0, at + 30.0, at + 150.0, at + 300.0, at + 301.0)
    admitted = (replace(a, gone_by=rng.choice(times)) if a.releasing else a for a in snap.admitted)
    return replace(snap, admitted=tuple(admitted))


def unreserved(snap: Snapshot) -> Snapshot:
    """Releasing work has an expected end, and reservations are compared elsewhere."""
    queues = (replace(q, policy=replace(q.policy, reservations=0)) for q in snap.tree)
    return replace(snap, tree=QueueTree.of(queues))
