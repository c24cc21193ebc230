"""Prices of slots, by which a proof that a gang has no place can be checked, and tried again elsewhere (`market`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from queuer.solver.frame import Matrix

Amounts = frozenset[tuple[int, int]]
"""What one slot is: amounts by column."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Slots of fixed amounts: a node with f free has the least of floor(f / a), and a pod that asks for p takes
    the least of floor(p / a). `at_once`: of what is free now, of which only gangs that start take any; else with
    the victims gone.
    """

    at_once: bool
    amounts: Amounts

    def slots(self, free: Matrix) -> Matrix:
        """On each node (N), of `free` (N x R)."""
        found: Matrix = np.min([np.maximum(free[:, c], 0) // a for c, a in self.amounts], axis=0)
        return found

    def taken(self, row: Matrix, *, starts: bool) -> int:
        """By a pod that asks for this (R)."""
        return 0 if self.at_once and not starts else min(int(row[c]) // a for c, a in self.amounts)


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Of a slot, by measure and node (N), none below 0."""

    by_measure: Mapping[Measure, Matrix]
