"""CP-SAT behind the rows: the only module that imports OR-Tools.

Settings come from measurements: one worker, linear relaxation at level 2, no probing, one round of presolve. Time is
deterministic, so that the same model gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from queuer.solver.cpsat.rows import Rows

MOST = 2**52
"""Sums beyond this are scaled down: CP-SAT reports objectives as doubles, and overflows at int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A value for every variable, none if nothing was found; `proven`: nothing is better. `spent`: deterministic
    time.
    """

    values: Sequence[int]
    proven: bool
    spent: float


def maximise(rows: Rows, terms: Mapping[int, int], *, seed: int, budget: float) -> Solved:
    """The largest sum of the terms. Values start from the hints, which should make a solution."""
    model = cp_model.CpModel()
    proto = model.proto
    for high in rows.bounds:
        proto.variables.add().domain.extend([0, high])
    for row, low, high in rows.listed:
        linear = proto.constraints.add().linear
        linear.vars.extend(list(row))
        linear.coeffs.extend(list(row.values()))
        linear.domain.extend([low, high])
    most = sum(abs(c) * rows.bounds[v] for v, c in terms.items())
    shift = max(0, most.bit_length() - MOST.bit_length())
    proto.objective.vars.extend(list(terms))
    proto.objective.coeffs.extend([-(c >> shift) for c in terms.values()])
    proto.solution_hint.vars.extend(range(len(rows.hint)))
    proto.solution_hint.values.extend(rows.hint)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.linearization_level = 2
    parameters.cp_model_probing_level = 0
    parameters.max_presolve_iterations = 1
    parameters.symmetry_level = 0
    parameters.random_seed = seed % 2**31
    parameters.max_deterministic_time = max(0.0, budget)
    status = solver.solve(model)
    return Solved(
        values=list(solver.response_proto.solution),
        proven=status == cp_model.OPTIMAL and not shift,
        spent=round(solver.response_proto.deterministic_time, 12),  # equal runs differ in the last digits
    )
