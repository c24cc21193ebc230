"""Order among jobs: which of a queue's waiting jobs are within its `maxPending`, and whose turn it is to be read.

Of each namespace the first jobs by submit time are within; jobs that can never start come after all others. Those that
are not within are stored and told why, and no decision is asked about them until others have left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from queuer.controller.memory.live import Live

Place = tuple[bool, float, str]
"""Whether it can never start, submit time and uid."""


class Lines:
    """One line per queue and namespace. `limit`: the most of a namespace that are within, by queue path; `unstartable`:
    whether a workload can never start.
    """

    def __init__(self, limit: Callable[[str], int], unstartable: Callable[[Live], bool]) -> None:
        self._limit, self._unstartable = limit, unstartable
        self._lines: dict[tuple[str, str], list[Place]] = {}
        self._where: dict[str, tuple[tuple[str, str], Place]] = {}
        self.over_max_pending: set[str] = set()

    def place(self, live: Live) -> Place:
        """Its place in the line of its queue and namespace."""
        return self._unstartable(live), live.workload.submitted, live.uid

    def ahead(self, live: Live) -> int:
        """How many wait before it, or would if it had its place."""
        line = self._lines.get((live.workload.queue, live.workload.namespace), ())
        return bisect_left(line, self.place(live))

    def put(self, live: Live) -> list[str]:
        """Give a workload its place; returns others of whom it may change whether they are within."""
        where = (live.workload.queue, live.workload.namespace), self.place(live)
        if self._where.get(live.uid) == where:
            return []
        others = self.discard(live.uid)
        key, place = self._where[live.uid] = where
        line = self._lines.setdefault(key, [])
        insort(line, place)
        most = self._limit(live.workload.queue)
        if len(line) > most:
            *_, last = max(place, line[most])
            self.over_max_pending.add(last)
            others += [last] if last != live.uid else []
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
        if uid in self.over_max_pending:
            self.over_max_pending.discard(uid)
            return []
        most = self._limit(key[0])
        if len(line) < most or (next_ := line[most - 1][-1]) not in self.over_max_pending:
            return []
        self.over_max_pending.discard(next_)
        return [next_]

    def rebuild(self, lives: Iterable[Live] | None = None) -> None:
        """Start again with these, or with those that are there where the limits may have changed."""
        if lives is not None:
            self._where = {
                live.uid: ((live.workload.queue, live.workload.namespace), self.place(live)) for live in lives
            }
            self._lines = {}
            for key, place in self._where.values():
                self._lines.setdefault(key, []).append(place)
        self.over_max_pending = set()
        for (queue, _), line in self._lines.items():
            line.sort()
            self.over_max_pending.update(uid for *_, uid in line[self._limit(queue) :])


class Turns:
    """Jobs to be read or told of, by uid, taken one of each namespace in turn: a flood of one holds up no other."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, uid: str, namespace: str) -> None:
        """Let a job have a turn; one that waits for it already keeps its place."""
        if uid not in self._known:
            self._known.add(uid)
            self._waiting.setdefault(namespace, deque()).append(uid)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._waiting.clear()

    def take(self, most: int) -> list[str]:
        """The next ones, `most` at most. The next call goes on from here."""
        found = list[str]()
        while self._waiting and len(found) < most:
            namespace, uids = self._waiting.popitem(last=False)
            found.append(uids.popleft())
            if uids:
                self._waiting[namespace] = uids  # to the end: the others come first
        self._known.difference_update(found)
        return found
