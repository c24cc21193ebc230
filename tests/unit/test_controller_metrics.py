"""What the solver's processes did can be read from the metrics."""

from __future__ import annotations

from queuer.controller.metrics import Metrics
from queuer.solver.child import Outcome
from queuer.solver.worker import SolverProcess, Source


def test_failures_and_restarts_of_the_processes_are_shown_as_they_are_at_each_scrape() -> None:
    metrics, solver = Metrics(), SolverProcess()
    metrics.count_solver(solver)
    metrics.count_writes({("patch", "jobs"): 3})
    solver.counts[Source.SOLVER, Outcome.LATE] += 2
    solver.stand_in.restarts += 1
    text = metrics.text([]).decode()
    assert 'queuer_solver_answers_total{outcome="late",process="solver"} 2.0' in text
    assert 'queuer_solver_restarts_total{process="stand-in"} 1.0' in text
    assert 'queuer_solver_restarts_total{process="solver"} 0.0' in text
    assert 'queuer_k8s_api_writes_total{resource="jobs",verb="patch"} 3.0' in text
