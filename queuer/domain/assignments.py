"""A plan's answer for single gangs: the place of their pods, evictions and their causes, bonds and reservations.

The solver makes these records, the store keeps them, and the controller carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Where one pod set goes: one flavor, a number of pods on each host (sum > 0), and the pin that says so
    to kube-scheduler.

    `selector`: node labels to require (flavor labels and, where safe, the widest domain). `hosts`: node names
    to require beside the selector, None = any node under the selector.
    """

    pod_set: str
    flavor: str
    nodes: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hosts: tuple[str, ...] | None = None

    @property
    def count(self) -> int:
        """Pods of this set that are admitted."""
        return sum(self.nodes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A gang to unsuspend now."""

    uid: str
    assignments: tuple[Assignment, ...]


class EvictionRule(StrEnum):
    """Reclaim takes back a guarantee, preempt displaces lower priority."""

    RECLAIM = "reclaim"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A gang to evict now for the sake of `beneficiary` (a workload uid), with the rule that permits it."""

    uid: str
    beneficiary: str
    rule: EvictionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Bond:
    """A gang's proven place and quota, held for it while its victims leave. It ends at `deadline` or when it
    landed. `victims`: those evicted for it, and others whose room it needs: who leaves anyway, victims of other gangs.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    victims: tuple[str, ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Capacity held from `start` for a gang that is blocked by capacity alone.

    A `start` that has come: no end is known, and what the place has or gets is kept for the gang from then on.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    start: float
    expires: float


class SolveStatus(StrEnum):
    """What CP-SAT did in this cycle."""

    GREEDY = "GREEDY"  # not asked: nothing was contested, or budget 0
    OPTIMAL = "OPTIMAL"  # asked, and every answer proven best within its window
    FEASIBLE = "FEASIBLE"  # asked, and some answer not proven best, or none found
    FAILED = (
        "FAILED"  # the solver process was late or dead, or its plan refused: decided again without CP-SAT
    )
