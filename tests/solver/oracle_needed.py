"""Brute force of what victims are for, for `oracle`: whether each can be written down to a gang that may evict it and,
with those before it, could not do without (see Readings in docs/decision.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

from queuer.solver.problem import EvictionRule
from queuer.solver.verify.quota import Key
from tests.solver.oracle_room import Free, Room, Turn, add

Taken = Mapping[str, Mapping[str, Mapping[str, int]]]
"""What the place of each gang takes of each node, by uid."""
Ground = tuple[str, EvictionRule, tuple[Key, ...] | None]
"""A permission to evict: for a gang of which queue, by which rule, where above the guarantee; None = anywhere."""


LOOKS = 200_000
"""Looks at what gangs lack in one world before it is too large: up to half a minute."""


class TooManyVictims(Exception):
    """There are more ways to write them down than can be looked at."""


class Needing(Room):
    """Who goes for whom."""

    looks = 0

    def grounds(self, turn: Turn, uid: str) -> Sequence[Ground]:
        """On which grounds the gang may evict somebody, when the moment comes."""
        raise NotImplementedError

    def may_go(self, named: Mapping[str, Ground]) -> bool:
        """Whether these may go on these grounds in some order."""
        raise NotImplementedError

    def all_needed(self, everyone: Sequence[Turn], places: Taken, gone: Collection[str]) -> bool:
        """Whether each of these is needed by somebody who may evict it, where these lie."""
        return not gone or self._written_down(everyone, places, {}, frozenset(gone), 1)

    def _written_down(
        self,
        everyone: Sequence[Turn],
        places: Taken,
        named: Mapping[str, Ground],
        left: frozenset[str],
        turn: int,
    ) -> bool:
        if not left or turn > len(everyone):
            return not left and self.may_go(named)
        so_far = everyone[:turn]
        may = {uid: found for uid in sorted(left) if (found := self.grounds(so_far[-1], uid))}
        for some in _subsets([*may]):
            then = {*named, *some}
            lacking = self._lacking(so_far, places, then) if some else set()
            if not all(self._lacking(so_far, places, then - {v}) - lacking for v in some):
                continue
            for grounds in product(*(may[v] for v in some)):
                more = {**named, **dict(zip(some, grounds, strict=True))}
                if self._written_down(everyone, places, more, left.difference(some), turn + 1):
                    return True
        return False

    def _lacking(self, so_far: Sequence[Turn], places: Taken, gone: Collection[str]) -> set[object]:
        """Where nodes on which these lie are overdrawn; where none is, limits that they break, by what is used and by
        what is seen.
        """
        self.looks += 1
        if self.looks > LOOKS:
            raise TooManyVictims
        free: Free = self.free_later([*gone])
        for turn in so_far:
            add(free, places[turn.workload.uid], times=-1)
        asked = {
            (n, r)
            for turn in so_far
            for n, row in places[turn.workload.uid].items()
            for r, amount in row.items()
            if amount
        }
        if short := {(n, r) for n, r in asked if free[n].get(r, 0) < 0}:
            return {*short}
        before, use = (self.later([*gone], started=False) for _ in range(2))
        for turn in so_far:
            use.count(turn.workload.queue, turn.asks)
        rows = {(p, k) for turn in so_far for p in self.rows.path(turn.workload.queue) for k in turn.asks}
        broken: set[object] = set()
        for path, key in rows:
            limit = self.rows.limit(path, key)
            if limit is not None and use.used(path, key) > limit:
                broken.add(("used", path, key))
            if limit is not None and limit < use.seen(path, key) > before.seen(path, key):
                broken.add(("seen", path, key))
        return broken


def _subsets(uids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(uids), -1, -1):
        yield from combinations(uids, size)
