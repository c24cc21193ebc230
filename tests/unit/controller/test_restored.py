"""Rows that an older backup brought back, beside jobs that went on: what is corrected, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.intake.restored import corrected
from queuer.controller.memory.live import JobView, Live
from queuer.domain.workload import State
from tests.unit.make import gang, job_view, placed

ADMITTED = Live(workload=gang(name="job"), state=State.ADMITTED, placement=placed({"n1": 1}, at=100.0))
RUNS = job_view(name="job", resource_version="5", suspended=False, admission="adm")
LATER = replace(RUNS, admission="later")
FORCED = replace(RUNS, admission=None)
EVICTED = replace(RUNS, suspended=True, admission=None)
STARTED = (State.PLACING, State.RUNNING)


@pytest.mark.parametrize("state", [*STARTED, State.ADMITTED, State.EVICTING])
def test_a_job_that_runs_by_an_admission_that_a_backup_lacks_is_to_be_charged_anew(state: State) -> None:
    """Guards its charge and its being followed: back in its queue it is adopted as it runs."""
    after = corrected(replace(ADMITTED, state=state), LATER, now=105.0)
    assert after is not None
    assert (after.state, after.placement, after.attempt) == (State.QUEUED, None, 2)


@pytest.mark.parametrize("state", STARTED)
def test_a_job_that_was_evicted_after_the_backup_gives_its_place_up(state: State) -> None:
    after = corrected(replace(ADMITTED, state=state), EVICTED, now=105.0)
    assert after is not None
    assert (after.state, after.placement, after.left) == (State.EVICTING, ADMITTED.placement, 105.0)


@pytest.mark.parametrize(
    ("state", "job"),
    [
        *((state, RUNS) for state in (State.ADMITTED, *STARTED, State.EVICTING)),
        (State.ADMITTED, EVICTED),  # its PATCH is still to come
        (State.EVICTING, EVICTED),
        (State.EVICTING, FORCED),  # its eviction is still to come
        (State.SUCCEEDED, LATER),
        *((State.RUNNING, replace(job, deleting=True)) for job in (LATER, EVICTED)),
        *((State.RUNNING, replace(job, outcome=State.SUCCEEDED)) for job in (LATER, EVICTED)),
    ],
)
def test_what_its_row_explains_is_left_alone(state: State, job: JobView) -> None:
    assert corrected(replace(ADMITTED, state=state), job, now=105.0) is None
