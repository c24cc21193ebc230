"""Whose part of a decision or a transaction made it fail, so that one workload costs nobody else theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.domain.errors import Conflict
from queuer.store.engine import DatabaseUnavailable, begin
from queuer.store.leader import LeadershipLost


class Mishandled(Exception):
    """These workloads could not be handled, each with why; nothing was done for anybody."""

    def __init__(self, found: dict[str, Exception]) -> None:
        super().__init__(", ".join(found))
        self.found = found


@contextmanager
def about(uid: str) -> Iterator[None]:
    """What fails inside is the fault of this workload alone: Mishandled."""
    try:
        yield
    except Exception as error:
        raise Mishandled({uid: error}) from error


class _TakenBack(Exception):
    """Ends a transaction that was only tried."""


async def culprits(
    engine: AsyncEngine,
    error: Exception,
    uids: Iterable[str],
    write: Callable[[AsyncConnection, str], Awaitable[object]],
) -> dict[str, Exception]:
    """Who of `uids` made a transaction fail with `error`: whom it names, else whose part fails alone.

    `write`: writes the part of one workload, which is taken back. Raises `error` where the leadership or the database
    is lost, and where nobody's part fails alone.
    """
    if isinstance(error, LeadershipLost | DatabaseUnavailable):
        raise error
    known = frozenset(uids)
    if isinstance(error, Conflict) and (named := error.uids & known):
        return dict.fromkeys(sorted(named), error)
    found = dict[str, Exception]()
    for uid in sorted(known):
        try:
            async with begin(engine) as connection:
                await write(connection, uid)
                raise _TakenBack
        except _TakenBack:
            continue
        except (LeadershipLost, DatabaseUnavailable):
            raise
        except Exception as alone:  # noqa: BLE001 -- whatever it is, it is told
            found[uid] = alone
    if not found:
        raise error
    return found
