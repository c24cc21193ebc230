"""A workload: one user job of any kind, admitted whole, and the states it goes through.

`TRANSITIONS` is the one table of legal steps. The controller takes a step with `State.to`. The store compares
the state before and writes the state after. Neither spells a state that the table lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from types import MappingProxyType

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.quantity import Resources

GRACE = 30.0
"""Seconds that pods are given to end where they do not say: the default of Kubernetes."""


class State(StrEnum):
    """Where a workload is. "Running" is never said before every pod of the gang runs."""

    QUEUED = "Queued"
    HELD = "Held"
    ADMITTED = "Admitted"
    PLACING = "Placing"
    RUNNING = "Running"
    EVICTING = "Evicting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def waiting(self) -> bool:
        """Not admitted and not ended."""
        return self in (State.QUEUED, State.HELD)

    @property
    def ended(self) -> bool:
        """Terminal. Its pods may still hold capacity (releasing)."""
        return self in (State.SUCCEEDED, State.FAILED)

    @property
    def evictable(self) -> bool:
        """Whether a workload in this state can be evicted."""
        return (self, State.EVICTING) in TRANSITIONS

    def to(self, after: State) -> State:
        """The state after a step. Raises IllegalTransition where `TRANSITIONS` does not have it."""
        if (self, after) not in TRANSITIONS:
            raise IllegalTransition(f"a workload does not go from {self} to {after}")
        return after


class IllegalTransition(ValueError):
    """A step that no workload takes: a fault of the program."""


_WAITING = (State.QUEUED, State.HELD)
_STARTED = (State.ADMITTED, State.PLACING, State.RUNNING)
_STEPS: tuple[tuple[tuple[State, ...], tuple[State, ...], str], ...] = (
    ((State.QUEUED,), (State.HELD,), "the job is put on hold"),
    ((State.HELD,), (State.QUEUED,), "the hold ends"),
    (_WAITING, (State.ADMITTED,), "a plan starts it, or it was started beside the queue and is charged"),
    ((State.ADMITTED,), (State.PLACING, State.RUNNING), "the job carries the admission, and its pods land"),
    ((State.PLACING,), (State.RUNNING,), "every pod runs"),
    (_STARTED, (State.EVICTING,), "it is evicted, or somebody else suspends it"),
    ((*_STARTED, State.EVICTING), _WAITING, "its pods are gone, or its admission was taken back"),
    ((*_WAITING, *_STARTED, State.EVICTING), (State.SUCCEEDED, State.FAILED), "its job ends or is deleted"),
)
TRANSITIONS: Mapping[tuple[State, State], str] = MappingProxyType(
    {step: cause for before, after, cause in _STEPS for step in product(before, after)}
)
"""What makes a workload go from one state to the next. Several steps of one moment are one, if the table has it."""


class Cause(StrEnum):
    """Why a workload is evicted or ends, other than by a plan: its rules are `domain.assignments.EvictionRule`."""

    COMMAND = "command"
    DELETED = "deleted"
    LANDING_TIMEOUT = "landing-timeout"
    LOST_PODS = "lost-pods"
    MAX_RUNTIME = "max-runtime"
    SUSPENDED = "suspended"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one role and shape.

    `requests`: effective requests of one pod in base units, `pods: 1` included. `limits`: its effective limits, and
    `unstated`: amounts that some container does not state, both by key of a ResourceQuota. `exclusive_host`: required
    anti-affinity of the set with itself per host, so at most one pod a node. `required`, `preferred`: a level for
    the pods of this set together, apart from the other sets.
    """

    name: str
    count: int
    requests: Resources
    min_count: int | None = None
    terms: SchedulingTerms = field(default_factory=SchedulingTerms)
    exclusive_host: bool = False
    limits: Resources = field(default_factory=dict)
    unstated: tuple[str, ...] = ()
    required: str | None = None
    preferred: str | None = None

    @property
    def least(self) -> int:
        """The fewest pods that it may have."""
        return self.count if self.min_count is None else self.min_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One user job. Times are seconds since the epoch, durations seconds.

    `required`, `preferred`: a level for all pods together. `estimate`: expected run time, learned or declared;
    `estimate_runs`: how many runs of jobs like it taught it, 0 = only others of its queue, None = it was not learned;
    `max_runtime`: the declared upper bound.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    submitted: float
    priority: int = 0
    user: str = ""
    preemptible: bool = True
    required: str | None = None
    preferred: str | None = None
    max_runtime: float | None = None
    estimate: float | None = None
    estimate_runs: int | None = None
    hold: bool = False

    @property
    def demand(self) -> Mapping[str, int]:
        """Requests of all pods at full size, by resource."""
        return demand_of(self.pod_sets, {p.name: p.count for p in self.pod_sets})

    def ask(self, declared: Mapping[str, int] | None = None) -> Workload:
        """The wish of its owner: a job was edited if this differs, and only then.

        Neither what was learned of its run time nor how long it has waited belongs to it. `declared`: pods by
        pod set as its owner wrote. Pods that have succeeded or are still to be made are no edit, nor is a hold.
        """
        sets = (
            self.pod_sets
            if declared is None
            else tuple(
                replace(
                    p,
                    count=declared.get(p.name, 0),
                    min_count=None if p.min_count == p.count else p.min_count,
                )
                for p in self.pod_sets
            )
        )
        hold = self.hold and declared is None
        return replace(self, pod_sets=sets, hold=hold, submitted=0.0, estimate=None, estimate_runs=None)


def demand_of(pod_sets: tuple[PodSet, ...], counts: Mapping[str, int]) -> dict[str, int]:
    """Requests of `counts[name]` pods of each set, summed by resource."""
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        for resource, amount in pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * counts[pod_set.name]
    return total
