"""Which nodes have changed, in order, so that tables made of all nodes follow at those few and are not made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import numpy as np

from queuer.solver.frame import Numbers

Table = TypeVar("Table")
Mark = tuple[int, int]
"""A moment: the era, and how many changes of it had been noted."""


class Journal:
    """Numbers of changed nodes as they come."""

    __slots__ = ("_era", "_nodes")

    def __init__(self) -> None:
        self._era = 0
        self._nodes: list[int] = []

    def touch(self, nodes: Iterable[int]) -> None:
        """These may have changed."""
        self._nodes.extend(nodes)

    def turn(self) -> None:
        """Everything may have changed."""
        self._era += 1
        self._nodes.clear()

    @property
    def mark(self) -> Mark:
        """This moment."""
        return (self._era, len(self._nodes))

    def since(self, mark: Mark) -> Numbers | None:
        """Nodes that may have changed, each once, ascending; None = all of them."""
        era, seen = mark
        if era != self._era:
            return None
        return np.array(sorted(set(self._nodes[seen:])), dtype=np.intp)


class Followed(Generic[Table]):
    """Tables by key that follow a journal. There are never more than `most`: the one goes that was not asked for the
    longest.
    """

    __slots__ = ("_journal", "_most", "_tables")

    def __init__(self, journal: Journal, *, most: int) -> None:
        self._journal = journal
        self._most = most
        self._tables: dict[object, tuple[Mark, Table]] = {}

    def of(
        self,
        key: object,
        make: Callable[[], Table],
        renew: Callable[[Table, Numbers], object] | None = None,
    ) -> Table:
        """The table of this key as things are. `renew`: brings it up to date at these nodes; None = it is made anew."""
        mark = self._journal.mark
        known = self._tables.pop(key, None)
        changed = None if known is None else self._journal.since(known[0])
        if known is None or changed is None or (renew is None and len(changed)):
            table = make()
        else:
            table = known[1]
            if renew is not None and len(changed):
                renew(table, changed)
        self._tables[key] = (mark, table)
        if len(self._tables) > self._most:
            del self._tables[next(iter(self._tables))]
        return table
