"""A PATCH is sent until its outcome is known, and never on a decision that may have been withdrawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from queuer.controller.apply import applier as applying
from queuer.controller.apply.applier import BACK_OFF, Applier, ConflictVerdict, Pause, judge
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.made_jobs import NotMadeError
from queuer.controller.failpoints import Failpoints
from queuer.controller.health.metrics import Metrics
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.workload import State
from queuer.kube.client import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RightsError,
    ThrottledError,
)
from queuer.kube.objects import Job, JobSpec, JobStatus, Meta, PodTemplate
from queuer.kube.versions import Form
from queuer.store.leader import LeadershipLost
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.unit.make import entry_of, gang, job_view, placed
from tests.waiting import beside, until

JOB = job_view(name="job", resource_version="7")
ENTRY = entry_of(patch={"metadata": {"resourceVersion": "5", "uid": "u"}, "spec": {"suspend": False}})


NO_SPEC = JobSpec(template=PodTemplate())


def _refusal(kind: type[ApiError], status: int, *, retry_after: float | None = None) -> ApiError:
    return kind(status=status, reason="", message=f"HTTP {status}", retry_after=retry_after)


class Cluster:
    """One job that answers PATCHes as told, then with its next resourceVersion."""

    def __init__(self, *answers: Exception, job: JobView | None = JOB, as_decided: bool = True) -> None:
        self.answers = list(answers)
        self.job = job
        self.decided = as_decided
        self.sent: list[Any] = []
        self.in_force = True

    def wanted(self, entry: Entry) -> bool:
        return self.in_force

    async def patch(self, uid: str, body: Any) -> str:
        self.sent.append(body)
        if self.answers:
            raise self.answers.pop(0)
        return "8"

    async def read(self, uid: str) -> JobView | None:
        return self.job

    def as_decided(self, job: JobView) -> bool:
        return self.decided

    def rebuilt(self, entry: Entry, job: JobView) -> Mapping[str, Any]:
        metadata = {**entry.patch["metadata"], "resourceVersion": job.resource_version}
        return {**entry.patch, "metadata": metadata}


class Busy(Cluster):
    """Tells that a PATCH came."""

    def __init__(self, *answers: Exception) -> None:
        super().__init__(*answers)
        self.asked = asyncio.Event()

    async def patch(self, uid: str, body: Any) -> str:
        self.asked.set()
        return await super().patch(uid, body)


def applier(
    cluster: Cluster, *, leads: bool = True, on_result: Callable[[Result], None] = lambda _: None,
    on_refused: Callable[[Entry, str, float], None] = lambda *_: None,
) -> Applier:  # fmt: skip
    async def confirm() -> None:
        if not leads:
            raise LeadershipLost("epoch 1 is over")

    return Applier(
        cluster, confirm_epoch=confirm, on_result=on_result, on_refused=on_refused,
        failpoints=Failpoints(), metrics=Metrics(), at_once=2,
    )  # fmt: skip


async def test_applied() -> None:
    result = await applier(Cluster()).apply(ENTRY)
    assert (result.outcome, result.resource_version) == (EntryOutcome.APPLIED, "8")


async def test_a_job_that_moved_on_gets_the_same_patch_for_its_new_version() -> None:
    cluster = Cluster(_refusal(ConflictError, 409))
    result = await applier(cluster).apply(ENTRY)
    assert result.outcome is EntryOutcome.APPLIED
    assert [body["metadata"]["resourceVersion"] for body in cluster.sent] == ["5", "7"]


async def test_an_eviction_is_not_outrun_by_writes_to_its_job() -> None:
    """After a conflict it tests the admission; where that is another one by now, the job is read again."""
    note = {"queuer.dev/admission": "{}"}
    running = replace(
        JOB, suspended=False, object=Job(metadata=Meta(uid="u", annotations=note), spec=NO_SPEC)
    )
    evict = {
        "metadata": {"uid": "u", "annotations": {"queuer.dev/admission": "x"}},
        "spec": {"suspend": True},
    }
    cluster = Cluster(_refusal(ConflictError, 409), _refusal(InvalidError, 422), job=running)
    result = await applier(cluster).apply(replace(ENTRY, kind=EntryKind.EVICT, patch=evict))
    assert result.outcome is EntryOutcome.APPLIED
    first, second, third = cluster.sent
    assert (isinstance(first, Mapping), isinstance(third, Mapping)) == (True, True)
    assert [each["op"] for each in second] == ["test", "test", "add", "add"]


@pytest.mark.parametrize("kind", EntryKind)
async def test_an_admission_that_was_taken_back_meanwhile_is_not_sent(kind: EntryKind) -> None:
    """Nor sent again where the server did not answer. Its withdrawal goes on."""
    cluster = Cluster()
    cluster.in_force = False
    result = await applier(cluster).apply(replace(ENTRY, kind=kind))
    sent = kind is not EntryKind.ADMIT
    outcome = EntryOutcome.APPLIED if sent else EntryOutcome.WITHDRAWN
    assert (result.outcome, len(cluster.sent)) == (outcome, int(sent))

    class Cut(Cluster):
        async def patch(self, uid: str, body: Any) -> str:
            self.in_force = False
            return await super().patch(uid, body)

    cluster = Cut(Unavailable("cut"))
    result = await applier(cluster).apply(replace(ENTRY, kind=kind))
    assert (result.outcome, len(cluster.sent)) == (outcome, 1 + sent)


@pytest.mark.parametrize(
    ("state", "admission", "wanted"),
    [
        (State.ADMITTED, "adm", True),
        (State.PLACING, "adm", True),
        (State.ADMITTED, "other", False),
        (State.EVICTING, "adm", False),
        (State.FAILED, "adm", False),
    ],
)
def test_an_admission_is_wanted_until_its_workload_leaves(state: State, admission: str, wanted: bool) -> None:
    """Placing: our own PATCH may have gone through though its answer was lost."""
    memory = ClusterState()
    jobs = ClusterJobs(cast(Any, None), memory, Facts())
    assert not jobs.wanted(ENTRY), "it is gone"
    memory.put(Live(workload=gang(), state=state, placement=placed(id=admission)))
    assert jobs.wanted(ENTRY) is wanted
    memory.put(Live(workload=gang(), state=State.QUEUED))
    assert not jobs.wanted(ENTRY), "it waits again"


class Writes:
    """A client of a cluster of the given form that notes its PATCHes; each moves the resourceVersion."""

    def __init__(self, form: Form) -> None:
        self.last_form = form
        self.sent: list[tuple[str, Any]] = []

    async def merge_patch(self, path: str, body: Mapping[str, Any], *, resource: str) -> str:
        self.sent.append((path.rpartition("/")[2], body))
        return f"{body['metadata']['resourceVersion']}+"


@pytest.mark.parametrize(("form", "writes"), [(Form.FULL, ["u"]), (Form.REDUCED, ["status", "u"])])
async def test_a_job_that_has_run_is_started_by_two_writes_below_1_36(form: Form, writes: list[str]) -> None:
    """Both are compare-and-sets on what the decision saw. A replay after the first finds the template free."""
    ran = Job(
        metadata=Meta(uid="u", name="u", namespace="ns"), spec=NO_SPEC,
        status=JobStatus(start_time="2026-11-28T10:00:00Z"),
    )  # fmt: skip
    memory, client = ClusterState(), Writes(form)
    memory.jobs["u"] = job_view(object=ran)
    jobs = ClusterJobs(cast(Any, client), memory, Facts())
    version = await jobs.patch("u", ENTRY.patch)
    assert [name for name, _ in client.sent] == writes
    assert version == "5" + "+" * len(writes)
    assert client.sent[0][1]["metadata"] == ENTRY.patch["metadata"]
    memory.jobs["u"] = job_view(object=Job(metadata=ran.metadata, spec=NO_SPEC))
    await jobs.patch("u", ENTRY.patch)
    assert client.sent[-1] == ("u", ENTRY.patch)


async def test_who_does_not_lead_any_more_sends_nothing_after_a_conflict() -> None:
    cluster = Cluster(_refusal(ConflictError, 409))
    with pytest.raises(LeadershipLost):
        await applier(cluster, leads=False).apply(ENTRY)
    assert len(cluster.sent) == 1


async def test_a_conflict_with_our_own_lost_answer_is_success() -> None:
    mine = replace(JOB, suspended=False, admission="adm")
    cluster = Cluster(Unavailable("cut"), _refusal(ConflictError, 409), job=mine)
    result = await applier(cluster).apply(ENTRY)
    assert (result.outcome, result.resource_version, len(cluster.sent)) == (EntryOutcome.APPLIED, "7", 2)


async def test_a_job_that_asks_for_something_else_now_is_not_started() -> None:
    result = await applier(Cluster(_refusal(ConflictError, 409), as_decided=False)).apply(ENTRY)
    assert result.outcome is EntryOutcome.CONFLICT


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(_refusal(NotFoundError, 404), EntryOutcome.GONE), (_refusal(InvalidError, 422), EntryOutcome.INVALID)],
)
async def test_gone_and_refused_are_told_apart(error: ApiError, outcome: EntryOutcome) -> None:
    assert (await applier(Cluster(error)).apply(ENTRY)).outcome is outcome


async def test_an_eviction_is_tried_until_it_is_through() -> None:
    """There is nothing else to be done: the capacity must not be given away before."""
    cluster = Cluster(_refusal(InvalidError, 422))
    result = await applier(cluster).apply(replace(ENTRY, kind=EntryKind.EVICT))
    assert (result.outcome, len(cluster.sent)) == (EntryOutcome.APPLIED, 2)


async def test_an_eviction_that_is_refused_for_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another's webhook or policy may forbid it; nobody would know why the job holds its room."""
    monkeypatch.setattr(applying, "BACK_OFF", BackOff(first=0.02, longest=0.02))
    monkeypatch.setattr(applying, "REFUSED", 0.03)
    told: list[tuple[str, str]] = []
    refusals = [_refusal(InvalidError, 422), _refusal(ForbiddenError, 403), _refusal(ApiError, 500)]
    working = applier(Cluster(*refusals), on_refused=lambda entry, said, _: told.append((entry.uid, said)))
    result = await working.apply(replace(ENTRY, kind=EntryKind.EVICT))
    assert (told[-1], result.outcome) == (("u", "HTTP 500"), EntryOutcome.APPLIED)
    assert ("u", "HTTP 422") not in told, "the first refusal is none for long"


async def test_a_token_that_is_refused_for_a_minute_withdraws_no_job() -> None:
    """Each gang in its turn would be taken back and rest for up to an hour."""
    cluster = Cluster(_refusal(RightsError, 401), _refusal(ForbiddenError, 403))
    result = await applier(cluster).apply(ENTRY)
    assert (result.outcome, len(cluster.sent)) == (EntryOutcome.APPLIED, 3)


async def test_a_missing_right_delays_only_the_job_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart that lacks the right to one subresource must not stop evictions and first starts."""
    monkeypatch.setattr(applying, "BACK_OFF", BackOff(first=60.0, longest=60.0))
    cluster = Busy(_refusal(ForbiddenError, 403))
    working = applier(cluster)
    waiting = asyncio.create_task(working.apply(ENTRY))
    await cluster.asked.wait()
    async with asyncio.timeout(10):
        result = await working.apply(replace(ENTRY, uid="v"))
    assert (result.outcome, waiting.done()) == (EntryOutcome.APPLIED, False)
    waiting.cancel()


async def test_jobs_whose_own_jobs_are_not_made_yet_hold_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their controller makes those of a burst one by one."""
    monkeypatch.setattr(applying, "BACK_OFF", BackOff(first=60.0, longest=60.0))
    cluster = Busy(_refusal(NotMadeError, 422), _refusal(NotMadeError, 422))
    working = applier(cluster)
    waiting = [asyncio.create_task(working.apply(replace(ENTRY, uid=uid))) for uid in ("u", "v")]
    await until(lambda: len(cluster.sent) == len(waiting))
    async with asyncio.timeout(10):
        result = await working.apply(replace(ENTRY, uid="w"))
    assert (result.outcome, any(each.done() for each in waiting)) == (EntryOutcome.APPLIED, False)
    for each in waiting:
        each.cancel()


async def test_a_job_whose_own_jobs_are_never_made_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "BACK_OFF", BackOff(first=0.001, longest=0.001))
    behind = [_refusal(NotMadeError, 422) for _ in range(9)]
    assert (await applier(Cluster(*behind[:8])).apply(ENTRY)).outcome is EntryOutcome.APPLIED
    result = await applier(Cluster(*behind)).apply(ENTRY)
    assert (result.outcome, result.message) == (EntryOutcome.INVALID, "HTTP 422")


async def test_each_step_of_the_back_off_is_logged_with_its_job_and_what_the_server_said() -> None:
    """Requests that were refused together are one step."""
    refusals = [Unavailable("cut"), Unavailable("cut"), _refusal(ForbiddenError, 403)]
    working = applier(Cluster(*refusals))
    with capture_logs() as logs:
        await asyncio.gather(working.apply(ENTRY), working.apply(replace(ENTRY, uid="v")))
    assert [(line["event"], line["said"]) for line in logs] == [
        ("all requests wait", "cut"),
        ("retrying", "HTTP 403"),
    ]
    assert {line["workload"] for line in logs} <= {"u", "v"}


async def test_a_throttled_request_waits_as_long_as_the_server_asks() -> None:
    cluster = Cluster(_refusal(ThrottledError, 429, retry_after=0.2), _refusal(ApiError, 503))
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await applier(cluster).apply(ENTRY)
    assert result.outcome is EntryOutcome.APPLIED
    assert loop.time() - began >= 0.2


async def test_the_pause_that_the_server_asks_of_one_request_is_kept_by_all() -> None:
    """Guards the API server: it refuses by who asks, not by what is asked for."""
    results = asyncio.Queue[Result]()
    cluster = Busy(_refusal(ThrottledError, 429, retry_after=0.3))
    working = applier(cluster, on_result=results.put_nowait)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), beside(working.run()):
        began = loop.time()
        working.send(ENTRY)
        await cluster.asked.wait()
        for uid in "vwxyz":
            working.send(replace(ENTRY, uid=uid))
        await results.get()
        assert loop.time() - began >= 0.3
        for _ in "vwxyz":
            await results.get()
    assert len(cluster.sent) == 7, "one refusal, six entries"


async def test_refusals_of_requests_that_were_under_way_together_are_one() -> None:
    """Guards the length of the pause: it grows with time, not with the number of requests."""
    pause, loop = Pause(), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(30):
        pause.begin()
    await pause.over()
    assert BACK_OFF.first <= loop.time() - began < 5 * BACK_OFF.first


@pytest.mark.parametrize(
    ("kind", "job", "answer"),
    [
        (EntryKind.ADMIT, replace(JOB, admission="adm", suspended=False), ConflictVerdict.DONE),
        (EntryKind.ADMIT, JOB, ConflictVerdict.AGAIN),
        (EntryKind.ADMIT, replace(JOB, admission="left behind"), ConflictVerdict.AGAIN),
        (EntryKind.ADMIT, replace(JOB, admission="other", suspended=False), ConflictVerdict.STALE),
        (EntryKind.ADMIT, replace(JOB, outcome=State.FAILED), ConflictVerdict.STALE),
        (EntryKind.EVICT, JOB, ConflictVerdict.DONE),
        (EntryKind.EVICT, replace(JOB, suspended=False, admission="adm"), ConflictVerdict.AGAIN),
        (EntryKind.EVICT, replace(JOB, suspended=False, admission="other"), ConflictVerdict.STALE),
        (EntryKind.WITHDRAW, JOB, ConflictVerdict.AGAIN),
        (EntryKind.WITHDRAW, replace(JOB, suspended=False, admission="adm"), ConflictVerdict.STALE),
    ],
)
def test_what_a_job_that_was_read_again_says(kind: EntryKind, job: JobView, answer: ConflictVerdict) -> None:
    assert judge(replace(ENTRY, kind=kind), job, as_decided=True) is answer


async def test_entries_of_one_job_keep_their_order() -> None:
    cluster, results = Cluster(), asyncio.Queue[Result]()
    working = applier(cluster, on_result=results.put_nowait)
    evict = replace(ENTRY, seq=2, kind=EntryKind.EVICT, patch={"metadata": {}, "spec": {"suspend": True}})
    async with asyncio.timeout(60), beside(working.run()):
        working.send(ENTRY)
        working.send(evict)
        order = [(await results.get()).entry.seq for _ in range(2)]
    assert order == [1, 2]
    assert len(cluster.sent) == 2
