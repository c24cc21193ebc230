"""Why a workload waits: tokens that are stable, a verdict for each, and the explanation with its numbers.

Tokens follow Kueue's KEP-10852 where a meaning exists there, so that users and alerts can carry over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from queuer.domain.errors import FieldProblem
from queuer.domain.quota import Account

LONGEST = 600
"""Characters of a sentence that quotes what somebody wrote, which may be a quarter of a megabyte of annotation."""


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
}


class Exclusion(StrEnum):
    """Why a node has no room for a pod; the first that applies counts."""

    FLAVOR = "Flavor"  # belongs to another flavor
    SELECTOR = "Selector"  # node selector or affinity
    TAINT = "Taint"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    AVOIDED = "Avoided"  # the gang did not land there before
    FULL = "Full"
    RESERVED = "Reserved"


class Deferral(StrEnum):
    """Why neither a place for a gang was found nor a proof that there is none."""

    TIME = "Time"  # the exact solver had none for it
    SIZE = "Size"  # too large a question for the exact solver
    RESERVED = "Reserved"  # an answer that breaks a reservation
    LANDING = "Landing"  # an answer in which gangs could not land beside each other
    CROSSING = "Crossing"  # an answer in which pod sets of the gang itself could not
    UNSOUND = "Unsound"  # an answer that nodes, quota or rights to evict, looked at once more, do not bear
    OUTSCORED = "Outscored"  # the plan with the exact solver's answers scored less than this one
    PLAN = "Plan"  # no sound plan for the whole cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason: a sentence for people, and its figures for programs.

    `params` holds JSON values only, amounts as Kubernetes quantities, e.g.
    `{"queue": "root.research", "resource": "nvidia.com/gpu", "limit": "16", "used": "12", "asks": "8"}`.
    """

    token: Token
    text: str
    params: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def verdict(self) -> Verdict:
        """The token's verdict; CHANGE where `params` say that not even an `idle` cluster could hold the job, or that it
        is behind one that can `never` start.
        """
        never = self.params.get("idle") is True or self.params.get("never") is True
        return Verdict.CHANGE if never else self.token.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The one primary reason of a waiting workload and all others that hold.

    `would_admit`: checked changes that would let it start now, JSON objects such as
    `{"change": "topology=block", "evictions": 0}`; `detail`: further parts of the explanation object
    (`need`, `available`, `excluded`, `ahead`, `holders`, `reservation`, `estimate`), JSON values.
    """

    primary: Reason
    others: tuple[Reason, ...] = ()
    would_admit: tuple[Mapping[str, Any], ...] = ()
    detail: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def verdict(self) -> Verdict:
        """The verdict of the primary reason."""
        return self.primary.verdict


class Protected(NamedTuple):
    """What `minRuntime` alone keeps a gang from evicting: how many gangs, what these hold in an account by queue, the
    most first (base units), and from when on the first of them may be evicted.
    """

    account: Account
    gangs: int
    amounts: tuple[tuple[str, int], ...]
    until: float


def simple(token: Token, text: str, **params: Any) -> Explanation:
    """An explanation that is its primary reason alone."""
    return Explanation(primary=Reason(token=token, text=text, params=params))


def malformed(problems: Iterable[FieldProblem]) -> Explanation:
    """The explanation of a job that cannot be decided on as it is, whose `params` name the fields."""
    told = tuple(problems)
    text = "; ".join(map(str, told))
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return simple(Token.MISCONFIGURED, short, fields=[problem.field for problem in told])
