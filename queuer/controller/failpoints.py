"""Named points between side effects where a test can kill or freeze this process.

    QUEUER_FAILPOINTS="committed=kill,patched=stop@3"

`kill` and `stop` send the signal to this process itself, at once and without clean-up, as a crash or a pause
of the machine would. The log says so before. `@n` = at the n-th passage (default the first). Unset, a point
costs one dict lookup.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass, field
from enum import StrEnum

log = logging.getLogger("failpoints")


class Point(StrEnum):
    """Every pair of side effects has one between them."""

    DECIDED = "decided"  # a plan is there, nothing is committed
    COMMITTED = "committed"  # admissions and evictions are in the database, nothing is patched
    ADMITTED = "admitted"  # a job is unsuspended, the database does not know
    SUSPENDED = "suspended"  # a job is suspended again, the database does not know
    TAKEN_IN = "taken-in"  # new jobs are in the database, nothing is decided
    BEFORE_RELEASE = "before-release"  # pods are gone, the ledger is open
    RELEASED = "released"  # the ledger is closed, memory does not know
    WITHDRAWING = "withdrawing"  # a withdrawal is committed, the job does not carry it
    WITHDRAWN = "withdrawn"  # the job carries the withdrawal, the ledger is open
    ROLLED_BACK = "rolled-back"  # an eviction by landing is committed, nothing is patched
    REQUEUED = "requeued"  # a job is back in its queue in the database, memory does not know
    RECHARGED = "recharged"  # the ledger charges another size, memory does not know
    ADOPTED = "adopted"  # what runs beside the queue is charged, its job does not say so
    REPAIRED = "repaired"  # the auditor has put the ledger right
    LEADING = "leading"  # leadership is won, nothing is read
    INHERITED = "inherited"  # what earlier leaders left is sorted out, nothing of it is sent


class Deed(StrEnum):
    """The act at a point."""

    KILL = "kill"
    STOP = "stop"


@dataclass(slots=True)
class _Armed:
    deed: Deed
    passages: int


@dataclass(frozen=True, slots=True)
class Failpoints:
    """The armed points of this process; none by default."""

    armed: dict[Point, _Armed] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Failpoints:
        """From `point=deed[@n],…`. Raises ValueError naming what is unknown."""
        armed: dict[Point, _Armed] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, _, action = part.partition("=")
            deed, _, passage = action.partition("@")
            armed[Point(name)] = _Armed(Deed(deed), int(passage or 1))
        return cls(armed)

    async def at(self, point: Point) -> None:
        """Pass `point`: do what it is armed with, if this is the passage meant."""
        armed = self.armed.get(point)
        if armed is None:
            return
        armed.passages -= 1
        if armed.passages:
            return
        log.warning("failpoint %s: %s", point, armed.deed)
        os.kill(os.getpid(), signal.SIGKILL if armed.deed is Deed.KILL else signal.SIGSTOP)
