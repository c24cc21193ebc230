"""Run times: declared, learned from like jobs, learned from the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.estimates import KEPT, RUNS, Estimates
from queuer.domain.workload import PodSet, Workload
from tests.unit.make import gang

JOB = gang(pods=2, requests={"gpu": 4, "pods": 1}, name="job", user="ann")
WIDE = replace(JOB, pod_sets=(PodSet(name="main", count=8, requests={"gpu": 4, "pods": 1}),))


def taught(*runs: tuple[Workload, float]) -> Estimates:
    """After these runs."""
    estimates = Estimates()
    for workload, seconds in runs:
        estimates.learn(workload, seconds)
    return estimates


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (replace(JOB, estimate=7.0), 7.0),
        (replace(JOB, estimate=7.0, max_runtime=5.0), 5.0),
        (JOB, 20.0),
        (replace(JOB, max_runtime=15.0), 15.0),
        (WIDE, 90.0),
        (replace(JOB, user="bob"), 30.0),
        (replace(JOB, queue="root.b"), None),
        (replace(JOB, queue="root.b", max_runtime=15.0), None),
    ],
    ids=[
        "declared",
        "declared above the bound",
        "learned",
        "the bound",
        "shape",
        "queue",
        "nothing",
        "only a bound",
    ],
)
def test_declared_before_like_jobs_before_the_queue(asked: Workload, expected: float | None) -> None:
    """Medians of 10, 20, 30 for the same user and shape; of all five for the queue."""
    estimates = taught((JOB, 30.0), (JOB, 10.0), (WIDE, 90.0), (WIDE, 90.0), (JOB, 20.0))
    assert estimates.of(asked) == expected


def test_only_the_last_runs_count() -> None:
    """A habit that changed is learned."""
    assert taught(*[(JOB, 10.0)] * 100, *[(JOB, 50.0)] * RUNS).of(JOB) == 50.0


def test_the_first_run_of_a_queue_is_told_apart() -> None:
    """So that those who wait there can be given an estimate."""
    estimates = Estimates()
    assert [estimates.learn(one, 1.0) for one in (JOB, WIDE, replace(JOB, queue="root.b"))] == [
        True,
        False,
        True,
    ]


def test_memory_is_bounded_and_what_ended_longest_ago_is_forgotten() -> None:
    """Kinds of jobs without end do not fill it."""
    estimates = taught(
        (replace(JOB, queue="root.old"), 5.0), *[(replace(JOB, user=str(i)), 1.0) for i in range(KEPT)]
    )
    assert estimates.of(replace(JOB, queue="root.old")) is None
    assert estimates.of(replace(JOB, user="new")) == 1.0
