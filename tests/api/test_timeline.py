"""The past of a job as spans: every reason with its duration, which sum to the time that it waited."""

from __future__ import annotations

import pytest

from queuer.api.models import instant
from queuer.api.workloads.detail import Detail
from queuer.api.workloads.explanation import in_force
from queuer.api.workloads.timeline import held_of, spans_of, waited
from queuer.api.workloads.views import failure
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.reads import Moment
from tests.api.identity import Api
from tests.api.rows import NOW, A, Author, waits
from tests.store.support import Eviction, workload


def step(at: float, before: State, to: State, *, attempt: int = 1) -> Moment:
    """A step that was taken."""
    return Moment(at=at, what="workload.state", data={"from": before, "to": to, "attempt": attempt})


def told(at: float, token: Token | None) -> Moment:
    """Another reason from then on."""
    return Moment(at=at, what="reason", data={"token": token, "text": "why", "cycle": 1})


def test_reasons_fill_the_time_that_it_waited_and_no_other() -> None:
    """Two attempts; a hold; a reason that is recorded while it still leaves."""
    moments = [
        Moment(at=12.0, what="workload.submitted", data={"state": "Queued"}),
        told(20.0, Token.WAITING_FOR_QUOTA),
        step(30.0, State.QUEUED, State.HELD),
        step(40.0, State.HELD, State.QUEUED),
        told(45.0, Token.TOPOLOGY_PLACEMENT_FAILED),
        step(50.0, State.QUEUED, State.ADMITTED),
        told(50.0, None),
        step(80.0, State.ADMITTED, State.EVICTING),
        told(80.0, Token.PENDING_EVALUATION),
        step(90.0, State.EVICTING, State.QUEUED, attempt=2),
        told(95.0, Token.WAITING_FOR_QUOTA),
    ]
    spans = spans_of(moments, submitted=10.0)
    assert [(s.state.value, s.begin, s.end) for s in spans] == [
        ("Queued", 10, 30), ("Held", 30, 40), ("Queued", 40, 50), ("Admitted", 50, 80), ("Evicting", 80, 90),
        ("Queued", 90, None),
    ]  # fmt: skip
    held = held_of(moments, spans)
    assert [(row.token, row.begin, row.end) for row in held] == [
        (Token.PENDING_EVALUATION, 10, 20),
        (Token.WAITING_FOR_QUOTA, 20, 30),
        (Token.WAITING_FOR_QUOTA, 30, 40),
        (Token.WAITING_FOR_QUOTA, 40, 45),
        (Token.TOPOLOGY_PLACEMENT_FAILED, 45, 50),
        (Token.PENDING_EVALUATION, 90, 95),
        (Token.WAITING_FOR_QUOTA, 95, None),
    ]
    now = 100.0
    assert waited(spans, now=now) == 50.0
    assert sum((now if row.end is None else row.end) - row.begin for row in held) == 50.0


async def test_it_is_told_over_rest(api: Api, author: Author) -> None:
    await author.tree()
    made = workload("u1", queue=A)
    await author.submit(made)
    await author.cycle(explain={"u1": waits()})
    await author.cycle(admit=[made])
    await author.evict(Eviction(uid="u1", cause="reclaim", patch={}, beneficiary="u2", note="evicted"))
    await author.step("u1", State.QUEUED, at=NOW + 100)
    await author.cycle(explain={"u1": waits(Token.WAITING_FOR_QUOTA, "48 of 64 are used")})
    found = (await api.get("/api/v1/workloads/u1/timeline")).json()
    assert [span["state"] for span in found["spans"]] == ["Queued", "Admitted", "Evicting", "Queued"]
    assert found["spans"][2]["cause"] == "reclaim"
    assert (await api.get("/api/v1/workloads/u1")).json()["stateSince"] == found["spans"][3]["from"]
    assert sum(row["seconds"] for row in found["reasons"]) == pytest.approx(found["waitedSeconds"], abs=1)
    assert found["reasons"][-1]["token"] == "WaitingForQuota"
    assert [(tick["cycle"], tick["decision"]) for tick in found["ticks"]][:2] == [
        (1, "TopologyPlacementFailed"),
        (2, "Admitted"),
    ]


async def test_a_deleted_job_waits_no_longer(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.delete("u1")
    found = (await api.get("/api/v1/workloads/u1/timeline")).json()
    assert found["spans"][-1]["to"] is not None
    assert found["waitedSeconds"] == pytest.approx(sum(row["seconds"] for row in found["reasons"]), abs=1)


@pytest.mark.parametrize(
    ("state", "told"), [(State.QUEUED, True), (State.PLACING, True), (State.RUNNING, False)]
)
def test_an_eviction_is_news_until_the_job_runs_again(state: State, told: bool) -> None:
    detail = Detail.model_validate({"evicted": {"at": 1.0, "cause": "reclaim", "note": "for another"}})
    assert bool(in_force(detail, state, None, now=instant(2.0)).evicted) is told


def test_a_failure_is_told_of_a_job_that_failed_and_a_loss_of_one_that_runs() -> None:
    """Of this run, and until all pods are there again: all before is history."""

    def moment(at: float, what: str, **data: object) -> Moment:
        return Moment(at=at, what=what, data=data)

    before = [moment(1.0, "workload.state", to="Running"), moment(2.0, "workload.lost", note="n1 is gone")]
    again = [
        *before,
        moment(3.0, "workload.state", to="Evicting", note="x"),
        moment(4.0, "workload.state", to="Running"),
    ]
    failed = [*again, moment(5.0, "workload.state", to="Failed", note="failed: exit code 3")]
    assert failure(State.RUNNING, before) == {"failure": {"at": 2.0, "text": "n1 is gone"}}
    assert failure(State.RUNNING, again) == {}
    assert failure(State.RUNNING, [*before, moment(3.0, "workload.whole")]) == {}
    assert failure(State.FAILED, failed) == {"failure": {"at": 5.0, "text": "failed: exit code 3"}}
    assert failure(State.QUEUED, failed) == {}
    evicted = [*again, moment(5.0, "workload.state", to="Evicting", note="for another")]
    assert failure(State.SUCCEEDED, [*evicted, moment(6.0, "workload.state", to="Succeeded")]) == {}
