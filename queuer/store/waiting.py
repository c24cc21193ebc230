"""`queuer.domain.waiting` in SQL: which waiting workloads could ever start, and which wait for room alone.

`ROWS` is a query for a WITH clause: what waits, with both marks.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuer.domain.tokens import Token
from queuer.domain.waiting import ADMISSIBLE, IMPOSSIBLE, LIMITED


def _words(tokens: Iterable[Token]) -> str:
    return ", ".join(f"'{token}'" for token in sorted(tokens))


_TRUE = "explanation #> '{{primary,params,{name}}}' = 'true'"
_IMPOSSIBLE = f"(token IN ({_words(IMPOSSIBLE)}) OR {_TRUE.format(name='idle')}) IS TRUE"
ROWS = f"""
    SELECT uid, queue, state, token, pod_sets, submitted, reason_since, {_IMPOSSIBLE} AS impossible,
        (state = 'Queued' AND token IN ({_words(ADMISSIBLE)}) AND NOT {_IMPOSSIBLE}
            AND ({_TRUE.format(name="never")}) IS NOT TRUE AND explanation #> '{{primary,params,maxPending}}' IS NULL
            AND (token NOT IN ({_words(LIMITED)}) OR ({_TRUE.format(name="live")}) IS TRUE
                OR explanation #>> '{{primary,params,queue}}' <> queue)) IS TRUE AS admissible
    FROM workload WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL
"""
