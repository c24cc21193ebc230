"""The load of Kueue's baseline performance test: five cohorts of six queues that may borrow from each other, three
classes of one-pod jobs in each queue, and one node that is never full, so that quota alone binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from queuer.domain.document import parse_queue
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import QueueTree
from queuer.domain.workload import PodSet, Workload
from queuer.sim.scenario import Scenario, Story
from queuer.solver.records import NodeState, Pending, Snapshot

COHORTS, LEAVES = 5, 6
GUARANTEED, BORROWED = 20, 100
"""CPU of a leaf's own, and the most that it may borrow."""
QUOTA = COHORTS * LEAVES * GUARANTEED
"""CPU of all cohorts."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """`count`: jobs in each queue; `every`: seconds from one to the next; `runtime`: seconds."""

    name: str
    count: int
    every: float
    cpu: int
    runtime: float
    priority: int


CLASSES = (
    JobClass("small", 350, 0.1, 1, 0.2, 50),
    JobClass("medium", 100, 0.5, 5, 0.5, 100),
    JobClass("large", 50, 1.2, 20, 1.0, 200),
)
NODE, UNIT = "node", JobClass("unit", 1, 0.0, 1, 0.0, 100)


def leaves() -> list[str]:
    """Paths of the thirty leaves."""
    return [f"root.cohort-{c}.q-{c}-{i}" for c in range(COHORTS) for i in range(LEAVES)]


def bodies(*, guaranteed: int = GUARANTEED, borrowed: int = BORROWED) -> dict[str, dict[str, Any]]:
    """Queues by path, as in a QueueTree document."""
    total = str(LEAVES * guaranteed)
    found: dict[str, dict[str, Any]] = {"root": {}}
    for c in range(COHORTS):
        found[f"root.cohort-{c}"] = {"quota": [{"resource": "cpu", "guaranteed": total, "limit": total}]}
    for path in leaves():
        row = {"resource": "cpu", "guaranteed": str(guaranteed), "limit": str(guaranteed + borrowed)}
        found[path] = {"quota": [row]}
    return found


def job(queue: str, cls: JobClass, number: int, *, submitted: float) -> Workload:
    """One job of a class."""
    name = f"{queue.rpartition('.')[2]}-{cls.name}-{number}"
    requests = {"cpu": 1_000 * cls.cpu, "pods": 1}
    return Workload(
        uid=name,
        kind="Job",
        namespace="bench",
        name=name,
        queue=queue,
        pod_sets=(PodSet(name="main", count=1, requests=requests),),
        submitted=submitted,
        priority=cls.priority,
    )


def stream(scale: float, *, runtime_factor: float = 1.0, jitter: float = 0.0) -> Scenario:
    """Jobs come at the test's pace, `scale` times as many, each so many times as long, and up to `jitter` seconds later
    than there.
    """
    late = Random(0)
    stories = [
        Story(
            workload=job(path, cls, i, submitted=round((i + 1) * cls.every + late.uniform(0.0, jitter), 3)),
            runtime=cls.runtime * runtime_factor,
        )
        for path in leaves()
        for cls in CLASSES
        for i in range(max(1, round(cls.count * scale)))
    ]
    return Scenario(
        name="stream",
        why="the pace of Kueue's baseline test",
        grace=0.0,
        until=inf,
        topology=Topology(),
        flavors=(),
        nodes=(_node(len(stories)),),
        foreign=(),
        queues=bodies(),
        stories=tuple(stories),
        events=(),
        expect=(),
    )


def least_makespan(scenario: Scenario, *, landing: float) -> float:
    """Seconds from the first submission in which nobody could run all jobs: for each moment, what comes from then on
    must run on the quota of all cohorts, each job holding it while its pods land and run.
    """
    work, least = 0.0, 0.0
    first = min(s.workload.submitted for s in scenario.stories)
    for story in sorted(scenario.stories, key=lambda s: -s.workload.submitted):
        cpu, lasts = story.workload.demand["cpu"] / 1_000, landing + (story.runtime or 0.0)
        work += cpu * lasts
        least = max(least, story.workload.submitted - first + max(work / QUOTA, lasts))
    return least


def backlog(jobs: int) -> Snapshot:
    """So many jobs of one CPU, spread evenly; all of them fit."""
    paths = leaves()
    workloads = [job(paths[i % len(paths)], UNIT, i, submitted=0.0) for i in range(jobs)]
    return Snapshot(
        nodes=(NodeState(node=_node(jobs)),),
        tree=QueueTree.of(
            parse_queue(path, body) for path, body in bodies(guaranteed=jobs, borrowed=jobs).items()
        ),
        pending=tuple(Pending(workload=w) for w in workloads),
    )


def _node(jobs: int) -> Node:
    """A node that holds all jobs at once, ten times over."""
    room = {"cpu": 1_000 * 200 * jobs, "memory": 2**50, "pods": 10 * jobs}
    return Node(name=NODE, labels={HOSTNAME: NODE}, allocatable=room)
