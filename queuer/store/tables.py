"""The words that columns hold, beside those of the domain. The tables themselves are in `migrations/versions`.

Rules: no extension. States and tokens are text with a CHECK that lists the words. Amounts are bigint base units, times
are timestamptz. A table that grows has a retention rule (`queuer.store.retention`). Job facts that no query asks for
are jsonb. `ledger` has no foreign key: the book outlives the jobs in it.
"""

from __future__ import annotations

from enum import StrEnum


class EntryKind(StrEnum):
    """The change that an outbox entry makes to a job. `withdraw` takes back an admission that never reached the job."""

    ADMIT = "admit"
    EVICT = "evict"
    WITHDRAW = "withdraw"


class NotAsked(StrEnum):
    """Why a waiting workload is kept out of decisions: a wrong request or a namespace that opted out, a queue that
    drains, `maxPending` reached.
    """

    MISCONFIGURED = "misconfigured"
    DRAINING = "draining"
    OVER_MAX_PENDING = "over_max_pending"


class EntryOutcome(StrEnum):
    """How an outbox entry ended: patched; object gone (404); stale (409); refused (422); no longer wanted."""

    APPLIED = "applied"
    GONE = "gone"
    CONFLICT = "conflict"
    INVALID = "invalid"
    WITHDRAWN = "withdrawn"


class Effect(StrEnum):
    """The fate of running work where a limit is cut below its use.

    `drain`: it stays, nothing new starts; `refuse`: the cut is not made; `evict`: it goes until the limit holds.
    """

    DRAIN = "drain"
    REFUSE = "refuse"
    EVICT = "evict"


class DraftState(StrEnum):
    """The state of a planned changeset."""

    PLANNED = "planned"
    APPLIED = "applied"
    DISCARDED = "discarded"


class CommandVerb(StrEnum):
    """The actions on a workload that a user may command."""

    HOLD = "hold"
    RELEASE = "release"
    EVICT = "evict"
    PRIORITISE = "prioritise"


class CommandOutcome(StrEnum):
    """The end of a command: carried out, refused with a sentence, or the workload was gone."""

    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"


# Keys of the advisory locks, so that no two uses share one. Arbitrary, but fixed for ever.
LEADER = 7_831_000_001
"""Held by the one controller that decides, for its session."""
MIGRATION = 7_831_000_002
"""Held while the schema changes, for the session."""
EVENTS = 7_831_000_003
"""Held from taking an event id to commit, so that ids rise in commit order."""
