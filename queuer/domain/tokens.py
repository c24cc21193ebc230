"""Reason tokens, which are stable, and the verdict that goes with each.

Tokens follow Kueue's KEP-10852 where a meaning exists there, so that users and alerts can carry over.
"""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What the reader should do: change the job or queue, wait, release a hold, or call the operator."""

    CHANGE = "CHANGE"
    WAIT = "WAIT"
    HELD = "HELD"
    ESCALATE = "ESCALATE"


class Token(StrEnum):
    """Stable reason tokens. None is generic."""

    MISCONFIGURED = "Misconfigured"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    BORROWING_LIMIT_REACHED = "BorrowingLimitReached"
    BEHIND_IN_QUEUE = "BehindInQueue"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    PENDING_EVALUATION = "PendingEvaluation"
    SOLVER_DEFERRED = "SolverDeferred"
    SUSPENDED = "Suspended"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"
    ADMITTED_NOT_PLACED = "AdmittedNotPlaced"
    NODES_UNAVAILABLE = "NodesUnavailable"
    CONTROLLER_STALE = "ControllerStale"
    QUARANTINED = "Quarantined"

    @property
    def verdict(self) -> Verdict:
        """The verdict that goes with this token."""
        return _VERDICTS.get(self, Verdict.WAIT)


_VERDICTS = {
    Token.MISCONFIGURED: Verdict.CHANGE,
    Token.NO_MATCHING_FLAVOR: Verdict.CHANGE,
    Token.EXCEEDS_MAX_QUOTA: Verdict.CHANGE,
    Token.SUSPENDED: Verdict.HELD,
    Token.ON_HOLD: Verdict.HELD,
    Token.DEACTIVATED: Verdict.HELD,
    Token.ADMITTED_NOT_PLACED: Verdict.ESCALATE,
    Token.NODES_UNAVAILABLE: Verdict.ESCALATE,
    Token.CONTROLLER_STALE: Verdict.ESCALATE,
    Token.QUARANTINED: Verdict.ESCALATE,
}
