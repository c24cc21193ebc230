"""The table of slots says that a gang fits exactly where a simulation of it would start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from queuer.domain.queue import Policy, Preempt, Queue, QueueTree
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.clustermap import ANYWHERE, ClusterMap
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from queuer.solver.stored import StoredCycle
from queuer.solver.whatif import UID, simulate
from tests.solver.worlds import GPU, NOW, world

PROBE = "root.probe"
GREEDY = Budget(deterministic=0.0)
SHAPES = 6
"""Asked of each world, each at every level."""


def _cycle(seed: int, *, settled: bool) -> StoredCycle:
    """A decided world where no quota binds and nobody is evicted: what is left is room. `settled`: nothing lands."""
    found = world(seed)
    policy = Policy(preempt=Preempt.NEVER, reclaim=False)
    queues = [Queue(path=queue.path, policy=policy) for queue in found.tree]
    snapshot = replace(found, tree=QueueTree.of([*queues, Queue(path=PROBE, policy=policy)]))
    if settled:
        bound = tuple(each for each in snapshot.admitted if not each.unbound)
        snapshot = replace(snapshot, admitted=bound, pending=())
    plan = decide(snapshot, now=NOW, seed=0, budget=GREEDY)
    return StoredCycle(snapshot=snapshot, now=NOW, seed=0, budget=GREEDY, plan=plan)


def _gang(shape: PodSet, level: str) -> Workload:
    return Workload(
        uid=UID, kind="Job", namespace="test", name=UID, queue=PROBE, pod_sets=(shape,), submitted=NOW,
        priority=-1, required=None if level == ANYWHERE else level,
    )  # fmt: skip


def _asked(cycle: StoredCycle, rng: random.Random) -> Iterator[tuple[bool, bool, str]]:
    """Whether a random shape fits by the table of slots, whether a simulation starts it, and what was asked."""
    after = AfterCycle.of(cycle)
    there = ClusterMap(after)
    for _ in range(SHAPES):
        requests = {GPU: rng.randint(1, 4), "cpu": 1000 * rng.randint(0, 4), "pods": 1}
        shape = PodSet(
            name="main", count=rng.randint(1, 5), requests={name: n for name, n in requests.items() if n}
        )
        rows = [there.slots(shape, flavor) for flavor in there.flavors]
        for at, level in enumerate((*there.levels, ANYWHERE)):
            said = simulate(after, _gang(shape, level))
            yield any(found[at].gangs for found in rows), bool(said.places), f"{shape} at {level}"


@pytest.mark.parametrize("seed", range(10))
def test_slots_agree_with_simulations(seed: int) -> None:
    for fits, starts, asked in _asked(_cycle(seed, settled=True), random.Random(seed)):
        assert fits == starts, asked


@pytest.mark.parametrize("seed", range(10))
def test_while_pods_land_slots_promise_nothing_that_would_not_start(seed: int) -> None:
    """Hosts where pods land are no room in the table; a gang that has one way to land may share them all the same."""
    for fits, starts, asked in _asked(_cycle(seed, settled=False), random.Random(seed)):
        assert starts or not fits, asked
