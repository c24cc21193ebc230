"""Browsers that logged in at an OIDC provider: whose a cookie is, and until when.

Of the cookie only a hash is stored, so that who reads the table cannot use it. Deleting a row logs out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import record_of

_ADD = text("""
    INSERT INTO session (digest, name, groups, expires)
    VALUES (:digest, :name, :groups, now() + make_interval(secs => :seconds))
""")
_FIND = text("SELECT name, groups FROM session WHERE digest = :digest AND expires > now()")
_END = text("DELETE FROM session WHERE digest = :digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The user of a session, as the provider named it when it began."""

    name: str
    groups: tuple[str, ...]


async def begin(connection: AsyncConnection, cookie: str, session: Session, *, seconds: float) -> None:
    """Store a session that lasts so long."""
    values = {"name": session.name, "groups": list(session.groups), "seconds": seconds}
    await connection.execute(_ADD, {"digest": _digest(cookie), **values})


async def find(connection: AsyncConnection, cookie: str) -> Session | None:
    """The session of a cookie, unless it ended."""
    row = (await connection.execute(_FIND, {"digest": _digest(cookie)})).one_or_none()
    return None if row is None else record_of(Session, row)


async def end(connection: AsyncConnection, cookie: str) -> None:
    """Log out; no error where there is no such session."""
    await connection.execute(_END, {"digest": _digest(cookie)})


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
