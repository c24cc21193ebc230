"""CP-SAT reduced to integer variables, rows, hints and objectives, written straight into its proto.

Settings come from measurements: one worker, linear relaxation at level 2, no probing, one round of presolve.
Time is deterministic, so that the same model gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from ortools.sat.python import cp_model

Terms = Mapping[int, int]
"""Coefficients by variable number."""
HIGHEST = 2**62
BUILD = 4e-6
"""Deterministic time that one term costs until it is in a model. Fitted to processor time on the layout questions of
`bench.decide` (large, 640 and 5,120 nodes): 1.7 s for each unit that CP-SAT counts itself, 7 us to build each term.
"""
START = 3e-6
"""The same for each time that a model is solved: 5 us a term."""
MOST_OBJECTIVE = 2**52
"""Sums beyond this are scaled down: CP-SAT reports objectives as doubles, and overflows at int64."""


class Status(Enum):
    """What a solve gave."""

    FOUND = auto()
    BEST = auto()
    NONE = auto()
    UNKNOWN = auto()


class GrowingModel:
    """A model that grows: variables, rows `low <= Σ coefficient * variable <= high`, one objective at a time.

    `listed`: the rows as variables, coefficients, low and high; written to the proto at the next solve. `spent`:
    deterministic time so far, that for building included. `least`: what the last objective cannot be below.
    """

    def __init__(self, *, seed: int) -> None:
        self._model = cp_model.CpModel()
        self._proto = self._model.proto
        self._seed = seed
        self.bounds: list[tuple[int, int]] = []
        self.listed: list[tuple[list[int], list[int], int, int]] = []
        self._written = (0, 0)
        self._terms = 0
        self._largest: list[int] = []
        self.hint: dict[int, int] = {}
        self.spent = 0.0
        self.least = 0.0

    def variable(self, low: int, high: int) -> int:
        """A new integer variable; its number."""
        self.bounds.append((low, high))
        self._largest.append(max(abs(low), abs(high)))
        return len(self.bounds) - 1

    def boolean(self) -> int:
        """A new variable of 0 or 1."""
        return self.variable(0, 1)

    def row(self, terms: Terms, *, low: int = -HIGHEST, high: int = HIGHEST) -> None:
        """A row. Raises OverflowError where its sum could leave int64."""
        kept = {v: c for v, c in terms.items() if c}
        if sum([abs(c) * self._largest[v] for v, c in kept.items()]) >= HIGHEST:
            raise OverflowError("a row of the model exceeds int64")
        self.listed.append((list(kept), list(kept.values()), low, high))
        self._terms += len(kept)
        self.spent += BUILD * len(kept)

    def _write(self) -> None:
        variables, rows = self._written
        for bounds in self.bounds[variables:]:
            self._proto.variables.add().domain.extend(bounds)
        for numbers, coefficients, low, high in self.listed[rows:]:
            linear = self._proto.constraints.add().linear
            linear.vars.extend(numbers)
            linear.coeffs.extend(coefficients)
            linear.domain.extend([low, high])
        self._written = (len(self.bounds), len(self.listed))

    def solve(
        self, *, budget: float, minimise: Terms | None = None, presolve: bool = True
    ) -> tuple[Status, Sequence[int]]:
        """The status and, where something was found, a value for every variable. `presolve`: worth its time where the
        search would be long without it.
        """
        self._write()
        self._proto.clear_objective()
        if minimise:
            self._proto.objective.vars.extend(list(minimise))
            self._proto.objective.coeffs.extend(list(minimise.values()))
        self._proto.clear_solution_hint()
        self._proto.solution_hint.vars.extend(list(self.hint))
        self._proto.solution_hint.values.extend(list(self.hint.values()))
        solver = cp_model.CpSolver()
        _set_up(solver, seed=self._seed, budget=budget)
        solver.parameters.cp_model_presolve = presolve
        status = solver.solve(self._model)
        self.spent += rounded(solver.response_proto.deterministic_time) + START * self._terms
        self.least = solver.response_proto.best_objective_bound
        found = {
            cp_model.OPTIMAL: Status.BEST,
            cp_model.FEASIBLE: Status.FOUND,
            cp_model.INFEASIBLE: Status.NONE,
        }.get(status, Status.UNKNOWN)
        values = list(solver.response_proto.solution) if found in (Status.BEST, Status.FOUND) else []
        return found, values


def rounded(time: float) -> float:
    """Deterministic time without the last digits, in which equal runs differ: what is spent is part of the plan.

    It is counted in parts of a billionth, so it must not be rounded there: half of one would go either way.
    """
    return round(time, 12)


def _set_up(solver: cp_model.CpSolver, *, seed: int, budget: float) -> None:
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.linearization_level = 2
    parameters.cp_model_probing_level = 0
    parameters.max_presolve_iterations = 1
    parameters.symmetry_level = 0
    parameters.random_seed = seed % 2**31
    parameters.max_deterministic_time = max(0.0, budget)


def scaled(terms: Terms, rows: GrowingModel) -> tuple[dict[int, int], int]:
    """The terms shifted right until their sum is safe, and by how many bits: 0 = exact."""
    most = sum(abs(c) * max(map(abs, rows.bounds[v])) for v, c in terms.items())
    shift = max(0, most.bit_length() - MOST_OBJECTIVE.bit_length())
    return {v: c >> shift for v, c in terms.items()}, shift
