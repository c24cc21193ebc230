"""The metrics tell the results of decisions and the fate of the solver process."""

from __future__ import annotations

from dataclasses import replace

from queuer.controller.health.metrics import Metrics
from queuer.controller.memory.live import Live
from queuer.domain.assignments import SolveStatus
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from queuer.solver.process.parent import SolverOutcome, SolverProcess
from queuer.solver.records import CycleStats
from tests.unit.make import gang, placed, pod_view

WORKLOAD = gang("g")
TREE = QueueTree.of([Queue(path="root.a")])


def test_a_queue_that_users_made_up_makes_no_series() -> None:
    """Else a tenant fills the memory of whoever scrapes."""
    metrics = Metrics()
    made_up = [replace(WORKLOAD, uid=str(i), queue=f"root.x{i}") for i in range(3)]
    text = metrics.text([Live(workload=w, state=State.QUEUED) for w in (WORKLOAD, *made_up)], TREE).decode()
    assert 'queuer_workloads{queue="unknown",state="Queued"} 3.0' in text
    assert 'queuer_workloads{queue="root.a",state="Queued"} 1.0' in text
    assert "root.x" not in text


def test_what_decisions_did_is_added_up() -> None:
    metrics = Metrics()
    rows = (
        CycleStats(status=SolveStatus.OPTIMAL, turns=7, contested=3, repaired=2, solver_time=0.25),
        CycleStats(status=SolveStatus.GREEDY, turns=2, searches=4, refused=1, solver_time=0.5),
    )
    for stats in rows:
        metrics.count_stats(replace(stats, phases={"solve": 0.1}))
    text = metrics.text([], TREE).decode()
    assert "queuer_gangs_tried_total 9.0" in text
    assert "queuer_victim_searches_total 4.0" in text
    assert "queuer_repair_contested_total 3.0" in text
    assert "queuer_repair_started_total 2.0" in text
    assert "queuer_gangs_refused_total 1.0" in text
    assert "queuer_solver_deterministic_time_total 0.75" in text
    assert 'queuer_cycle_duration_seconds_count{phase="solve"} 2.0' in text


def test_failures_and_restarts_of_the_solver_are_shown_as_they_are_at_each_scrape() -> None:
    metrics, solver = Metrics(), SolverProcess()
    metrics.count_solver(solver)
    metrics.count_writes({("patch", "jobs"): 3})
    solver.counts[SolverOutcome.LATE] += 2
    solver.restarts += 1
    text = metrics.text([], TREE).decode()
    assert 'queuer_solver_answers_total{outcome="late"} 2.0' in text
    assert "queuer_solver_restarts_total 1.0" in text
    assert 'queuer_k8s_api_writes_total{resource="jobs",verb="patch"} 3.0' in text


def test_verdict_of_a_waiting_job_is_that_of_its_reason_not_of_the_token_alone() -> None:
    behind = Reason(
        token=Token.BEHIND_IN_QUEUE, said="Its head can never start.", params={"headUnstartable": True}
    )
    live = Live(workload=WORKLOAD, state=State.QUEUED, explanation=Explanation(primary=behind))
    text = Metrics().text([live], TREE).decode()
    assert 'reason="BehindInQueue",verdict="CHANGE"} 1.0' in text


def test_what_does_not_get_on_is_shown_by_its_age() -> None:
    """A start and an eviction that no job confirms; work that has gone and still holds something when its pods' grace
    has ended.
    """
    metrics = Metrics()
    rows = [
        Live(workload=WORKLOAD, state=State.ADMITTED, placement=placed(at=60.0)),
        Live(workload=WORKLOAD, state=State.RUNNING, placement=placed(at=1.0)),
        Live(workload=WORKLOAD, state=State.EVICTING, placement=placed(at=1.0), left=30.0),
        Live(workload=WORKLOAD, state=State.SUCCEEDED, placement=placed(at=1.0), left=20.0),
    ]
    text = metrics.text(rows, TREE, now=100.0).decode()
    assert "queuer_oldest_open_effect_seconds 40.0" in text
    assert "queuer_oldest_release_seconds 50.0" in text
    long = pod_view(deleted=3630.0, grace=3600.0)
    for now, told in ((3600.0, 0.0), (3700.0, 40.0)):
        text = metrics.text(rows[2:3], TREE, pods=lambda _: (long,), now=now).decode()
        assert f"queuer_oldest_release_seconds {told}" in text
    late = replace(rows[2], placement=placed(at=1.0, unconfirmed=True))
    assert "queuer_oldest_open_effect_seconds 70.0" in metrics.text([late], TREE, now=100.0).decode()
    text = metrics.text(rows[1:2], TREE, now=100.0).decode()
    assert "queuer_oldest_open_effect_seconds 0.0" in text
    assert "queuer_oldest_release_seconds 0.0" in text
