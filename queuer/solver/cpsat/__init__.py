"""CP-SAT in one decision. `order: packed`, the search for victims and the repair ask it in turn, and share its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from queuer.domain.assignments import SolveStatus
from queuer.solver.cpsat.rows import Rows

if TYPE_CHECKING:
    from queuer.solver.cpsat.solve import Solved


class CpSat:
    """`left`: deterministic time; 0 = nothing is asked. `spent`: so far. `status`: of all answers together."""

    def __init__(self, left: float, *, seed: int = 0) -> None:
        self.left, self._seed = left, seed
        self.spent, self.status = 0.0, SolveStatus.GREEDY

    def maximise(self, rows: Rows, terms: Mapping[int, int], *, most: float) -> Solved:
        """The largest sum of the terms. `most`: deterministic time for this answer."""
        from queuer.solver.cpsat.solve import maximise  # OR-Tools is loaded when it is asked

        solved = maximise(rows, terms, seed=self._seed, budget=min(most, self.left))
        self.left, self.spent = self.left - solved.spent, self.spent + solved.spent
        return solved

    def record(self, *, proven: bool) -> None:
        """A question was answered, its caller says how well."""
        if not proven:
            self.status = SolveStatus.FEASIBLE
        elif self.status is SolveStatus.GREEDY:
            self.status = SolveStatus.OPTIMAL
