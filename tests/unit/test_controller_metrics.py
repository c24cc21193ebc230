"""What the solver's processes did, and how far it came, can be read from the metrics."""

from __future__ import annotations

from queuer.controller.live import Live
from queuer.controller.metrics import Metrics
from queuer.domain.reasons import Deferral, Explanation, Reason, Token
from queuer.domain.workload import State
from queuer.solver.child import Outcome
from queuer.solver.problem import Passes
from queuer.solver.worker import SolverProcess, Source
from tests.solver.make import gang


def test_passes_are_added_up() -> None:
    metrics = Metrics()
    for passes in (Passes(questions=0.25, victims=3), Passes(questions=0.5, selection=1.0, moves=2)):
        metrics.count_passes(passes)
    text = metrics.text([]).decode()
    assert 'queuer_solver_deterministic_time_total{pass="questions"} 0.75' in text
    assert 'queuer_solver_deterministic_time_total{pass="selection"} 1.0' in text
    assert 'queuer_search_steps_total{search="victims"} 3.0' in text
    assert 'queuer_search_steps_total{search="moves"} 2.0' in text


def test_deferred_gangs_are_counted_by_cause() -> None:
    metrics = Metrics()
    for causes in ({Deferral.TIME: 2, Deferral.SIZE: 1}, {Deferral.TIME: 3}):
        metrics.count_deferred(causes)
    text = metrics.text([]).decode()
    assert 'queuer_deferred_total{cause="Time"} 5.0' in text
    assert 'queuer_deferred_total{cause="Size"} 1.0' in text


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


def test_verdict_of_a_waiting_job_is_that_of_its_reason_not_of_the_token_alone() -> None:
    behind = Reason(token=Token.BEHIND_IN_QUEUE, text="Its head can never start.", params={"never": True})
    text = (
        Metrics()
        .text([Live(workload=gang("g"), state=State.QUEUED, explanation=Explanation(primary=behind))])
        .decode()
    )
    assert 'reason="BehindInQueue",verdict="CHANGE"} 1.0' in text
