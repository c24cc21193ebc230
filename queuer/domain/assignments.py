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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The admission in force. `id` is also in the job's annotation.

    `patched`: when the job was unsuspended, as far as we know; None = not yet. `unconfirmed`: it was evicted, and
    the PATCH that says so may still be under way: until then the job may start.
    `reduced`: pods by pod set that are still charged, where others of them will run no more; None = all. `due`: when
    the charge is corrected, because it is not what the job can still run; None = it is.
    """

    id: str
    epoch: int
    cycle: int
    at: float
    assignments: tuple[Assignment, ...]
    patched: float | None = None
    unconfirmed: bool = False
    reduced: Mapping[str, int] | None = None
    due: float | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Admitted pods by pod set."""
        return {a.pod_set: a.count for a in self.assignments}

    @property
    def held(self) -> Mapping[str, int]:
        """Charged pods by pod set."""
        return self.counts if self.reduced is None else self.reduced

    @property
    def hosts(self) -> frozenset[str]:
        """The nodes that the plan uses."""
        return frozenset(node for a in self.assignments for node in a.nodes)


class EvictionRule(StrEnum):
    """Reclaim takes back a guarantee, preempt displaces lower priority."""

    RECLAIM = "reclaim"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWork:
    """The work that an eviction loses, in base units of `resource` times seconds since the start or last checkpoint.

    `all`: what all evictions for the same gang lose. `next`: what the next best set that was looked at would lose; None
    = no other was found, or its jobs are measured in other resources. `proved`: on the nodes that were looked at no set
    is cheaper. `jobs`: for how many waiting jobs the set was chosen together.
    """

    resource: str
    amount: int
    all: int = 0
    next: int | None = None
    proved: bool = False
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A gang to evict now for the sake of `beneficiary` (a workload uid), with the rule that permits it. `lost`: told
    to people; it makes no other eviction.
    """

    uid: str
    beneficiary: str
    rule: EvictionRule
    lost: LostWork | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bond:
    """A gang's proven place and quota, held for it while its victims leave. It ends at `deadline` or as it
    starts. `victims`: those evicted for it, and others whose room it needs: who leaves anyway, victims of other gangs.
    `lost`: by all evictions for it; told to people, and forgotten when another controller leads.
    """

    uid: str
    assignments: tuple[Assignment, ...]
    victims: tuple[str, ...]
    deadline: float
    lost: LostWork | None = field(default=None, compare=False)


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
    """CP-SAT's part in this cycle."""

    GREEDY = "GREEDY"  # not asked: nothing was contested, or budget 0
    OPTIMAL = "OPTIMAL"  # asked, and every answer proven best within its window
    FEASIBLE = "FEASIBLE"  # asked, and some answer not proven best, or none found
    FAILED = (
        "FAILED"  # the solver process was late or dead, or its plan refused: decided again without CP-SAT
    )
