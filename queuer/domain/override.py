"""A hold or a priority that was set over REST: it beats what the job says itself until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from queuer.domain.workload import Workload

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[V]):
    """A value that somebody has set. `at`: seconds. `administered`: who administers the queue set it; then nobody else
    changes it.
    """

    value: V
    by: str
    at: float
    reason: str = ""
    administered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """The settings of a job, each by whom set it last; None = as the job says itself."""

    hold: Setting[bool] | None = None
    priority: Setting[int] | None = None

    @property
    def empty(self) -> bool:
        """Whether it says nothing: the job's own words count again."""
        return self.hold is None and self.priority is None


def overridden(workload: Workload, override: Override | None) -> Workload:
    """The workload as it counts."""
    if override is None:
        return workload
    hold = workload.hold if override.hold is None else override.hold.value
    priority = workload.priority if override.priority is None else override.priority.value
    return replace(workload, hold=hold, priority=priority)
