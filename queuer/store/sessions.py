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
_CROWD = text("""
    DELETE FROM session WHERE name = :name AND digest NOT IN (
        SELECT digest FROM session WHERE name = :name ORDER BY expires DESC, began DESC, digest LIMIT :most)
""")
_FIND = text("SELECT name, groups FROM session WHERE digest = :digest AND expires > now()")
_END = text("DELETE FROM session WHERE digest = :digest")

MOST = 20
"""Sessions that a user has at a time: a loop of logins fills no table, and a person has no more browsers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The user of a session, as the provider named it when it began."""

    name: str
    groups: tuple[str, ...]


async def begin(connection: AsyncConnection, cookie: str, session: Session, *, seconds: float) -> None:
    """Store a session that lasts so long. The oldest of the same user beyond `MOST` end."""
    values = {"name": session.name, "groups": list(session.groups), "seconds": seconds}
    await connection.execute(_ADD, {"digest": _digest(cookie), **values})
    await connection.execute(_CROWD, {"name": session.name, "most": MOST})


async def find(connection: AsyncConnection, cookie: str) -> Session | None:
    """The session of a cookie, unless it ended."""
    row = (await connection.execute(_FIND, {"digest": _digest(cookie)})).one_or_none()
    return None if row is None else record_of(Session, row)


async def end(connection: AsyncConnection, cookie: str) -> None:
    """Log out; no error where there is no such session."""
    await connection.execute(_END, {"digest": _digest(cookie)})


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
