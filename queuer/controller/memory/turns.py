"""Jobs to be read or told of, taken one of each namespace in turn, so that a flood of one holds up no other."""

from __future__ import annotations

from collections import OrderedDict, deque


class Turns:
    """Uids in the order in which they came, by namespace."""

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
        """The next ones, `most` at most. Whose turn it is next goes on from here."""
        found = list[str]()
        while self._waiting and len(found) < most:
            namespace, uids = self._waiting.popitem(last=False)
            found.append(uids.popleft())
            if uids:
                self._waiting[namespace] = uids  # to the end: the others come first
        self._known.difference_update(found)
        return found
