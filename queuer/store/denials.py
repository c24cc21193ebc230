"""Refused calls in the audit: an attacker who looks for a way in should be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import to_json

_ADD = text("""
    INSERT INTO audit (actor, source, action, reason, detail)
    VALUES (:actor, :source, 'denied', '', CAST(:detail AS jsonb))
""")


async def add(connection: AsyncConnection, *, actor: str, source: str, detail: Mapping[str, Any]) -> None:
    """Record one denial. `detail`: the right that is missing, and what was asked for."""
    await connection.execute(_ADD, {"actor": actor, "source": source, "detail": to_json(detail)})
