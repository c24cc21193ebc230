"""Bursts of work on clusters of all degrees of fullness, drawn from a seed: see `instances.md`, which fixes every
number. What is measured on them is the choice among what waits, so nobody is evicted and nothing is reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from bench.instances import NOW, PER_NODE, PER_RACK, Form, Mix, instance, workload_of
from queuer.domain.queue import ROOT, Order, Policy, Preempt, QueueTree
from queuer.solver.records import Pending, Snapshot

NODES, PENDING, QUEUES = (64, 128, 256, 640), (50, 200, 1000), (10, 30, 100)
FILL = (0.0, 0.5, 0.7, 0.85, 0.95)
BURST = 300
"""Seconds within which all that waits was submitted."""
SINGLE, PODS = 0.7, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Part of *mixed* that is single pods; pods of all other gangs."""


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
        drawn, tree=QueueTree.of(queues), pending=tuple(_redrawn(p, rng, of.mix) for p in drawn.pending)
    )


def _redrawn(pending: Pending, rng: Random, mix: Mix) -> Pending:
    """The same with another size, just submitted."""
    old = pending.workload
    form, submitted = _form(rng, mix), NOW - rng.randrange(BURST)
    new = workload_of(
        old.uid, old.queue, form, priority=old.priority, submitted=submitted, lasts=old.estimate
    )
    return replace(pending, workload=new)


def _form(rng: Random, mix: Mix) -> Form:
    if mix is Mix.MIXED and rng.random() < SINGLE:
        return Form(1, rng.choices((1, 2, 4, 8), weights=(4, 2, 2, 2))[0])
    pods = rng.choice([n for n in PODS if n <= (64 if mix is Mix.MIXED else 32)])
    gpus = 8 if rng.random() < 0.8 else 4
    required = None
    if rng.random() < 0.7:
        required = "rack" if pods * gpus <= PER_RACK * PER_NODE and rng.random() < 0.7 else "block"
    return Form(pods, gpus, leader=rng.random() < 0.1, required=required)
