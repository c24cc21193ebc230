"""A workload of the virtual cluster and what has become of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, nextafter

from queuer.domain.assignments import Assignment
from queuer.domain.nodes import Node, flavor_of
from queuer.domain.past import Interval
from queuer.domain.quantity import Resources, add
from queuer.domain.workload import Workload, demand_of
from queuer.sim.scenario import Scenario, Story
from queuer.solver.ends import end_of
from queuer.solver.records import Admitted, Unbound

HOUR = 3600.0
"""Seconds within which evictions of a job count as recent."""


class Stage(StrEnum):
    """Where a job of the virtual cluster stands."""

    FUTURE = "future"
    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"  # evicted: its pods are going, then it waits again
    ENDING = "ending"  # deleted: its pods are going
    ENDED = "ended"


@dataclass(slots=True, kw_only=True)
class Job:
    """A workload of the story and what has become of it. `number`: its place in the story. `pods`: by pod set
    and node, where they are planned. `hosts`: by pod set where they may land, while they have not. `landed`: when all
    are bound, seconds. `gone`: when its pods go. `guess`: its estimate when it last started.
    """

    number: int
    story: Story
    workload: Workload
    stage: Stage
    since: float = 0.0
    pods: dict[str, dict[str, int]] = field(default_factory=dict)
    flavors: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    landed: float = -inf
    gone: float = 0.0
    first: bool = False
    started: float | None = None
    guess: float | None = None
    evictions: list[float] = field(default_factory=list)
    displaced_by: frozenset[str] = frozenset()

    @property
    def present(self) -> bool:
        """Whether its pods hold capacity."""
        return self.stage in (Stage.RUNNING, Stage.LEAVING, Stage.ENDING)

    @property
    def end(self) -> float | None:
        """When it ends by itself: a run begins when all pods are bound."""
        if self.story.runtime is None or self.stage is not Stage.RUNNING:
            return None
        return run_end(max(self.since, self.landed), self.story.runtime)

    def counts(self) -> dict[str, int]:
        """Pods by pod set."""
        return {p.name: sum(self.pods.get(p.name, {}).values()) for p in self.workload.pod_sets}

    def on_nodes(self) -> dict[str, dict[str, int]]:
        """Requests by node."""
        found: dict[str, dict[str, int]] = {}
        for pod_set in self.workload.pod_sets:
            for node, count in self.pods.get(pod_set.name, {}).items():
                found[node] = add(found.get(node, {}), pod_set.requests, times=count)
        return found


def run_end(since: float, runtime: float) -> float:
    """When a run ends: after it began, if only by the least that a float can tell at that time."""
    return max(since + runtime, nextafter(since, inf))


def job_of(story: Story, scenario: Scenario, *, number: int) -> Job:
    """A job at the start of its story."""
    job = Job(number=number, story=story, workload=story.workload, stage=Stage.FUTURE)
    if story.nodes:
        nodes = {n.name: n for n in scenario.nodes}
        room = dict(story.nodes)
        job.stage, job.since, job.started = Stage.RUNNING, story.workload.submitted, story.workload.submitted
        for pod_set in story.workload.pod_sets:
            job.pods[pod_set.name] = _share_out(room, pod_set.count)
            first = next(iter(job.pods[pod_set.name]), None)
            job.flavors[pod_set.name] = (flavor_of(nodes[first], scenario.flavors) if first else None) or ""
    return job


def _share_out(room: dict[str, int], count: int) -> dict[str, int]:
    got: dict[str, int] = {}
    for name in list(room):
        here = min(count, room[name])
        if here:
            got[name] = here
            room[name] -= here
            count -= here
    return got


def interval_of(job: Job, *, closed: float | None = None) -> Interval:
    """What a run uses, until it closes."""
    amounts = demand_of(job.workload.pod_sets, job.counts())
    return Interval(queue=job.workload.queue, amounts=amounts, opened=job.since, closed=closed)


def hosts_of(assignment: Assignment, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Where kube-scheduler may put the pods: the hosts of the pin, else all nodes under its selector."""
    if assignment.hosts is not None:
        return assignment.hosts
    wanted = assignment.selector.items()
    return tuple(n.name for n in nodes if wanted <= n.labels.items())


def admitted_of(job: Job, *, now: float) -> Admitted:
    """A job that holds capacity, as the decision sees it."""
    counts: dict[str, int] = job.counts()
    bound: dict[str, Resources] = {} if job.hosts else dict(job.on_nodes())
    return Admitted(
        workload=job.workload,
        counts=counts,
        flavors=job.flavors,
        since=job.since,
        bound=bound,
        unbound=tuple(
            Unbound(pod_set=name, count=counts[name], hosts=hosts) for name, hosts in job.hosts.items()
        ),
        releasing=job.stage is not Stage.RUNNING,
        gone_by=None if job.stage is Stage.RUNNING else job.gone,
        expected_end=end_of(job.workload, start=job.since),
        displaced_by=job.displaced_by,
        evicted=sum(at > now - HOUR for at in job.evictions),
    )
