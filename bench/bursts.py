"""Bursts of work on clusters of all degrees of fullness, drawn from a seed: see `instances.md`, which fixes every
number. What is measured on them is the choice among what waits, so nobody is evicted and nothing is reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from bench.instances import NOW, Mix, instance
from queuer.domain.queue import ROOT, Order, Policy, Preempt, QueueTree
from queuer.solver.problem import Pending, Snapshot

NODES, PENDING, QUEUES = (64, 128, 256, 640), (50, 200, 1000), (10, 30, 100)
FILL = (0.0, 0.5, 0.7, 0.85, 0.95)
BURST = 300
"""Seconds within which all that waits was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The parameters of one instance."""

    nodes: int
    pending: int
    queues: int
    mix: Mix
    fill: float


def scale(seed: int) -> Scale:
    """What the instance of this seed is like."""
    rng = Random(f"scale {seed}")
    return Scale(
        nodes=rng.choice(NODES),
        pending=rng.choice(PENDING),
        queues=rng.choice(QUEUES),
        mix=rng.choice(list(Mix)),
        fill=rng.choice(FILL),
    )


def burst(seed: int, *, order: Order) -> Snapshot:
    """The instance of this seed at time NOW, `order` being the policy of all queues."""
    of = scale(seed)
    drawn = instance(
        nodes=of.nodes, pending=of.pending, queues=of.queues, mix=of.mix, fill=of.fill, seed=seed
    )
    rng = Random(f"burst {seed}")
    policy = Policy(order=order, preempt=Preempt.NEVER, reclaim=False, reservations=0)
    queues = [replace(q, policy=policy) if q.path == ROOT else q for q in drawn.tree]
    return replace(
        drawn, tree=QueueTree.of(queues), pending=tuple(_just_submitted(p, rng) for p in drawn.pending)
    )


def _just_submitted(pending: Pending, rng: Random) -> Pending:
    submitted = NOW - rng.randrange(BURST)
    return replace(pending, workload=replace(pending.workload, submitted=submitted))
