"""CP-SAT in one decision: the deterministic time that it has left, and how its answers were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from queuer.domain.assignments import SolveStatus

if TYPE_CHECKING:
    from queuer.solver.repair.model import Rows
    from queuer.solver.repair.solve import Solved


class CpSat:
    """`left`: deterministic time; 0 = nothing is asked. `spent`: so far."""

    def __init__(self, left: float, *, seed: int = 0) -> None:
        self.left, self.seed = left, seed
        self.spent, self.asked, self.proven = 0.0, False, True

    def maximise(self, rows: Rows, terms: Mapping[int, int], *, most: float) -> Solved:
        """The largest sum of the terms. `most`: deterministic time for this answer; whether it is proven is for the
        caller to say.
        """
        from queuer.solver.repair.solve import maximise  # OR-Tools is loaded when it is asked

        solved = maximise(rows, terms, seed=self.seed, budget=min(most, self.left))
        self._pay(solved.spent)
        return solved

    def heard(self, *, proven: bool, spent: float = 0.0) -> None:
        """An answer came, for which so much more was spent."""
        self._pay(spent)
        self.asked, self.proven = True, self.proven and proven

    def _pay(self, spent: float) -> None:
        self.left, self.spent = self.left - spent, self.spent + spent

    @property
    def status(self) -> SolveStatus:
        """How the answers were in all."""
        if not self.asked:
            return SolveStatus.GREEDY
        return SolveStatus.OPTIMAL if self.proven else SolveStatus.FEASIBLE
