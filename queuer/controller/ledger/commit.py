"""One transaction for many workloads. Where it fails: whose part did, so that one costs nobody else theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.domain.errors import Conflict
from queuer.store.engine import DatabaseUnavailable, begin
from queuer.store.leader import LeadershipLost

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


class Writes(Protocol[T_co]):
    """What one transaction writes; can be cut by workload."""

    @property
    def uids(self) -> frozenset[str]:
        """All workloads that it is about."""

    def of(self, uid: str) -> Self:
        """What is about one workload."""

    async def write(self, connection: AsyncConnection, epoch: int) -> T_co:
        """Write everything; returns what is known once that is committed."""


async def commit(engine: AsyncEngine, writes: Writes[T], *, epoch: int) -> T:
    """Write all of it in one transaction, or nothing.

    Raises Mishandled naming whose part made it fail; LeadershipLost, DatabaseUnavailable; and what is nobody's fault.
    """
    try:
        async with begin(engine) as connection:
            return await writes.write(connection, epoch)
    except Exception as error:
        raise Mishandled(await _culprits(engine, error, writes, epoch)) from error


async def _culprits(
    engine: AsyncEngine, error: Exception, writes: Writes[object], epoch: int
) -> dict[str, Exception]:
    """Whom `error` names, else whose part fails alone; each part is tried and taken back.

    Raises `error` where the leadership or the database is lost, and where nobody's part fails alone.
    """
    if isinstance(error, LeadershipLost | DatabaseUnavailable):
        raise error
    known = writes.uids
    if isinstance(error, Conflict) and (named := error.uids & known):
        return dict.fromkeys(sorted(named), error)
    found = dict[str, Exception]()
    for uid in sorted(known):
        try:
            async with begin(engine) as connection:
                await writes.of(uid).write(connection, epoch)
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
