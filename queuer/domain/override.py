"""A hold or a priority that was set over REST: it beats what the job says itself until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass, replace

from queuer.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """`hold`, `priority`: None = as the job says itself. `by`, `at` (seconds), `reason`: of the last change.

    `administered`: who administers the queue made it; then nobody else changes it.
    """

    hold: bool | None = None
    priority: int | None = None
    by: str
    at: float
    reason: str = ""
    administered: bool = False

    @property
    def empty(self) -> bool:
        """Whether it says nothing: the job's own words count again."""
        return self.hold is None and self.priority is None


def overridden(workload: Workload, override: Override | None) -> Workload:
    """The workload as it counts."""
    if override is None:
        return workload
    hold = workload.hold if override.hold is None else override.hold
    priority = workload.priority if override.priority is None else override.priority
    return replace(workload, hold=hold, priority=priority)
