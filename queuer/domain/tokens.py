"""Reason tokens, which are stable, and the verdict that goes with each.

Tokens follow Kueue's KEP-10852 where a meaning exists there, so that users and alerts can carry over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    ADMITTED_NOT_PLACED = "AdmittedNotPlaced"
    NODES_UNAVAILABLE = "NodesUnavailable"
    CONTROLLER_STALE = "ControllerStale"
    QUARANTINED = "Quarantined"

    @property
    def verdict(self) -> Verdict:
        """The verdict that goes with this token."""
        return ROWS[self].verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a token says. `meaning`: it waits because; `advice`: what its owner, or whoever is named, does next."""

    verdict: Verdict
    meaning: str
    advice: str


def _row(verdict: Verdict, meaning: str, advice: str) -> Row:
    return Row(verdict=verdict, meaning=meaning, advice=advice)


ROWS: Mapping[Token, Row] = {
    Token.MISCONFIGURED: _row(
        Verdict.CHANGE, "A field of the job is wrong, or its queue is none that it may use.",
        "Mend what the sentence names. All faults are told at once.",
    ),
    Token.NO_MATCHING_FLAVOR: _row(
        Verdict.CHANGE, "No node of the flavors that its queue allows accepts its selectors and tolerations.",
        "Change selectors or tolerations, or the flavors of the queue.",
    ),
    Token.EXCEEDS_MAX_QUOTA: _row(
        Verdict.CHANGE, "It asks for more than its queue may ever use, or than the cluster has.",
        "Ask for less, or have the limit that the sentence names raised.",
    ),
    Token.WAITING_FOR_QUOTA: _row(
        Verdict.WAIT, "A limit on its path is reached, or it is not preemptible and would have to borrow. "
        "The row is named, the nearest first. Or its user has as much as one may (`perUser`).",
        "Wait until others end, or have the limit raised.",
    ),
    Token.BORROWING_LIMIT_REACHED: _row(
        Verdict.WAIT, "Its queue's guarantee is used, it would borrow, and a limit on its path is reached.",
        "Wait until others end, or have the guarantee or the limit raised.",
    ),
    Token.BEHIND_IN_QUEUE: _row(
        Verdict.WAIT, "A strict head, a reservation, a landing job or one for which room is held goes first. "
        "Or as many jobs of its namespace are before it as the queue considers (`maxPending`).",
        "Wait. Where the one ahead can never start, its owner has to change, hold or delete it.",
    ),
    Token.TOPOLOGY_PLACEMENT_FAILED: _row(
        Verdict.WAIT, "No domain has room for all its pods. The best domain and the missing pods are named.",
        "Wait, or ask for a wider level or fewer pods: `queuer why` tells what was tried.",
    ),
    Token.WAITING_FOR_PREEMPTED_WORKLOADS: _row(
        Verdict.WAIT, "Its place is held, and those who are evicted for it are leaving.",
        "Wait: it starts when their pods are gone.",
    ),
    Token.PENDING_EVALUATION: _row(
        Verdict.WAIT, "It is too new, something it needed was given back after its turn, or it came back from a start.",
        "Wait for the next cycle, or for the time that is told.",
    ),
    Token.SOLVER_DEFERRED: _row(
        Verdict.WAIT, "This cycle came to no decision about it, as when the verifier took it out of the plan.",
        "Wait for the next cycle. Where it stays, tell an operator.",
    ),
    Token.SUSPENDED: _row(
        Verdict.HELD, "Its queue, or one above it, is held or draining.",
        "Ask who administers the queue: `queuer queue resume`.",
    ),
    Token.ON_HOLD: _row(
        Verdict.HELD, "The job is held, by its own annotation or by a command.",
        "`queuer release`, or take the annotation `hold` off.",
    ),
    Token.ADMITTED_NOT_PLACED: _row(
        Verdict.ESCALATE, "It was started, and its pods did not all land. What kube-scheduler said is told.",
        "Mend what the nodes lack, or what the pods ask for; it is tried again with back-off.",
    ),
    Token.NODES_UNAVAILABLE: _row(
        Verdict.ESCALATE, "Every node that would do is cordoned, not ready or avoided, or there is none.",
        "An operator brings nodes back.",
    ),
    Token.CONTROLLER_STALE: _row(
        Verdict.ESCALATE, "The controller was not heard of, or Kubernetes does not answer it: nothing starts.",
        "An operator starts what is down, or finds out what keeps it.",
    ),
    Token.QUARANTINED: _row(
        Verdict.ESCALATE, "Handling it failed. The error is named, and it is tried again with back-off.",
        "An operator looks at the error.",
    ),
}  # fmt: skip
