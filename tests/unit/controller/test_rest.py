"""A job that failed to start rests: it says why and until when, also after a restart, and its owner can end that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.cycle.snapshot import is_candidate, take
from queuer.controller.intake.read import take_in
from queuer.controller.landing.settle import requeued
from queuer.controller.landing.writes import resting, take_results
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import JobView, Live, live_of
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, job_view
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.kinds import JOB, JOBSET
from queuer.store.outbox import Result
from queuer.store.tables import EntryOutcome, NotAsked
from queuer.store.workloads import Setback, StoredWorkload
from tests.unit.landed import LIMITS
from tests.unit.make import entry_of, keep, placed, sure

PLACEMENT = placed({"n1": 1})
REFUSAL = Result(entry=entry_of(), outcome=EntryOutcome.INVALID, message="a policy forbids it")


class Scene:
    """A waiting job, whose admissions the API server refuses. `failed`: when it did so."""

    def __init__(self, *failed: float) -> None:
        self.state = ClusterState()
        self.state.configure(Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",))]), revision=1))
        self.written = Setback(uid="u")
        self.jobs = ClusterJobs(None, self.state, Facts())  # type: ignore[arg-type]
        self.hear()
        for at in failed:
            self.fail(at=at)

    def hear(self, succeeded: int = 0, /, parallelism: int = 2, **annotations: str) -> None:
        """The job of two pods comes or changes."""
        meta = {"name": "u", "namespace": "ns", "uid": "u", "labels": {"queuer.dev/queue": "root.a"}}
        found = {
            "metadata": {**meta, "annotations": {f"queuer.dev/{k}": v for k, v in annotations.items()}},
            "spec": {
                "suspend": True, "parallelism": parallelism, "completions": 2,
                "template": {"spec": {"containers": [{"name": "main"}]}},
            },
            "status": {"succeeded": succeeded},
        }  # fmt: skip
        self._take_in(job_view(JOB, msgspec.convert(found, JOB.type)))

    def hear_set(self, *succeeded: int) -> None:
        """A JobSet comes or changes, of Jobs with two and three pods."""
        meta = {"name": "u", "namespace": "ns", "uid": "u", "labels": {"queuer.dev/queue": "root.a"}}
        roles, made = [], []
        for size, done in zip((2, 3), succeeded, strict=True):
            spec = {
                "suspend": True, "parallelism": size, "completions": size,
                "template": {"spec": {"containers": [{"name": "main"}]}},
            }  # fmt: skip
            role = {"jobset.sigs.k8s.io/replicatedjob-name": f"r{size}"}
            roles.append({"name": f"r{size}", "template": {"spec": spec}})
            made.append({"metadata": {"labels": role}, "spec": spec, "status": {"succeeded": done}})
        found = {"metadata": meta, "spec": {"suspend": True, "replicatedJobs": roles}, "made": made}
        self._take_in(job_view(JOBSET, msgspec.convert(found, JOBSET.type)))

    def _take_in(self, job: JobView) -> None:
        self.state.job_changed(job)
        changes = Round(self.state.live, now=0.0)
        take_in(changes, self.state.take_unread(99), state=self.state, jobs=self.jobs)
        self.keep(changes)

    def keep(self, changes: Round) -> None:
        """Memory once the round is written."""
        for change in changes.values():
            self.written = change.setback or self.written
        keep(self.state, changes)

    @property
    def live(self) -> Live:
        """The workload."""
        return self.state.live["u"]

    def fail(self, *, at: float) -> None:
        """It is admitted, and the API server refuses."""
        self.state.put(replace(self.live, state=State.ADMITTED, placement=PLACEMENT, rest=None))
        changes = Round(self.state.live, now=at)
        take_results(changes, [REFUSAL], state=self.state, jobs=self.jobs, limits=LIMITS)
        assert changes["u"].effects, "the admission is taken back"
        self.keep(changes)
        self.state.put(requeued(self.live))


def test_an_admission_that_the_api_server_refuses_is_tried_again_after_a_growing_time() -> None:
    """Guards the API server, and everybody who could use the place meanwhile."""
    scene = Scene()
    for at, rest in ((100.0, 160.0), (200.0, 320.0), (400.0, 640.0), (9e3, 9480.0), (1e5, 1e5 + 600.0)):
        scene.fail(at=at)
        assert scene.live.rest == rest
        assert not is_candidate(scene.live, scene.state, now=rest - 1)
        assert is_candidate(scene.live, scene.state, now=rest)


def test_after_two_starts_in_a_row_that_failed_the_decision_evicts_nobody_for_it() -> None:
    """An edit by its owner ends that."""
    for scene, now, failed in ((Scene(100.0), 160.0, False), (Scene(100.0, 200.0), 320.0, True)):
        (waits,) = take(scene.state, now=now).pending
        assert waits.failed is failed
        scene.hear(parallelism=1)
        (edited,) = take(scene.state, now=now).pending
        assert not edited.failed


def test_the_reason_says_the_cause_and_when_it_is_tried_again() -> None:
    scene = Scene(100.2)
    reason = sure(scene.live.explanation).primary
    assert reason.token is Token.ADMITTED_NOT_PLACED
    assert "a policy forbids it" in reason.text
    assert "tried again at 1970-01-01 00:02:41 UTC" in reason.text
    assert reason.params == {"failures": 1, "retryAt": 161}


def test_the_reason_of_a_rest_stays_when_the_job_is_read_again() -> None:
    """Also where its pods have ended meanwhile. One that was evicted by order did not fail to start."""
    scene = Scene()
    rests = replace(scene.live, rest=160.0)
    scene.state.put(replace(rests, explanation=resting(rests, "evicted by admin: maintenance")))
    scene.hear(1)
    assert sure(scene.live.explanation).primary.text.startswith(
        "evicted by admin: maintenance; considered again from"
    )
    assert resting(replace(rests, explanation=None)).primary.text.startswith("it was evicted by order; ")
    assert "it could not start" in resting(replace(rests, explanation=None, failures=1)).primary.text


def _heard(succeeded: int = 0, /, **said: Any) -> Live:
    scene = Scene()
    scene.hear(succeeded, **said)
    return scene.live


@pytest.mark.parametrize("known", [True, False], ids=["heard before", "of an earlier term"])
def test_only_what_was_changed_is_an_edit(known: bool) -> None:
    """A look at a job, as after a cordon, what is learned of how long it runs, and its progress are none. `known`: it
    was read since this process leads.
    """
    live = Scene().live
    live = live if known else replace(live, asked=None)
    evicted = replace(live, state=State.EVICTING)
    for before, after, edited in (
        (live, replace(live, explanation=resting(replace(live, rest=9.0))), False),
        (live, replace(live, workload=replace(live.workload, estimate=9.0, estimate_runs=5)), False),
        (evicted, _heard(1), False),
        (evicted, _heard(0, parallelism=1), known),
        (evicted, _heard(0, **{"max-runtime": "2h"}), True),
        (live, replace(live, not_asked=NotAsked.MISCONFIGURED), True),
        (live, replace(live, state=State.HELD), True),
    ):
        changes = Round({"u": before}, now=0.0)
        changes.put("u", after=after, reread=True)
        assert changes["u"].edits is edited


def test_a_restart_does_not_end_the_rest() -> None:
    """Guards the holding of GPUs by a job that cannot start, across every restart. Neither does what was learned
    meanwhile of how long it runs.
    """
    scene = Scene(100.0, 200.0)
    scene.state.learn(scene.live.workload, 300.0)
    workload = scene.live.workload
    stored = StoredWorkload(workload=workload, state=State.QUEUED, attempt=3, setback=scene.written)
    scene.state.restore([live_of(stored, None, displacer=None)], rules=scene.state.rules)
    scene.state.estimate()
    scene.hear()
    assert scene.live.workload.estimate_runs is not None
    assert (scene.live.failures, scene.live.rest) == (2, 320.0)
    edited: dict[str, Any] = {"max-runtime": "2h"}
    scene.hear(0, **edited)
    assert (scene.live.failures, scene.live.rest) == (0, None), "an edit ends it also then"


@pytest.mark.parametrize(
    "said",
    [[{"max-runtime": "2h"}], [{"parallelism": 1}], [{"hold": "true"}, {}]],
    ids=["edited", "made smaller", "held and released"],
)
def test_its_owner_ends_the_rest(said: list[dict[str, Any]]) -> None:
    scene = Scene(100.0)
    scene.hear()
    assert scene.live.rest is not None, "heard again, unchanged"
    for keys in said:
        scene.hear(0, **keys)
    assert [scene.live.rest, scene.live.failures] == [None, 0]
    assert scene.written == Setback(uid="u")
    assert is_candidate(scene.live, scene.state, now=101.0)
    assert scene.live.explanation is None


def test_a_pod_that_succeeded_does_not_end_the_rest() -> None:
    """Guards the promised time: that less of the job is left is no edit of its owner."""
    scene = Scene(100.0)
    scene.hear(1)
    assert [p.count for p in scene.live.workload.pod_sets] == [1]
    assert scene.live.rest == 160.0
    assert "tried again at 1970-01-01 00:02:40 UTC" in sure(scene.live.explanation).primary.text


def test_what_its_pods_asked_for_does_not_end_the_rest() -> None:
    """A LimitRange of long ago: the charge follows the pods, and the job says what it always said."""
    scene = Scene()
    asked = scene.live.workload.pod_sets[0]
    larger = replace(asked, requests={**asked.requests, "cpu": 500})
    scene.state.put(replace(scene.live, workload=replace(scene.live.workload, pod_sets=(larger,))))
    scene.fail(at=100.0)
    scene.hear()
    assert scene.live.workload.pod_sets == (asked,)
    assert scene.live.rest == 160.0


def test_that_it_could_not_be_read_meanwhile_does_not_end_the_rest() -> None:
    """Pods of a group are made anew one by one: until the last is there, the group says a number that is wrong."""
    scene = Scene(100.0)
    wrong: dict[str, Any] = {"min-count.main": "many"}
    scene.hear(0, **wrong)
    assert {scene.live.not_asked} == {NotAsked.MISCONFIGURED}
    scene.hear()
    assert (scene.live.not_asked, scene.live.rest) == (None, 160.0)


def test_pods_of_several_roles_that_succeeded_do_not_end_the_rest() -> None:
    """A JobSet owes so many of each role, and no role as many as all together."""
    scene = Scene()
    scene.hear_set(0, 0)
    assert [p.count for p in scene.live.workload.pod_sets] == [2, 3]
    scene.fail(at=100.0)
    scene.hear_set(1, 2)
    assert [p.count for p in scene.live.workload.pod_sets] == [1, 1]
    assert scene.live.rest == 160.0


def test_a_change_of_the_queues_that_is_taken_back_leaves_the_rest_and_its_reason() -> None:
    scene = Scene(100.0)
    rules = scene.state.rules
    scene.state.configure(Rules(revision=2))
    scene.hear()
    assert {scene.live.not_asked} == {NotAsked.MISCONFIGURED}
    scene.state.configure(rules)
    scene.hear()
    assert (scene.live.not_asked, scene.live.failures, scene.live.rest) == (None, 1, 160.0)
    assert "tried again at 1970-01-01 00:02:40 UTC" in sure(scene.live.explanation).primary.text
