"""Writes down why a workload waits: the newest explanation in its row, and a transition whenever the token changes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.reasons import Explanation
from queuer.store.codec import execute_rows, explanation_json
from queuer.store.events import REASONS, Event, append

_RECORD = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS r(uid text, token text, text text, params jsonb, explanation jsonb)
    ), old AS (
        SELECT r.*, w.token AS before FROM r CROSS JOIN LATERAL
            (SELECT token FROM workload WHERE uid = r.uid FOR UPDATE) AS w
    ), written AS (
        UPDATE workload w SET token = old.token, explanation = old.explanation, reason_since = CASE
            WHEN old.token IS NULL THEN NULL
            WHEN old.token IS DISTINCT FROM old.before THEN to_timestamp(:at) ELSE w.reason_since END
        FROM old WHERE w.uid = old.uid
    )
    INSERT INTO reason_transition (uid, at, from_token, token, text, params, cycle)
    SELECT uid, to_timestamp(:at), before, token, coalesce(text, ''), coalesce(params, '{}'), :cycle
    FROM old WHERE token IS DISTINCT FROM before
    RETURNING uid, id
""")


async def record(
    connection: AsyncConnection,
    explanations: Mapping[str, Explanation | None],
    *,
    at: float,
    cycle: int | None = None,
) -> frozenset[str]:
    """Store explanations by uid (None: it does not wait any more). Answers the uids whose token changed.

    Inside a transaction that has checked its epoch. Unknown uids are passed over.
    """
    if not explanations:
        return frozenset()
    columns: dict[int, dict[str, object]] = {}  # gangs that are alike share one explanation
    for explanation in explanations.values():
        if id(explanation) not in columns:
            columns[id(explanation)] = _columns(explanation)
    rows = ({"uid": uid, **columns[id(explanation)]} for uid, explanation in explanations.items())
    changed = await execute_rows(connection, _RECORD, rows, at=at, cycle=cycle)
    if changed:
        ids = [row.id for row in changed]
        append(connection, [Event(at=at, type=REASONS, data={"from": min(ids), "to": max(ids)})])
    return frozenset(row.uid for row in changed)


def _columns(explanation: Explanation | None) -> dict[str, object]:
    if explanation is None:
        return {}
    primary = explanation.primary
    return {
        "token": primary.token,
        "text": primary.text,
        "params": primary.shown,
        "explanation": explanation_json(explanation),
    }
