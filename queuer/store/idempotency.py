"""Answers kept by Idempotency-Key, so that a request that is sent twice acts once.

A key is claimed before the request is carried out and gets its answer afterwards. A claim whose holder died is free
again after `ABANDONED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import to_json

ABANDONED = 60
"""Seconds: longer than any request takes."""
KEPT = 24 * 3600
"""Seconds for which an answer is repeated."""

_CLAIM = text("""
    INSERT INTO idempotency (caller, key, fingerprint) VALUES (:caller, :key, :fingerprint)
    ON CONFLICT (caller, key) DO UPDATE
        SET at = now(), fingerprint = excluded.fingerprint, status = NULL, headers = '{}', body = NULL
        WHERE idempotency.at < now() - make_interval(secs =>
            CASE WHEN idempotency.status IS NULL THEN :abandoned ELSE :kept END)
    RETURNING at
""")
_FIND = text(
    "SELECT fingerprint, status, headers, body FROM idempotency WHERE caller = :caller AND key = :key"
)
_KEEP = text("""
    UPDATE idempotency SET status = :status, headers = CAST(:headers AS jsonb), body = :body
    WHERE caller = :caller AND key = :key AND status IS NULL
""")
_FREE = text("DELETE FROM idempotency WHERE caller = :caller AND key = :key AND status IS NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as a caller chose it, and what was asked with it: a digest of method, address and body."""

    caller: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Somebody has the key already. `answer`: None while that request still runs."""

    fingerprint: str
    answer: Answer | None


async def claim(connection: AsyncConnection, key: Key) -> Taken | None:
    """Take the key for a request that is carried out now; None = it is ours."""
    who = {"caller": key.caller, "key": key.key}
    values = {**who, "fingerprint": key.fingerprint, "abandoned": ABANDONED, "kept": KEPT}
    if (await connection.execute(_CLAIM, values)).one_or_none() is not None:
        return None
    row = (await connection.execute(_FIND, who)).one_or_none()
    if row is None:  # given back this moment: as one that still runs, to be asked for again
        return Taken(fingerprint=key.fingerprint, answer=None)
    done = (
        None if row.status is None else Answer(status=row.status, headers=row.headers, body=bytes(row.body))
    )
    return Taken(fingerprint=row.fingerprint, answer=done)


async def keep(connection: AsyncConnection, key: Key, answer: Answer) -> None:
    """The answer of the request that claimed the key."""
    values = {"status": answer.status, "headers": to_json(answer.headers), "body": answer.body}
    await connection.execute(_KEEP, {"caller": key.caller, "key": key.key, **values})


async def free(connection: AsyncConnection, key: Key) -> None:
    """Give the key back: the request failed, and may be sent again with another body."""
    await connection.execute(_FREE, {"caller": key.caller, "key": key.key})
