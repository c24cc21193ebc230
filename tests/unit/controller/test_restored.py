"""Rows that an older backup brought back, beside jobs that went on: what is corrected, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from queuer.controller.intake import restored
from queuer.controller.intake.restored import TRIES, corrected, recognise
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.workload import State
from queuer.kube.client import ApiError, RightsError, ThrottledError
from queuer.kube.workloads import NamespaceFacts
from tests.unit.make import gang, job_view, keep, placed, sure

ADMITTED = Live(workload=gang(name="job"), state=State.ADMITTED, placement=placed({"n1": 1}, at=100.0))
RUNS = job_view(name="job", resource_version="5", suspended=False, admission="adm")
LATER = replace(RUNS, admission="later")
FORCED = replace(RUNS, admission=None)
EVICTED = replace(RUNS, suspended=True, admission=None)
STARTED = (State.PLACING, State.RUNNING)


@pytest.mark.parametrize("state", [*STARTED, State.ADMITTED, State.EVICTING])
def test_a_job_that_runs_by_an_admission_that_a_backup_lacks_is_to_be_charged_anew(state: State) -> None:
    """Guards its charge and its being followed: back in its queue it is adopted as it runs."""
    after = sure(corrected(replace(ADMITTED, state=state), LATER, now=105.0))
    assert (after.state, after.placement, after.attempt) == (State.QUEUED, None, 2)


@pytest.mark.parametrize("state", STARTED)
def test_a_job_that_was_evicted_after_the_backup_gives_its_place_up(state: State) -> None:
    after = sure(corrected(replace(ADMITTED, state=state), EVICTED, now=105.0))
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


class Scene:
    """A term that begins: rows that say `Running`, beside jobs that were evicted since the backup."""

    def __init__(self, *names: str) -> None:
        self.state, self.beats, self.commits = ClusterState(), 0, list[list[str]]()
        self.looked = list[str]()
        for name in names:
            row = replace(ADMITTED, workload=gang(name=name, uid=name), state=State.RUNNING)
            self.state.put(row)
            self.state.job_changed(replace(EVICTED, uid=name, name=name))

    async def recognise(self, read: Callable[[str], JobView]) -> None:
        async def ask(uid: str) -> JobView:
            return read(uid)

        async def commit_each(changes: Round) -> None:
            self.quarantine(changes.failed)
            self.commits.append([*changes])
            keep(self.state, changes)

        async def look(uids: Sequence[str]) -> None:
            self.looked += uids

        jobs = SimpleNamespace(
            read=ask, reading=lambda job: (self.state.live[job.uid].workload, ()),
            facts=lambda _: NamespaceFacts(),
        )  # fmt: skip
        term: Any = SimpleNamespace(
            state=self.state, jobs=jobs, clock=lambda: 105.0, quarantine=self.quarantine,
            commit_each=commit_each,
        )  # fmt: skip
        adopter: Any = SimpleNamespace(look=look)
        await recognise(term, adopter, progress=self.beat)

    def beat(self) -> None:
        self.beats += 1

    def quarantine(self, failed: dict[str, Exception]) -> None:
        for uid, error in failed.items():
            self.state.quarantine_one(uid, error, now=105.0)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "BACK_OFF", BackOff(first=0.0, longest=0.0))


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    "error",
    [
        ApiError(status=500, reason="InternalError", message="the object cannot be decrypted"),
        msgspec.ValidationError("Expected `int`, got `str`"),
        KeyError("a kind that is served no more"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_job_that_cannot_be_read_is_quarantined_and_the_term_begins(error: Exception) -> None:
    scene, tries = Scene("bad", "good"), list[str]()

    def read(uid: str) -> JobView:
        tries.append(uid)
        if uid == "bad":
            raise error
        return scene.state.jobs[uid]

    await scene.recognise(read)

    assert scene.state.quarantine.uids() == ["bad"]
    assert scene.commits == [["good"]]
    assert tries.count("bad") == (TRIES if isinstance(error, ApiError) else 1)
    assert scene.beats == 3, "one for each job that is done with, one for the commit"


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the API server does not answer"),
        RightsError(status=403, reason="Forbidden", message="forbidden"),
        ThrottledError(status=429, reason="TooManyRequests", message="later"),
        ApiError(status=503, reason="", message="no backend"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_api_server_that_is_away_is_waited_for_without_a_sign_of_progress(error: Exception) -> None:
    scene, left = Scene("job"), 3 * TRIES

    def read(uid: str) -> JobView:
        nonlocal left
        assert scene.beats == 0, "a probe must tell that nothing comes"
        if left:
            left -= 1
            raise error
        return scene.state.jobs[uid]

    await scene.recognise(read)

    assert (scene.commits, len(scene.state.quarantine)) == ([["job"]], 0)


async def test_a_job_that_cannot_be_corrected_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions are bounded, too."""

    def correct(live: Live, job: JobView, *, now: float) -> Live | None:
        if live.uid == "w1":
            raise ValueError("odd")
        return corrected(live, job, now=now)

    monkeypatch.setattr(restored, "corrected", correct)
    monkeypatch.setattr(restored, "SLICE", 2)
    scene = Scene("w0", "w1", "w2", "w3", "w4")
    await scene.recognise(lambda uid: scene.state.jobs[uid])
    assert scene.commits == [["w0"], ["w2", "w3"], ["w4"]]
    assert scene.state.quarantine.uids() == ["w1"]


@pytest.mark.parametrize("behind", [True, False], ids=["the watch is behind", "the watch goes on meanwhile"])
async def test_a_job_that_the_watch_still_shows_suspended_is_charged_before_the_first_decision(
    behind: bool,
) -> None:
    """The watch's news while the job is read may be newer, and stand."""
    scene = Scene("job")
    runs = replace(LATER, uid="job", resource_version="7")
    ended = replace(runs, suspended=True, resource_version="8")

    def read(uid: str) -> JobView:
        if not behind:
            scene.state.job_changed(ended)
        return runs

    await scene.recognise(read)

    assert scene.commits[0] == ["job"]
    assert scene.state.live["job"].state is State.QUEUED
    assert scene.state.jobs["job"] is (runs if behind else ended)
    assert scene.looked == (["job"] if behind else [])
