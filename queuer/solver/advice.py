"""What would let a waiting gang start now, without an eviction: changes that were tried, not guessed.

Tried on the state at the end of the cycle: a wider or no topology level, and fewer pods in the largest pod set. Where a
change gives no place, it gives none to any gang that placement cannot tell apart; only what is left is tried in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from queuer.domain.workload import PodSet, Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain_place import PlaceWords
from queuer.solver.order import Gang

Tries = Callable[[Gang, Workload, Variant], bool]
"""Whether a changed form of the gang would start now at these flavors and sizes."""
NOBODY_BEFORE = (True, 2**31)
"""The rank of a gang that no reservation binds."""
LOOKUPS, TRIES = 1_000, 4_000
"""How many places of several pod sets may be looked for, and how many changes tried in full, in one cycle."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Changes that give a place as far as nodes go. `wider`: levels, None = any. `fewer`: variant, set, most pods."""

    wider: tuple[str | None, ...]
    fewer: tuple[tuple[Variant, str, int], ...]


class Advisor:
    """Tries changes on one board."""

    def __init__(self, board: Board, place: PlaceWords, starts: Tries) -> None:
        self._board = board
        self._place = place
        self._starts = starts
        self._levels = board.snapshot.topology.levels
        self._options: dict[object, _Options] = {}
        self._lookups = LOOKUPS
        self._tries = TRIES

    def would_admit(self, gang: Gang) -> tuple[Mapping[str, Any], ...]:
        """Single changes after which the gang starts, each `{"change": …, "evictions": 0}`."""
        changes = self._changes(gang, self._possible(gang))
        return tuple({"change": change, "evictions": 0} for change in changes)

    def has_options(self, gang: Gang) -> bool:
        """Whether anything is worth trying in full."""
        options = self._possible(gang)
        return bool(options.wider or options.fewer)

    def _changes(self, gang: Gang, options: _Options) -> Iterator[str]:
        workload = gang.pending.workload
        for level in options.wider:
            wider = replace(workload, required=level)
            if any(self._tried(gang, wider, _least(gang, v)) for v in gang.shape.variants):
                yield f"topology={level or 'any'}"
                break
        for variant, name, most in options.fewer:
            count = self._most(gang, variant, name, most)
            if count:
                yield f"{name}.count<={count}"
                return

    def _most(self, gang: Gang, variant: Variant, name: str, most: int) -> int:
        """The most pods of the set, up to `most`, with which the gang would start; 0 = none."""

        def starts(count: int) -> bool:
            counts = {**gang.shape.least, name: count}
            return self._tried(gang, gang.pending.workload, replace(variant, counts=counts))

        return most if starts(most) else _bisect(most - 1, starts)

    def _tried(self, gang: Gang, workload: Workload, variant: Variant) -> bool:
        self._tries -= 1
        return self._tries >= 0 and self._starts(gang, workload, variant)

    # As far as nodes go

    def _possible(self, gang: Gang) -> _Options:
        """Equal for gangs that placement cannot tell apart."""
        shape, avoid = gang.shape, gang.pending.avoid
        key = (shape.form, tuple([tuple(v.flavors.values()) for v in shape.variants]), avoid)
        if key not in self._options:
            self._options[key] = _Options(tuple(self._wider(gang)), tuple(self._fewer(gang)))
        return self._options[key]

    def _wider(self, gang: Gang) -> Iterator[str | None]:
        workload = gang.pending.workload
        if workload.required is None:
            return
        at = self._board.snapshot.topology.find(workload.required) or 0
        for level in (*reversed(self._levels[:at]), None):
            wider = replace(workload, required=level)
            if any(self._fits(gang, wider, _least(gang, v)) for v in gang.shape.variants):
                yield level

    def _fewer(self, gang: Gang) -> Iterator[tuple[Variant, str, int]]:
        workload, least = gang.pending.workload, gang.shape.least
        largest: PodSet = max(workload.pod_sets, key=lambda p: least[p.name])
        for variant in gang.shape.variants:
            most = self._most_that_fit(gang, _least(gang, variant), largest.name)
            if most:
                yield variant, largest.name, most

    def _most_that_fit(self, gang: Gang, variant: Variant, name: str) -> int:
        workload, most = gang.pending.workload, variant.counts[name] - 1
        if len(workload.pod_sets) == 1:
            closest = self._place.closest(workload, variant, gang.pending.avoid)
            return 0 if closest is None else min(most, closest.most)

        def fits(count: int) -> bool:
            return self._fits(gang, workload, replace(variant, counts={**variant.counts, name: count}))

        return _bisect(most, fits)

    def _fits(self, gang: Gang, workload: Workload, variant: Variant) -> bool:
        """Whether there is a place for it, reservations aside. Identical pods fit where there are slots enough."""
        avoid = gang.pending.avoid
        if len(workload.pod_sets) == 1:
            closest = self._place.closest(workload, variant, avoid)
            return closest is not None and closest.most >= closest.part.count
        self._lookups -= 1
        if self._lookups < 0:
            return False
        floor = self._board.floor_now(workload, rank=NOBODY_BEFORE)
        return floor.place(workload, variant, form=gang.shape.form, avoid=avoid).spreads is not None


def _least(gang: Gang, variant: Variant) -> Variant:
    return replace(variant, counts=dict(gang.shape.least))


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` for which it holds, as it does for all smaller ones; 0 = none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
