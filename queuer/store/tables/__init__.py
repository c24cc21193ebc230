"""The schema, by concept. Migrations build the same thing; a test compares the two.

Rules: no extension. States and tokens are text with a CHECK that lists the words. Amounts are bigint base units, times
are timestamptz. A table that grows has a retention rule (`queuer.store.retention`). Job facts that no query asks for
are jsonb. `ledger` has no foreign key: the book outlives the jobs in it.
"""

from queuer.store.tables import configuration, history, workloads
from queuer.store.tables.base import metadata
from queuer.store.tables.words import (
    CommandOutcome,
    CommandVerb,
    DraftState,
    Effect,
    EntryKind,
    EntryOutcome,
    NotAsked,
)

__all__ = [
    "CommandOutcome",
    "CommandVerb",
    "DraftState",
    "Effect",
    "EntryKind",
    "EntryOutcome",
    "NotAsked",
    "configuration",
    "history",
    "metadata",
    "workloads",
]
