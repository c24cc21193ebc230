"""The table of reasons: a row for each token, with everything that anybody is ever told about it.

Tokens are stable. They follow Kueue's KEP-10852 where a meaning exists there, so that users and alerts can carry over.
A new token is a member and a row here; its sentence and next step stand in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypedDict

from queuer.domain.reasons import job_sentences as jobs
from queuer.domain.reasons import next_steps as steps
from queuer.domain.reasons import node_sentences as nodes
from queuer.domain.reasons import quota_sentences as quota
from queuer.domain.reasons.next_steps import AdvisedJob, NextStep


class Verdict(StrEnum):
    """The duty of the reader: change the job or queue, wait, release a hold, or call the operator."""

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


class OtherParams(TypedDict, total=False):
    """Figures beside a sentence that was said. `state`: of the controller. `retryAt`: when the job is tried again,
    after so many `failures`. `refusal`: of the API server. `claim`: a PersistentVolumeClaim that is not there.
    """

    queue: str
    state: str
    error: str
    failures: int
    retryAt: float
    refusal: str
    claim: str


def _no_sentence(p: Mapping[str, Any]) -> str:
    """The token is only told with a sentence that whoever tells it has said."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The words of a token. `meaning`: it waits because; `advice`: what its owner, or whoever is named, does next.

    `params`: the type of its figures. `sentence`: made of these. `next`: the step for one job. `lacks`: what others
    have and the job waits for.
    """

    verdict: Verdict
    meaning: str
    advice: str
    params: type
    sentence: Callable[[Any], str] = _no_sentence
    next: Callable[[AdvisedJob], NextStep]
    lacks: Literal["", "room", "quota"] = ""


ROWS: Mapping[Token, Row] = {
    Token.MISCONFIGURED: Row(
        verdict=Verdict.CHANGE,
        meaning="A field of the job is wrong, or its queue is none that it may use.",
        advice="Mend what the sentence names. All faults are told at once.",
        params=nodes.JobParams,
        sentence=nodes.no_level,
        next=steps.mend,
    ),
    Token.NO_MATCHING_FLAVOR: Row(
        verdict=Verdict.CHANGE,
        meaning="No node of the flavors that its queue allows accepts its selectors and tolerations.",
        advice="Change selectors or tolerations, or the flavors of the queue.",
        params=nodes.NoNodeParams,
        sentence=nodes.no_flavor,
        next=steps.fit_flavor,
    ),
    Token.EXCEEDS_MAX_QUOTA: Row(
        verdict=Verdict.CHANGE,
        meaning="It asks for more than its queue may ever use, or than the cluster has.",
        advice="Ask for less, or have the limit that the sentence names raised.",
        params=quota.QuotaParams,
        sentence=quota.exceeds_quota,
        next=steps.ask_less,
    ),
    Token.WAITING_FOR_QUOTA: Row(
        verdict=Verdict.WAIT,
        meaning="A limit on its path is reached, or it is not preemptible and would have to borrow. "
        "The row is named, the nearest first. Or its user has as much as one may (`perUser`).",
        advice="Wait until others end, or have the limit raised.",
        params=quota.QuotaParams,
        sentence=quota.waits_for_quota,
        next=steps.wait_for_quota,
        lacks="quota",
    ),
    Token.BORROWING_LIMIT_REACHED: Row(
        verdict=Verdict.WAIT,
        meaning="Its queue's guarantee is used, it would borrow, and a limit on its path is reached.",
        advice="Wait until others end, or have the guarantee or the limit raised.",
        params=quota.QuotaParams,
        sentence=quota.waits_for_quota,
        next=steps.wait_for_quota,
        lacks="quota",
    ),
    Token.BEHIND_IN_QUEUE: Row(
        verdict=Verdict.WAIT,
        meaning="A strict head, a reservation, a landing job or one for which room is held goes first. "
        "Or as many jobs of its namespace are before it as the queue considers (`maxPending`).",
        advice="Wait. Where the one ahead can never start, its owner has to change, hold or delete it.",
        params=jobs.BehindParams,
        sentence=jobs.behind,
        next=steps.wait_in_line,
        lacks="room",
    ),
    Token.TOPOLOGY_PLACEMENT_FAILED: Row(
        verdict=Verdict.WAIT,
        meaning="No domain has room for all its pods. The best domain and the missing pods are named.",
        advice="Wait, or ask for a wider level or fewer pods: `queuer why` tells what was tried.",
        params=nodes.PlaceParams,
        sentence=nodes.lacks_place,
        next=steps.wait_for_place,
        lacks="room",
    ),
    Token.WAITING_FOR_PREEMPTED_WORKLOADS: Row(
        verdict=Verdict.WAIT,
        meaning="Its place is held, and those who are evicted for it are leaving.",
        advice="Wait: it starts when their pods are gone.",
        params=jobs.BoundParams,
        sentence=jobs.bound,
        next=steps.wait,
        lacks="room",
    ),
    Token.PENDING_EVALUATION: Row(
        verdict=Verdict.WAIT,
        meaning="It is too new, something it needed was given back after its turn, or it came back from a start.",
        advice="Wait for the next cycle, or for the time that is told.",
        params=jobs.UndecidedParams,
        sentence=jobs.given_back,
        next=steps.wait,
    ),
    Token.SOLVER_DEFERRED: Row(
        verdict=Verdict.WAIT,
        meaning="This cycle came to no decision about it, as when the verifier took it out of the plan.",
        advice="Wait for the next cycle. Where it stays, tell an operator.",
        params=jobs.UndecidedParams,
        sentence=jobs.deferred,
        next=steps.wait,
        lacks="room",
    ),
    Token.SUSPENDED: Row(
        verdict=Verdict.HELD,
        meaning="Its queue, or one above it, is held or draining; or its namespace opted out.",
        advice="Ask who administers the queue: `queuer queue resume`. Or have the namespace opt in again.",
        params=jobs.SuspendedParams,
        sentence=jobs.suspended,
        next=steps.resume_queue,
    ),
    Token.ON_HOLD: Row(
        verdict=Verdict.HELD,
        meaning="The job is held, by its own annotation or by a command.",
        advice="`queuer release`, or take the annotation `hold` off.",
        params=OtherParams,
        next=steps.release,
    ),
    Token.ADMITTED_NOT_PLACED: Row(
        verdict=Verdict.ESCALATE,
        meaning="Its pods did not all land, or do not leave. What Kubernetes said is told.",
        advice="Mend what the nodes lack, or what the pods ask for; it is tried again with back-off.",
        params=OtherParams,
        next=steps.show_job,
    ),
    Token.NODES_UNAVAILABLE: Row(
        verdict=Verdict.ESCALATE,
        meaning="Every node that would do is cordoned, not ready or avoided, or there is none.",
        advice="An operator brings nodes back.",
        params=nodes.NoNodeParams,
        sentence=nodes.no_usable_node,
        next=steps.show_nodes,
        lacks="room",
    ),
    Token.CONTROLLER_STALE: Row(
        verdict=Verdict.ESCALATE,
        meaning="The controller was not heard of, or Kubernetes does not answer it: nothing starts.",
        advice="An operator starts what is down, or finds out what keeps it.",
        params=OtherParams,
        next=steps.show_controller,
    ),
    Token.QUARANTINED: Row(
        verdict=Verdict.ESCALATE,
        meaning="Handling it failed. The error is named, and it is tried again with back-off.",
        advice="An operator looks at the error.",
        params=OtherParams,
        next=steps.show_job,
    ),
}
