"""Who of those that wait in a queue is within its `maxPending`: of each namespace the first, by submit time.

What is beyond is stored and told why, and is put before no decision until others have left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from queuer.domain.workload import Workload

Place = tuple[float, str]
"""Submit time and uid."""


class Lines:
    """One line per queue and namespace. `limit`: the most of a namespace that are within, by queue path."""

    def __init__(self, limit: Callable[[str], int]) -> None:
        self._limit = limit
        self._lines: dict[tuple[str, str], list[Place]] = {}
        self._where: dict[str, tuple[tuple[str, str], Place]] = {}
        self.beyond: set[str] = set()

    def ahead(self, workload: Workload) -> int:
        """How many wait before it, or would if it had its place."""
        line = self._lines.get((workload.queue, workload.namespace), ())
        return bisect_left(line, (workload.submitted, workload.uid))

    def put(self, workload: Workload) -> list[str]:
        """Give a workload its place; returns others of whom it changes whether they are within."""
        where = (workload.queue, workload.namespace), (workload.submitted, workload.uid)
        if self._where.get(workload.uid) == where:
            return []
        others = self.discard(workload.uid)
        key, place = self._where[workload.uid] = where
        line = self._lines.setdefault(key, [])
        insort(line, place)
        most = self._limit(workload.queue)
        if len(line) > most:
            last = max(place, line[most])[1]
            self.beyond.add(last)
            others += [last] if last != workload.uid else []
        return others

    def discard(self, uid: str) -> list[str]:
        """A workload waits no more; returns who is within from now on instead."""
        if uid not in self._where:
            return []
        key, place = self._where.pop(uid)
        line = self._lines[key]
        line.pop(bisect_left(line, place))
        if not line:
            del self._lines[key]
        if uid in self.beyond:
            self.beyond.discard(uid)
            return []
        most = self._limit(key[0])
        if len(line) < most or (next_ := line[most - 1][1]) not in self.beyond:
            return []
        self.beyond.discard(next_)
        return [next_]

    def rebuild(self, workloads: Iterable[Workload] | None = None) -> None:
        """Start again with these, or with those that are there where the limits may have changed."""
        if workloads is not None:
            self._where = {w.uid: ((w.queue, w.namespace), (w.submitted, w.uid)) for w in workloads}
            self._lines = {}
            for key, place in self._where.values():
                self._lines.setdefault(key, []).append(place)
        self.beyond = set()
        for (queue, _), line in self._lines.items():
            line.sort()
            self.beyond.update(uid for _, uid in line[self._limit(queue) :])
