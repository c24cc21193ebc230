"""Places for pod sets of different shape that share nodes, by looking at all of them: what `capacity` does where its
heuristics find none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from queuer.solver.frame import ALL, Frame, Matrix, Numbers
from queuer.solver.landing import Effort
from queuer.solver.parts import Limits, Part, Spread, safe

STEPS = 20_000
"""Bound of the search for one gang in one domain."""


def search(
    frame: Frame, free: Matrix, parts: Sequence[Part], inside: Numbers | None, limits: Limits
) -> dict[str, Spread] | None:
    """Exhaustive: node by node, every mix of pods, with the slots of the nodes to come as a bound.

    First only mixes to which no pod can be added; if those give places, but none that lands for certain, all.
    """
    if limits.spent:
        limits.exact = False
        return None
    most, ask = STEPS, None
    if limits.effort is not None:
        most, ask = min(STEPS, limits.effort.left), limits.effort.ask
    alone = []
    scope = ALL if inside is None else inside
    for part in parts:
        room = np.zeros(len(free), dtype=np.int64)
        room[scope] = np.where(part.open[scope], part.need.slots(free[scope]), 0)
        alone.append(room)
    looking = _Search(frame, free, parts, np.stack(alone, axis=1), Effort(most, ask))
    found = looking.run(full=True)
    if found is None and looking.unsafe:
        limits.crossing = True
        found = looking.run(full=False)
    if looking.effort.left < 0:
        limits.exact = False
    if limits.effort is not None:
        limits.effort.left -= most - looking.effort.left
    return found


class _Search:
    def __init__(
        self, frame: Frame, free: Matrix, parts: Sequence[Part], room: Matrix, effort: Effort
    ) -> None:
        self._frame = frame
        self._free = free
        self._parts = parts
        self._room = room
        self._nodes = [int(n) for n in np.flatnonzero(room.any(axis=1))]
        self._ahead = np.zeros((len(self._nodes) + 1, len(parts)), dtype=np.int64)
        for at in range(len(self._nodes) - 1, -1, -1):
            self._ahead[at] = self._ahead[at + 1] + room[self._nodes[at]]
        self._chosen: list[tuple[int, ...]] = []
        self._dead: set[tuple[int, tuple[int, ...]]] = set()
        self._safe: dict[tuple[frozenset[int], ...], bool] = {}
        self._full = True
        self.effort = effort
        self.unsafe = 0

    def run(self, *, full: bool) -> dict[str, Spread] | None:
        """A place, or None; `full`: only mixes that fill a node."""
        self._full = full
        self._dead.clear()
        self._chosen.clear()
        return self._place() if self._descend(0, tuple(p.count for p in self._parts)) else None

    def _descend(self, at: int, left: tuple[int, ...]) -> bool:
        if not any(left):
            if self._lands():
                return True
            self.unsafe += 1
            return False
        if any(n > m for n, m in zip(left, self._ahead[at], strict=True)) or (at, left) in self._dead:
            return False
        self.effort.left -= 1
        if self.effort.left < 0:
            return False
        unsafe, node = self.unsafe, self._nodes[at]
        caps = [min(n, int(m)) for n, m in zip(left, self._room[node], strict=True)]
        for mix in _mixes(self._free[node], self._parts, caps, full=self._full):
            self._chosen.append(mix)
            if self._descend(at + 1, tuple(n - m for n, m in zip(left, mix, strict=True))):
                return True
            self._chosen.pop()
        if unsafe == self.unsafe:
            self._dead.add((at, left))
        return False

    def _lands(self) -> bool:
        """Whether the sets land beside each other, for which it matters on which nodes they lie, not how many where."""
        place = self._place()
        hosts = tuple(map(frozenset, place.values()))
        if hosts not in self._safe:
            self._safe[hosts] = safe(self._frame, self._free, self._parts, place, self.effort)
        return self._safe[hosts]

    def _place(self) -> dict[str, Spread]:
        found: dict[str, Spread] = {p.name: {} for p in self._parts}
        for node, mix in zip(self._nodes, self._chosen, strict=False):
            for part, count in zip(self._parts, mix, strict=True):
                if count:
                    found[part.name][node] = count
        return found


def _mixes(
    free: Matrix, parts: Sequence[Part], caps: Sequence[int], *, full: bool
) -> Iterator[tuple[int, ...]]:
    """Every mix of pods that fits one node within `caps`; `full`: none to which a pod of the last part could
    be added.
    """
    last = len(parts) - 1

    def extend(at: int, left: Matrix, mix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        part = parts[at]
        columns = part.need.columns
        most = (
            caps[at] if not len(columns) else min(caps[at], int((left[columns] // part.need.amounts).min()))
        )
        if at == last:
            yield from ((*mix, count) for count in range(most, most - 1 if full else -1, -1))
            return
        for count in range(most, -1, -1):
            yield from extend(at + 1, left - part.row * count, (*mix, count))

    yield from extend(0, free, ())
