"""`-w` prints what changes and nothing twice; `queuer wait` ends when the job is there, fails, or time is up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from queuer.cli import jobs
from queuer.cli.failures import Exit
from tests.cli import Done, queuer

Answers = Callable[[httpx2.Request], Any]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PAUSE", 0.0)


def run(answers: Answers, *arguments: str) -> Done:
    """Until the API has nothing more to say, as if the person pressed Ctrl-C."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        try:
            return httpx2.Response(200, json=answers(request))
        except StopIteration:
            raise KeyboardInterrupt from None

    return queuer(httpx2.MockTransport(handle), *arguments)


def job(
    state: str, *, name: str = "llama", reason: str | None = None, deleted: bool = False
) -> dict[str, Any]:
    told = (
        None
        if reason is None
        else {
            "token": reason,
            "verdict": "WAIT",
            "text": "so it is",
            "unstartable": reason == "Misconfigured",
        }
    )
    return {
        "uid": f"u-{name}", "kind": "Job", "namespace": "team-a", "name": name, "queue": "root.a", "user": "",
        "priority": 0, "state": state, "attempt": 1, "demand": {"cpu": "1"}, "holds": {}, "domains": [],
        "submitted": "2026-11-21T10:00:00Z", "deleted": "2026-11-21T10:00:09Z" if deleted else None, "reason": told,
    }  # fmt: skip


def lists(*pages: Sequence[dict[str, Any]], last: dict[str, Any] | None = None) -> Answers:
    """A list that is another at each look, and one job by its uid."""
    rest = iter(pages)

    def answer(request: httpx2.Request) -> Any:
        if not request.url.path.endswith("/workloads"):
            return last
        return {"items": list(next(rest)), "next": None, "asOf": "2026-11-21T10:00:10Z"}

    return answer


def test_jobs_are_printed_again_where_state_or_reason_changed() -> None:
    waits, runs = job("Queued", reason="WaitingForQuota"), job("Running")
    other = job("Queued", name="eval")
    answers = lists([waits, other], [waits, other], [runs, other], [other], last=job("Succeeded"))
    done = run(answers, "jobs", "-w", "-o", "jsonl")
    told = [(row["name"], row["state"]) for row in map(json.loads, done.out.splitlines())]
    assert told == [("llama", "Queued"), ("eval", "Queued"), ("llama", "Running"), ("llama", "Succeeded")]
    assert done.code == 130


def test_events_go_on_where_the_last_page_ended() -> None:
    """Oldest first, with one header, and pages that are short although there is more."""
    asked: list[str | None] = []

    def event(number: int) -> dict[str, Any]:
        return {"id": number, "at": "2026-11-21T10:00:00Z", "type": "workload.state", "uid": "u1",
                "queue": "root.a", "job": {"kind": "Job", "namespace": "a", "name": "train"},
                "text": f"admitted to r{number}", "data": {"cycle": number}}  # fmt: skip

    pages = iter(
        [
            {"items": [event(2), event(1)], "seq": 2, "next": None},
            {"items": [event(3)], "seq": 5, "next": 3},
            {"items": [event(5)], "seq": 5, "next": None},
            {"items": [], "seq": 6, "next": None},
        ]
    )

    def answer(request: httpx2.Request) -> Any:
        asked.append(request.url.params.get("after"))
        return next(pages)

    done = run(answer, "events", "-w")
    assert [line.split()[-1] for line in done.out.splitlines()] == ["WHAT", "r1", "r2", "r3", "r5"]
    assert "job/train -n a  cycle 1  admitted to r1" in done.out
    assert asked == [None, "2", "3", "5", "6"]


@pytest.mark.parametrize("verb", ["jobs", "events"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_has_no_end_is_no_document(verb: str, form: str) -> None:
    done = run(lists(), verb, "-w", "-o", form)
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert "-w -o jsonl" in done.err


@pytest.mark.parametrize(
    ("goal", "states", "code"),
    [
        ("admitted", ["Queued", "Queued", "Placing"], Exit.OK),
        ("admitted", ["Succeeded"], Exit.OK),
        ("running", ["Admitted", "Placing", "Running"], Exit.OK),
        ("running", ["Placing", "Evicting", "Queued", "Failed"], Exit.FAILURE),
        ("finished", ["Running", "Succeeded"], Exit.OK),
        ("finished", ["Running", "Failed"], Exit.FAILURE),
    ],
)
def test_wait_ends_when_the_job_is_there_or_never_will_be(goal: str, states: list[str], code: Exit) -> None:
    done = run(lists(*([job(state)] for state in states)), "wait", "llama", f"--for={goal}")
    assert done.code == code, done.err
    assert ("job/llama is " in done.out) == (code is Exit.OK)


def test_wait_for_a_job_that_is_deleted_fails() -> None:
    done = run(lists([job("Queued")], [job("Queued", deleted=True)]), "wait", "llama")
    assert done.code == Exit.FAILURE
    assert "was deleted" in done.err


def refused(**params: Any) -> dict[str, Any]:
    """One job that can never start, with the parameters of its reason."""
    return {**job("Queued", reason="Misconfigured"), "explanation": {"primary": {"params": params}}}


def test_wait_ends_at_once_where_the_job_can_never_start() -> None:
    done = run(
        lists([job("Queued", reason="Misconfigured")], last=refused(fields=["label x"])), "wait", "llama"
    )
    assert (done.code, done.out) == (11, "")
    assert "job/llama can never start as it is: so it is\n  next: queuer why job/llama -n team-a" in done.err


@pytest.mark.parametrize(("grace", "code"), [(60.0, Exit.OK), (0.0, 11)])
def test_wait_gives_a_queue_some_seconds_to_appear(
    grace: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job and tree may be applied together; later the queue is missing for good."""
    monkeypatch.setattr(jobs, "GRACE", grace)
    lost, last = job("Queued", reason="Misconfigured"), refused(queue="root.new", nearest=[])
    assert run(lists([lost], [lost], [job("Running")], last=last), "wait", "llama").code == code


def test_wait_ends_with_the_timeout() -> None:
    done = run(lists([job("Queued")]), "wait", "llama", "--timeout", "0s")
    assert done.code == Exit.TIMEOUT
    assert "job/llama is Queued, not admitted, after 0s\n  next: queuer why job/llama -n team-a" in done.err


def test_a_timeout_that_is_no_duration_is_a_usage_error() -> None:
    done = run(lists([job("Queued")]), "wait", "llama", "--timeout", "soon")
    assert done.code == Exit.USAGE
    assert '"5m"' in done.err


def away(answers: Answers, *arguments: str, after: int = 2, times: int = 3) -> tuple[Done, list[float]]:
    """As `run`, with a server that is away for some requests after the first; and the pauses that were made."""
    asked = 0

    def handle(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        if after <= asked < after + times:
            raise httpx2.ConnectError("refused", request=request)
        try:
            return httpx2.Response(200, json=answers(request))
        except StopIteration:
            raise KeyboardInterrupt from None

    pauses: list[float] = []
    with patch("queuer.cli.client.time.sleep", pauses.append):
        return queuer(httpx2.MockTransport(handle), *arguments), [pause for pause in pauses if pause]


def test_what_is_watched_goes_on_after_the_server_was_away() -> None:
    """One line says that it is away and one that it is back; pauses grow."""
    done, pauses = away(lists([job("Queued")], [job("Running")]), "jobs", "-w", "-o", "jsonl")
    assert [json.loads(line)["state"] for line in done.out.splitlines()] == ["Queued", "Running"]
    assert (pauses, done.code) == ([0.5, 1.0, 2.0], 130)
    lines = done.err.splitlines()
    assert lines[0].startswith("no Queuer API at http://127.0.0.1:8787: refused; waiting")
    assert lines[1:] == ["the server answers again"]


def test_waiting_outlives_a_restart_of_the_server_but_not_its_own_timeout() -> None:
    done, _ = away(lists([job("Queued")], [job("Running")]), "wait", "llama")
    assert (done.code, done.out) == (0, "job/llama is Running\n")
    done, pauses = away(lists([job("Queued")]), "wait", "llama", "--timeout", "100ms", times=99)
    assert (done.code, pauses) == (Exit.UNREACHABLE, [])


def test_a_server_that_is_away_from_the_start_is_an_error_at_once() -> None:
    done, pauses = away(lists([job("Queued")]), "jobs", "-w", after=1)
    assert (done.code, pauses) == (Exit.UNREACHABLE, [])
