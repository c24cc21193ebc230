"""Starved queues: the next gang of a queue fits what the queue is guaranteed, and others borrow the room that it lacks.

A remainder of the guarantee that is too small for the gang accuses nobody, nor do pods beside the queues: nobody
borrows what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from queuer.domain.quantity import Resources
from queuer.domain.queue import ROOT
from queuer.domain.quota import Charge, QuotaBook


def starved_of(
    book: QuotaBook, used: Mapping[str, Charge], leaf: str, asks: Resources, *, capacity: Charge
) -> dict[str, int]:
    """By resource how much of what a gang of `leaf` asks for others borrow; empty: the gang starves for nothing.

    `used`: by queue, subtree included; `capacity`: of the nodes that take pods, without what pods beside the queues
    hold. Amounts in base units.
    """
    claimed = {resource for _, resource in book.claims(leaf)}
    found = {}
    for resource, asked in asks.items():
        if asked and resource in claimed:
            if _used(used, leaf, resource) + asked > book.guaranteed(leaf, (None, resource)):
                return {}
            found[resource] = _borrowed(book, used, leaf, resource, asked, capacity=capacity)
    return {resource: amount for resource, amount in found.items() if amount}


def _used(used: Mapping[str, Charge], path: str, resource: str) -> int:
    return used[path].get((None, resource), 0)


def _borrowed(
    book: QuotaBook, used: Mapping[str, Charge], leaf: str, resource: str, asked: int, *, capacity: Charge
) -> int:
    """How much of `asked` others borrow; 0 where that does not make up for what is lacking at some queue above."""
    account, borrowed = (None, resource), 0
    for path, borrowed in _beside(book, used, leaf, resource):
        bounds = (
            book.limit(path, account, live=False),
            capacity.get(account) if path == ROOT else None,
        )
        bound = min((n for n in bounds if n is not None), default=None)
        if bound is not None and borrowed < asked - max(0, bound - _used(used, path, resource)):
            return 0
    return min(asked, borrowed)


def _beside(
    book: QuotaBook, used: Mapping[str, Charge], leaf: str, resource: str
) -> Iterator[tuple[str, int]]:
    """Each queue above the leaf, with what the queues below it use above their guarantees, beside the leaf's path."""
    lineage, borrowed = book.lineage(leaf), 0
    for path, child in zip(lineage[1:], lineage, strict=False):
        for sibling in book.tree.children[path]:
            if sibling != child:
                excess = _used(used, sibling, resource) - book.guaranteed(sibling, (None, resource))
                borrowed += max(0, excess)
        yield path, borrowed
