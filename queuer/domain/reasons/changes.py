"""One change that would let a waiting job start, as the decision tried it. It is made once, and said here alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queuer.domain.quantity import amount_text
from queuer.domain.reasons.amounts import plural


class ChangeKind(StrEnum):
    """The subject of a change: the job, limits of queues, or another job that runs."""

    LEVEL = "level"
    COUNT = "count"
    PREEMPTIBLE = "preemptible"
    LIMITS = "limits"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The least limit of a queue that is enough, in base units."""

    queue: str
    resource: str
    flavor: str | None
    amount: int

    @property
    def text(self) -> str:
        """`8 gpu on h100`."""
        amount = amount_text(self.amount, self.resource)
        return amount if self.flavor is None else f"{amount} on {self.flavor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A change, and how many workloads are evicted for the job even then.

    LEVEL has the wider `level` to ask for, None = any. COUNT has the `count` of a `pod_set` that fits. LIMITS has
    `limits` queue by queue. END has the `job` that has to end, as `holders` of an explanation have it.
    """

    kind: ChangeKind
    evictions: int = 0
    level: str | None = None
    pod_set: str = ""
    count: int = 0
    limits: tuple[Limit, ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The change in a line; a job that the reader may not see is told by its queue and amount."""
        match self.kind:
            case ChangeKind.LEVEL:
                return f"all pods in one {self.level}" if self.level else "pods anywhere"
            case ChangeKind.COUNT:
                return f"at most {plural(self.count, 'pod')} in {self.pod_set}"
            case ChangeKind.PREEMPTIBLE:
                return "being preemptible"
            case ChangeKind.LIMITS:
                there: dict[str, list[str]] = {}
                for row in self.limits:
                    there.setdefault(row.queue, []).append(row.text)
                return " and ".join(
                    f"a limit of {', '.join(rows)} in {queue}" for queue, rows in there.items()
                )
            case ChangeKind.END:
                has = amount_text(self.job["amount"], self.job["resource"])
                who = f"a job of {self.job['queue']} with {has}"
                if "name" in self.job:
                    who = f"{self.job['namespace']}/{self.job['name']}"
                return f"{who} {'is evicted, as is ordered' if self.job.get('ordered') else 'ends'}"


def with_evictions(change: str, evictions: int) -> str:
    """The change in a line, and what it costs."""
    return f"{change} ({plural(evictions, 'eviction')})" if evictions else change
