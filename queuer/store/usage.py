"""The queue tree with its amounts: used, guaranteed, limit, borrowed, lent, pending, for every queue and account.

Sums come from the ledger and the waiting workloads. All other figures are computed from them here, so that
all panels of one answer agree with each other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.outside import Outside, total
from queuer.domain.quantity import Resources, add
from queuer.domain.queue import Queue, QueueState, QueueTree
from queuer.domain.quota import Account, Charge, QuotaBook, charge_of
from queuer.domain.starved import starved_of
from queuer.domain.usage import subtree_sums
from queuer.store.config import Config, load_config
from queuer.store.ledger import usage
from queuer.store.waiting import Group, groups

ChargeByQueue = Mapping[str, Charge]

_MARKS = text("""
    SELECT (SELECT revision FROM configuration WHERE id = 1) AS revision,
        coalesce((SELECT max(id) FROM event), 0) AS event,
        coalesce((SELECT max(id) FROM cycle), 0) AS cycle,
        coalesce((SELECT max(id) FROM ledger), 0) AS row,
        (SELECT count(*) FROM ledger WHERE closed IS NULL) AS open
""")
_CAPACITY = text("""
    SELECT capacity, stats->'out'->'free' AS out, coalesce(stats->'outside', '[]') AS outside
    FROM cycle ORDER BY id DESC LIMIT 1
""")
# The rows of `rollup`, back to the last minute in which the queue was not starved. Minutes are kept for days: where no
# such minute is kept the queue has been starved for longer than the rows tell, and its job's clock counts.
_STARVED = text("""
    SELECT newest.queue, coalesce((
        SELECT min(r.at) FROM usage_rollup r WHERE r.queue = newest.queue AND r.seconds = 60 AND r.at > (
            SELECT at FROM usage_rollup c WHERE c.queue = newest.queue AND c.seconds = 60
                AND NOT jsonb_path_exists(c.amounts, '$[*] ? (@.starved > 0)') ORDER BY at DESC LIMIT 1)
    ), to_timestamp(0)) AS since
    FROM usage_rollup newest
    WHERE newest.seconds = 60 AND newest.at = (SELECT max(at) FROM usage_rollup WHERE seconds = 60)
        AND jsonb_path_exists(newest.amounts, '$[*] ? (@.starved > 0)')
""")
_ADMITTED = text("""
    SELECT queue, count(*) AS admitted FROM workload
    WHERE state NOT IN ('Queued', 'Held', 'Succeeded', 'Failed') AND deleted_at IS NULL GROUP BY queue
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How far the tables have come that a tree is made of. `row`, `open`: the last row of the ledger, and how many are
    open: what is charged anew or returned is no event.
    """

    revision: int
    event: int
    cycle: int
    row: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """One account of one queue, subtree included, base units. None = not given. `pending`: known for all flavors
    together only, 0 in accounts of one flavor. `starved`: how much others borrow of what the next gang of this leaf
    lacks (`queuer.domain.starved`).
    """

    flavor: str | None
    resource: str
    used: int
    guaranteed: int
    limit: int | None
    borrowed: int
    lent: int
    pending: int
    starved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue with its amounts; counts are of workloads in its subtree.

    `waiting` and `oldest` (submit time of the first of them) are of pending jobs. Those that can never start are
    `unstartable`, those on hold and in queues that are held or drain are `held`. `smallest`: by resource the least that
    a pending job asks for. `starved_since`: since when a leaf is starved of anything, None for less than a minute.
    """

    queue: Queue
    amounts: tuple[Amounts, ...]
    waiting: int
    unstartable: int
    held: int
    admitted: int
    oldest: float | None
    smallest: Resources
    starved_since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeView:
    """All queues by path, parents first.

    `strays`: waiting workloads by a queue name that does not exist. `capacity`: live allocatable as the last cycle
    saw it, base units; empty before the first cycle. `outside`: owners of pods that no queue pays for, seen then.
    """

    config: Config
    capacity: Charge
    queues: Mapping[str, QueueView]
    strays: Mapping[str, int]
    waiting: tuple[Group, ...]
    outside: tuple[Outside, ...] = ()


def amounts_of(view: TreeView, found: QueueView) -> tuple[Amounts, ...]:
    """The amounts of a queue. root's limit is the live capacity, or a smaller one written on it."""
    if found.queue.parent is not None:
        return found.amounts
    return tuple(_bounded(amounts, view.capacity) for amounts in found.amounts)


def _bounded(amounts: Amounts, capacity: Charge) -> Amounts:
    live = capacity.get((amounts.flavor, amounts.resource))
    if live is None:
        return amounts
    return replace(amounts, limit=live if amounts.limit is None else min(live, amounts.limit))


async def marks(connection: AsyncConnection) -> Marks:
    """Where they are the same, the tree is."""
    return Marks(**(await connection.execute(_MARKS)).one()._mapping)


async def tree_view(connection: AsyncConnection, config: Config | None = None) -> TreeView:
    """The tree as it is now, from one snapshot if the caller's transaction is REPEATABLE READ. `config`: the
    configuration, where it is known already.

    The amounts are computed in a thread: with a thousand queues they take most of a second.
    """
    config = config or await load_config(connection)
    newest = (await connection.execute(_CAPACITY)).one_or_none()
    return await asyncio.to_thread(
        _tree_of,
        config,
        waits=await groups(connection),
        runs=(await connection.execute(_ADMITTED)).all(),
        capacity=charge_of({} if newest is None else newest.capacity),
        out={} if newest is None else newest.out or {},
        outside=msgspec.convert([] if newest is None else newest.outside, tuple[Outside, ...]),
        held={path: charge_of(held) for path, held in (await usage(connection)).items()},
        starved={row.queue: row.since.timestamp() for row in await connection.execute(_STARVED)},
    )


def _tree_of(
    config: Config,
    *,
    waits: Sequence[Group],
    runs: Sequence[Row[Any]],
    capacity: Charge,
    out: Resources,
    outside: tuple[Outside, ...],
    held: ChargeByQueue,
    starved: Mapping[str, float],
) -> TreeView:
    """The view that these rows make; no I/O. `runs`: admitted workloads by queue. `held`: charges by queue without the
    queues below. `out`: free amounts on nodes that take no pods. `starved`: since when, by queue, the newest minutes
    say so.
    """
    tree = config.tree
    used = subtree_sums(tree, held)
    pending = subtree_sums(tree, _demand(group for group in waits if group.demand))
    named = subtree_sums(tree, {q.path: _named(q) for q in tree})
    accounts = {q.path: _accounts(q, used[q.path], pending[q.path], named[q.path]) for q in tree}
    book = QuotaBook(tree, {})
    lent = _lent(book, used, {account for found in accounts.values() for account in found}, capacity)
    parts = _parts(tree)
    waiting, admitted = _inside(tree, waits), _inside(tree, runs)
    taken = add(out, total(outside))
    room = {(f, r): n - (taken.get(r, 0) if f is None else 0) for (f, r), n in capacity.items()}
    views = {}
    for queue in tree:
        below = waiting[queue.path]
        starving, lacks = _starving(book, used, queue.path, below, capacity=room)
        views[queue.path] = QueueView(
            queue=queue,
            amounts=tuple(
                replace(
                    _amounts(book, queue, account, used=used, pending=pending, lent=lent, parts=parts),
                    starved=lacks.get(account, 0),
                )
                for account in accounts[queue.path]
            ),
            waiting=sum(group.jobs for group in below if group.demand),
            unstartable=sum(group.jobs for group in below if group.unstartable),
            held=sum(group.jobs for group in below if group.held),
            admitted=sum(row.admitted for row in admitted[queue.path]),
            oldest=min((group.oldest for group in below if group.demand), default=None),
            smallest=_smallest(group for group in below if group.demand),
            starved_since=_later(starving, starved.get(queue.path)),
        )
    strays: dict[str, int] = {}
    for group in waits:
        if group.queue not in tree:
            strays[group.queue] = strays.get(group.queue, 0) + group.jobs
    return TreeView(
        config=config,
        capacity=capacity,
        queues=views,
        strays=strays,
        waiting=tuple(waits),
        outside=outside,
    )


def _starving(
    book: QuotaBook, used: ChargeByQueue, path: str, waiting: Sequence[Group], *, capacity: Charge
) -> tuple[float | None, Charge]:
    """Of an open leaf since when a job waits that starves it, and for what; (None, {}) = it is not starved."""
    if not book.tree.is_leaf(path) or book.tree.effective_state(path) is not QueueState.OPEN:
        return None, {}
    for group in sorted((g for g in waiting if g.admissible), key=lambda g: g.oldest):
        asks = {resource: amount // group.jobs for resource, amount in group.amounts.items()}
        if lacks := starved_of(book, used, path, asks, capacity=capacity):
            return group.since, {(None, resource): amount for resource, amount in lacks.items()}
    return None, {}


def _later(job: float | None, minute: float | None) -> float | None:
    """The clock of a starved queue: its job may wait for longer, and other jobs may have starved it before."""
    return None if job is None or minute is None else max(job, minute)


def _smallest(waiting: Iterable[Group]) -> Resources:
    """By resource the least that one of these jobs asks for."""
    least: dict[str, int] = {}
    for group in waiting:
        for resource, amount in group.amounts.items():
            if asks := amount // group.jobs:
                least[resource] = min(asks, least.get(resource, asks))
    return least


def _demand(waiting: Iterable[Group]) -> ChargeByQueue:
    """The requests of these jobs, by queue, all flavors together."""
    asked: dict[str, dict[Account, int]] = defaultdict(lambda: defaultdict(int))
    for group in waiting:
        for resource, amount in group.amounts.items():
            asked[group.queue][None, resource] += amount
    return asked


class _Of(Protocol):
    @property
    def queue(self) -> str: ...


R = TypeVar("R", bound=_Of)


def _inside(tree: QueueTree, rows: Iterable[R]) -> Mapping[str, list[R]]:
    """Rows by each queue of the path of their own."""
    inside: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        for above in tree.lineage(row.queue):
            inside[above].append(row)
    return inside


def _accounts(queue: Queue, *amounts: Charge) -> list[Account]:
    said: Iterable[Account] = ((row.flavor, row.resource) for row in queue.quota)
    found = {*said, *(account for held in amounts for account in held)}
    return sorted(found, key=lambda account: (account[1], account[0] or ""))


def _amounts(
    book: QuotaBook,
    queue: Queue,
    account: Account,
    *,
    used: ChargeByQueue,
    pending: ChargeByQueue,
    lent: Mapping[tuple[str, Account], int],
    parts: Mapping[Account, Sequence[Account]],
) -> Amounts:
    flavor, resource = account
    rows = (row for row in queue.quota if (row.flavor, row.resource) == account)
    held = used[queue.path]
    counted = [(each, book.guaranteed(queue.path, each)) for each in parts.get(account, [account])]
    borrowed = sum(max(0, held.get(each, 0) - guaranteed) for each, guaranteed in counted)
    return Amounts(
        flavor=flavor,
        resource=resource,
        used=held.get(account, 0),
        guaranteed=sum(guaranteed for _, guaranteed in counted),
        limit=next((row.limit for row in rows), None),
        borrowed=borrowed if queue.parent is not None and account in parts else 0,
        lent=sum(lent.get((queue.path, each), 0) for each, _ in counted),
        pending=pending[queue.path].get(account, 0),
    )


def _named(queue: Queue) -> dict[Account, int]:
    """Accounts of all flavors together, of the resources that its rows name: it has amounts there while it is idle."""
    return {(None, row.resource): 0 for row in queue.quota}


def _parts(tree: QueueTree) -> dict[Account, list[Account]]:
    """Accounts that anybody is guaranteed something in, with those whose amounts add up to theirs: by flavor where
    flavors alone have guarantees, as none makes up for another. In accounts beside them nobody borrows.
    """
    said = {(row.flavor, row.resource) for queue in tree for row in queue.quota if row.guaranteed}
    found = {account: [account] for account in said}
    for flavor, resource in sorted(said, key=str):
        if (None, resource) not in said:
            found.setdefault((None, resource), []).append((flavor, resource))
    return found


def _lent(
    book: QuotaBook,
    used: ChargeByQueue,
    accounts: set[Account],
    capacity: Charge,
) -> dict[tuple[str, Account], int]:
    """How much of its own guarantee each queue has lent out, from root down. Siblings first borrow what their
    parent has unguaranteed. The rest is taken from idle guarantees, in proportion.
    """
    found: dict[tuple[str, Account], int] = {}
    for queue in book.tree:
        kids = book.tree.children[queue.path]
        for account in accounts if kids else ():
            guaranteed = {kid: book.guaranteed(kid, account) for kid in kids}
            excess = sum(max(0, used[kid].get(account, 0) - guaranteed[kid]) for kid in kids)
            whole = book.guaranteed(queue.path, account)
            if queue.parent is None:
                whole = capacity.get(account, whole)
            spare = max(0, whole - sum(guaranteed.values()))
            idle = {kid: max(0, guaranteed[kid] - used[kid].get(account, 0)) for kid in kids}
            # A parent that has lent to its own siblings hands on what its children leave idle.
            handed_on = found.get((queue.path, account), 0)
            need = min(sum(idle.values()), max(0, excess + handed_on - spare))
            for kid, share in _shared(idle, need).items():
                found[kid, account] = share
    return found


def _shared(idle: Mapping[str, int], need: int) -> dict[str, int]:
    """`need` split in proportion to `idle`, whole and exact; remainders go to the first by path."""
    total = sum(idle.values())
    if not total:
        return {}
    shares = {path: need * amount // total for path, amount in idle.items()}
    left = need - sum(shares.values())
    for path in sorted(idle):
        step = min(left, idle[path] - shares[path])
        shares[path] += step
        left -= step
    return shares
