"""Whether a queue exists, for every feature that takes a path."""

from __future__ import annotations

from difflib import get_close_matches

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import NotFound
from queuer.domain.queue import QueueTree
from queuer.store import lookup
from queuer.store.config import load_config


async def check_queue(connection: AsyncConnection, path: str) -> None:
    """Raise NotFound, with the nearest paths, unless there is such a queue."""
    if not await lookup.has_queue(connection, path):
        raise no_queue((await load_config(connection)).tree, path)


def no_queue(tree: QueueTree, path: str) -> NotFound:
    """There is no such queue; names the nearest leaves, else the nearest queues."""
    close = tree.nearest(path) or get_close_matches(path, tree.queues, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`queuer queue ls` lists them"
    return NotFound(f"there is no queue {path}", hint=hint)
