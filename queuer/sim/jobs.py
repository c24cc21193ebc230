"""The jobs of a virtual cluster: their part of the story, and what has become of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, nextafter

from queuer.domain.nodes import flavor_of
from queuer.domain.past_use import Interval
from queuer.domain.workload import Workload, demand_of
from queuer.sim.scenario import Scenario, Story
from queuer.solver.ends import end_of
from queuer.solver.records import Admitted
from queuer.solver.world import Pods

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
class SimulatedJob:
    """A workload of the story; the world knows where it stands now.

    `number`: its place in the story. `arrived`: it was submitted, or deleted before that. Times in seconds: `began`,
    all pods of its last run bound; `started`, first admission; `evictions`. `guess`: its estimate at its last start.
    """

    number: int
    story: Story
    workload: Workload
    arrived: bool
    began: float
    started: float | None = None
    guess: float | None = None
    evictions: list[float] = field(default_factory=list)

    @property
    def uid(self) -> str:
        """The workload's."""
        return self.story.workload.uid


def run_end(began: float, runtime: float) -> float:
    """The end of a run: after it began, if only by the least that a float can tell at that time."""
    return max(began + runtime, nextafter(began, inf))


def job_of(story: Story, *, number: int) -> SimulatedJob:
    """A job at the start of its story."""
    runs, submitted = bool(story.nodes), story.workload.submitted
    started = submitted if runs else None
    return SimulatedJob(
        number=number, story=story, workload=story.workload, arrived=runs, began=submitted, started=started
    )


def initial_run(story: Story, scenario: Scenario) -> tuple[Admitted, Pods]:
    """The run of a workload that runs at time 0, and its pods."""
    workload, room = story.workload, dict(story.nodes)
    nodes = {node.name: node for node in scenario.nodes}
    pods = {p.name: _share_out(room, p.count) for p in workload.pod_sets}
    firsts = {name: next(iter(there), None) for name, there in pods.items()}
    run = Admitted(
        workload=workload,
        counts={name: sum(there.values()) for name, there in pods.items()},
        flavors={
            name: (flavor_of(nodes[first], scenario.flavors) if first else None) or ""
            for name, first in firsts.items()
        },
        since=workload.submitted,
        expected_end=end_of(workload, start=workload.submitted),
    )
    return run, pods


def _share_out(room: dict[str, int], count: int) -> dict[str, int]:
    got: dict[str, int] = {}
    for name in list(room):
        here = min(count, room[name])
        if here:
            got[name] = here
            room[name] -= here
            count -= here
    return got


def interval_of(run: Admitted, *, closed: float | None = None) -> Interval:
    """The use of a run, until it closes."""
    amounts = demand_of(run.workload.pod_sets, run.counts)
    return Interval(queue=run.workload.queue, amounts=amounts, opened=run.since, closed=closed)
