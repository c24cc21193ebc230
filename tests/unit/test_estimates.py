"""Run times: declared, learned from like jobs, learned from the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.estimates import KEPT, LEAST, RUNS, Estimates, is_sound
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
        (replace(JOB, user="bob"), 20.0),
        (replace(WIDE, user="bob", pod_sets=(PodSet(name="main", count=99, requests={"gpu": 4}),)), 30.0),
        (replace(JOB, queue="root.b"), None),
        (replace(JOB, queue="root.b", max_runtime=15.0), None),
    ],
    ids=[
        "declared",
        "declared above the bound",
        "learned",
        "the bound",
        "shape",
        "size",
        "queue",
        "nothing",
        "only a bound",
    ],
)
def test_declared_before_like_jobs_before_the_queue(asked: Workload, expected: float | None) -> None:
    """Medians of 10, 20, 30 for the same user and shape, or the same size; of all five for the queue."""
    estimates = taught((JOB, 30.0), (JOB, 10.0), (WIDE, 90.0), (WIDE, 90.0), (JOB, 20.0))
    assert estimates.of(asked) == expected


def test_only_the_last_runs_count() -> None:
    """A habit that changed is learned."""
    assert taught(*[(JOB, 10.0)] * 100, *[(JOB, 50.0)] * RUNS).of(JOB) == 50.0


def test_the_first_run_of_a_queue_is_told_apart() -> None:
    """So that those who wait there can be given an estimate."""
    estimates = Estimates()
    assert [estimates.learn(one, 1.0) is not None for one in (JOB, WIDE, replace(JOB, queue="root.b"))] == [
        True,
        False,
        True,
    ]


def test_people_are_told_of_learned_ends_only_after_enough_runs_of_like_size() -> None:
    """However many small jobs ran in the queue, nobody knows how long a large one takes."""
    estimates = taught(*[(JOB, 12.0)] * LEAST)
    like, large = estimates.estimated(JOB), estimates.estimated(WIDE)
    assert (like.estimate, like.estimate_runs, is_sound(like)) == (12.0, LEAST, True)
    assert (large.estimate, large.estimate_runs, is_sound(large)) == (12.0, 0, False)
    said = replace(JOB, estimate=7.0)
    assert estimates.estimated(said) is said
    assert is_sound(said)


def test_an_estimate_is_told_anew_once_enough_ran() -> None:
    """The first run of a queue, then the one that makes it sound, then the last that counts."""
    estimates = Estimates()
    told = [n for n in range(1, 2 * RUNS) if estimates.learn(JOB, 1.0)]
    assert told == [1, LEAST, *range(RUNS, RUNS + 1)]


def test_more_runs_of_a_shape_are_news_of_that_alone() -> None:
    """Guards the controller: it would estimate each job of a long queue again, within one step."""
    estimates = taught(*[(WIDE, 9.0)] * RUNS, *[(JOB, 1.0)] * (LEAST - 1))
    news = estimates.learn(JOB, 1.0)
    assert news is not None
    assert [news.concerns(one) for one in (JOB, WIDE, replace(JOB, queue="root.b"))] == [True, False, False]


def test_memory_is_bounded_and_what_ended_longest_ago_is_forgotten() -> None:
    """Kinds of jobs without end do not fill it."""
    estimates = taught(
        (replace(JOB, queue="root.old"), 5.0), *[(replace(JOB, user=str(i)), 1.0) for i in range(KEPT)]
    )
    assert estimates.of(replace(JOB, queue="root.old")) is None
    assert estimates.of(replace(JOB, user="new")) == 1.0
