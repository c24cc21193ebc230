"""What a waiting workload counts as, by its reason: demand that room is lacking for, or none that could ever be met.

`queuer.store.waiting` says the same in SQL.
"""

from __future__ import annotations

from queuer.domain.reasons import Reason
from queuer.domain.tokens import Token, Verdict

IMPOSSIBLE = frozenset(token for token in Token if token.verdict is Verdict.CHANGE)
"""It could not start on an idle cluster."""
LIMITED = frozenset({Token.WAITING_FOR_QUOTA, Token.BORROWING_LIMIT_REACHED})
"""A limit is in its way, or the live capacity as the limit of root (`live`)."""
ADMISSIBLE = LIMITED | {
    Token.BEHIND_IN_QUEUE,
    Token.NODES_UNAVAILABLE,
    Token.SOLVER_DEFERRED,
    Token.TOPOLOGY_PLACEMENT_FAILED,
    Token.WAITING_FOR_PREEMPTED_WORKLOADS,
}
"""A cycle has looked at it, and nothing is wrong with the job or held by anybody."""


LINES = frozenset({"maxPending", "perUser"})
"""Parameters of who waits for others of its own namespace or user, whatever room there is."""


def impossible(reason: Reason) -> bool:
    """Whether the job can never start as it is."""
    return reason.token in IMPOSSIBLE or reason.params.get("idle") is True


def admissible(reason: Reason, queue: str) -> bool:
    """Whether a job of this queue waits for room alone, so that a queue below its guarantee is starved by it.

    A limit of its own queue, or none that a queue has, is no such lack: no eviction would help.
    """
    params = reason.params
    if reason.token not in ADMISSIBLE or reason.verdict is Verdict.CHANGE or not LINES.isdisjoint(params):
        return False
    own = params.get("queue") in (None, queue)
    return reason.token not in LIMITED or params.get("live") is True or not own
