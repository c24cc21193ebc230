"""The exact solver for proofs alone: where its arrangements could not land, greedy's plan still says what is proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queuer.domain.reasons import Deferral
from queuer.solver.contested import Arrangement, ExactSolver, Layout, Places, Proof, Question, Unknown


class ProofsOnly:
    """An `ExactSolver` that keeps its arrangements to itself: the plan is greedy's, with proofs for whom it refuses."""

    def __init__(self, solver: ExactSolver) -> None:
        self._solver = solver

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        """See `ExactSolver`."""
        answer = self._solver.lay(replace(question, found=False))
        return Unknown(spent=answer.spent, cause=Deferral.LANDING) if isinstance(answer, Places) else answer

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        """See `ExactSolver`."""
        answer = self._solver.settle(question)
        if isinstance(answer, Arrangement):
            return Unknown(spent=answer.spent, cause=Deferral.LANDING)
        return answer

    def improve(self, **settled: Any) -> Arrangement | Unknown:
        """See `ExactSolver`."""
        return Unknown()
