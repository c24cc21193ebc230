"""The words that columns hold, beside those of the domain."""

from __future__ import annotations

from enum import StrEnum

SOLVE_STATUSES = ("GREEDY", "OPTIMAL", "FEASIBLE", "FAILED")
"""Words of `queuer.domain.assignments.SolveStatus`; the store does not import the solver, a test compares them."""


class EntryKind(StrEnum):
    """What an outbox entry does to the job. `withdraw` takes back an admission that never reached it."""

    ADMIT = "admit"
    EVICT = "evict"
    WITHDRAW = "withdraw"


class Barred(StrEnum):
    """Why a waiting workload is put before no decision: what it asks for is wrong; it came to a queue that drains; it
    is beyond `maxPending`.
    """

    MISCONFIGURED = "misconfigured"
    DRAINING = "draining"
    BEYOND = "beyond"


class Outcome(StrEnum):
    """How an outbox entry ended: patched; object gone (404); stale (409); refused (422); no longer wanted."""

    APPLIED = "applied"
    GONE = "gone"
    CONFLICT = "conflict"
    INVALID = "invalid"
    WITHDRAWN = "withdrawn"


class Effect(StrEnum):
    """What becomes of running work where a limit is cut below its use. `drain`: it stays, nothing new starts; `refuse`:
    the cut is not made; `evict`: it goes until the limit holds.
    """

    DRAIN = "drain"
    REFUSE = "refuse"
    EVICT = "evict"


class DraftState(StrEnum):
    """What became of a planned changeset."""

    PLANNED = "planned"
    APPLIED = "applied"
    DISCARDED = "discarded"


class CommandVerb(StrEnum):
    """What is done to a workload by command."""

    HOLD = "hold"
    RELEASE = "release"
    EVICT = "evict"
    PRIORITISE = "prioritise"


class CommandOutcome(StrEnum):
    """How a command ended: carried out, refused with a sentence, or there was no live workload any more."""

    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"
