"""Faults between command line and API: one sentence, one next command, one exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queuer import __version__
from queuer.cli.client import Client
from queuer.cli.config import MOST_BYTES
from queuer.cli.failures import CommandFailed, Exit
from queuer.local.cluster import Cluster, State
from queuer.local.fleet import Fleet
from queuer.local.processes import ProcessTable
from tests.cli import Done, queuer

Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> Client:
    return Client("http://queuer.test", transport=httpx2.MockTransport(handler))


def answer(status: int, **body: Any) -> Handler:
    return lambda _: httpx2.Response(status, json=body)


def test_every_problem_of_a_document_is_shown_with_its_fix() -> None:
    errors = [
        {"field": "queues.root.a.weight", "message": "0 is not above 0", "hint": ""},
        {"field": "queues.root.b.qouta", "message": "unknown field", "hint": "did you mean quota?"},
    ]
    with pytest.raises(CommandFailed) as caught:
        client(answer(422, detail="two things", errors=errors)).get("/queues")
    assert caught.value.exit_code is Exit.USAGE
    assert "queues.root.a.weight: 0 is not above 0" in caught.value.message
    assert "queues.root.b.qouta: unknown field (did you mean quota?)" in caught.value.message


@pytest.mark.parametrize("status", [502, 200])
def test_something_that_is_not_our_api_is_named_as_such(status: int) -> None:
    with pytest.raises(CommandFailed, match="not as a Queuer API does"):
        client(lambda _: httpx2.Response(status, text="<html>welcome</html>")).get("/queues")


def test_a_server_that_is_not_there_is_told_with_the_way_to_start_one() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(CommandFailed) as absent:
        client(refuse).get("/queues")
    assert "queuer local up" in absent.value.hint


@pytest.mark.parametrize(("port", "here"), [(8790, True), (8787, False)])
def test_the_next_command_looks_where_the_server_is(
    port: int, here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port-forward has a loopback address like a local cluster's API, and is none: a tenant may not look there."""
    state = State(
        parts=("api",), ports={"api": 8790}, etcd_data=tmp_path, programs={},
        fleet=Fleet(nodes=1, blocks=1, racks=1, gpus=0),
    )  # fmt: skip
    Cluster(dir=tmp_path, state=state, processes=ProcessTable(tmp_path)).save()
    monkeypatch.setenv("QUEUER_LOCAL_DIR", str(tmp_path))
    hints = []
    for status, code in ((503, Exit.UNREACHABLE), (500, Exit.FAILURE)):
        api = Client(
            f"http://127.0.0.1:{port}", transport=httpx2.MockTransport(answer(status, detail="away"))
        )
        with pytest.raises(CommandFailed) as caught:
            api.get("/queues")
        hints.append(caught.value.next)
        assert caught.value.exit_code is code
        assert "who runs Queuer" in caught.value.hint
    assert hints == (["queuer local status", "queuer local logs api"] if here else ["", ""])


def test_pages_are_followed_to_the_end() -> None:
    def pages(request: httpx2.Request) -> httpx2.Response:
        cursor = request.url.params.get("cursor")
        following = {None: "b", "b": "c", "c": None}[cursor]
        return httpx2.Response(200, json={"items": [cursor or "a"], "next": following})

    assert list(client(pages).pages("/workloads")) == ["a", "b", "c"]


def test_parameters_that_are_not_given_are_not_sent() -> None:
    seen: list[str] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={})

    client(note).get("/workloads", queue="root.a", state=None)
    assert seen == ["http://queuer.test/api/v1/workloads?queue=root.a"]


@pytest.mark.parametrize("url", ["127.0.0.1:8787", "ftp://host", "localhost"])
def test_an_address_that_is_no_http_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        Client.from_env({"QUEUER_API": url})
    assert caught.value.exit_code is Exit.USAGE


def run(handler: Handler, *arguments: str) -> Done:
    """`queuer ARGUMENTS` against a stub of the API. What each verb does with each status: `test_cli_exits`."""
    return queuer(httpx2.MockTransport(handler), *arguments)


def noting(paths: list[str], **body: Any) -> Handler:
    """Answers everything alike, and keeps the paths that it was asked for."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        return httpx2.Response(200, json=body)

    return handle


JOB = {"uid": "u1", "kind": "Job", "namespace": "team-a", "name": "j", "state": "Queued", "deleted": None}


def knowing(*jobs: dict[str, Any], **more: Any) -> Handler:
    """An API that lists these jobs, and answers about one by its uid."""

    def api(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/workloads"):
            return httpx2.Response(200, json={"items": list(jobs), "next": None})
        return httpx2.Response(200, json={**JOB, "uid": request.url.path.rpartition("/")[2], **more})

    return api


@pytest.mark.parametrize(
    ("verdict", "code"), [("WAIT", 10), ("CHANGE", 11), ("ESCALATE", 12), ("HELD", 13), (None, 0)]
)
def test_why_can_tell_the_verdict_by_its_exit_code(verdict: str | None, code: int) -> None:
    api = knowing(JOB, explanation={"verdict": verdict})
    assert run(api, "why", "j", "--exit-status", "-o", "json").code == code


def test_a_name_that_several_jobs_bear_asks_which() -> None:
    done = run(knowing(JOB, {**JOB, "uid": "u2", "namespace": "team-b"}), "why", "j")
    assert done.code == Exit.USAGE
    assert "queuer why job/j -n team-a" in done.err


@pytest.mark.parametrize(
    ("state", "deleted"), [("Queued", "2026-11-21T10:00:00Z"), ("Succeeded", None)], ids=["deleted", "ended"]
)
def test_a_live_job_is_meant_before_its_namesake_of_another_kind(state: str, deleted: str | None) -> None:
    """Commands that the server gives name no kind: a job of that name which is gone must not stop them."""
    gone = {**JOB, "uid": "u2", "kind": "PyTorchJob", "state": state, "deleted": deleted}
    done = run(knowing(gone, JOB), "why", "j", "-o", "json")
    assert (done.code, json.loads(done.out)["uid"]) == (0, "u1"), done.err


@pytest.mark.parametrize("version", ["0.0.1", __version__])
def test_an_answer_that_lacks_a_field_is_told_with_the_versions(version: str) -> None:
    """A server of this version has no excuse: that is a fault of ours, and shows where it is."""
    handler = answer(200, version=version, name="alice")
    if version == __version__:
        with pytest.raises(KeyError):
            run(handler, "whoami")
        return
    done = run(handler, "whoami")
    assert (done.code, done.out) == (1, "")
    assert "the server is of version 0.0.1" in done.err
    assert "queuer==0.0.1" in done.err


def test_how_many_are_readable_is_told_as_the_part_that_is_shown() -> None:
    for next, told in (("c", "the first 0 of yours; 3 of others"), (None, "\n0 of yours; 3 of others")):
        page = answer(200, items=[], groups=None, next=next, others=3, asOf="2026-11-21T10:00:00Z")
        assert told in run(page, "jobs", "-q", "root.a").err


def plan(**changes: Any) -> dict[str, Any]:
    change = {"name": "root.a", "action": "create", "text": "root.a: new"}
    found = {
        "id": "c1", "baseRevision": 4, "revision": None, "changes": [change], "warnings": [], "effect": "drain",
        "reductions": [], "overLimit": [], "reclaimable": [], "impact": None, "states": [],
        "victims": {"count": 0, "amounts": {}, "jobs": []},
    }  # fmt: skip
    return found | {"impactMissing": "no cycle is stored"} | changes


@pytest.fixture
def document(tmp_path: Path) -> str:
    """The path of a document."""
    made = tmp_path / "tree.yaml"
    made.write_text("kind: QueueTree")
    return str(made)


@pytest.mark.parametrize(("evicted", "said"), [(0, "applied, and"), (1, "applied at the latest, and")])
def test_a_victim_that_may_be_taken_back_before_is_told_the_latest_time(
    document: str, evicted: int, said: str
) -> None:
    none = {"count": 0, "amounts": {}, "jobs": []}
    impact = dict.fromkeys(("starts", "unstartable", "unstartableRunning", "unknown"), none) | {"cycle": 7}
    impact["evicted"] = {**none, "count": evicted}
    victims = {"count": 1, "amounts": {}, "jobs": [{"namespace": "a", "name": "b"}]}
    page = answer(200, **plan(impact=impact, victims=victims, effect="evict", evictAfter="10m"))
    assert f"evicted 10m after this is {said}" in run(page, "plan", "-f", document).out


def test_a_document_is_read_no_further_than_a_server_takes_it(document: str) -> None:
    """A device or a log that never ends is told, and nothing is sent."""
    with Path(document).open("wb") as sparse:
        sparse.truncate(MOST_BYTES + 1)
    done = run(answer(500), "apply", "-f", document, "-y")
    assert done.code == Exit.USAGE
    assert f"tree.yaml has more than {MOST_BYTES} bytes" in done.err


def test_apply_applies_the_plan_that_it_has_shown_if_told_so(document: str) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.path, request.url.query.decode(), request.headers.get("idempotency-key")))
        return httpx2.Response(200, json=plan(revision=5))

    unsaid = run(api, "apply", "-f", document)
    assert (unsaid.code, "-y" in unsaid.err, "+ root.a: new" in unsaid.out) == (Exit.USAGE, True, True)
    assert asked == [("/api/v1/changesets", "effect=drain", None)]
    done = run(api, "apply", "-f", document, "-y")
    assert (done.code, "revision 5" in done.err) == (0, True)
    assert [path for path, _, _ in asked[1:]] == ["/api/v1/changesets", "/api/v1/changesets/c1:apply"]
    assert asked[2][2]


def test_what_takes_something_away_needs_a_reason(document: str) -> None:
    reductions = [
        {"field": "queues.root.a.quota[0].limit", "message": "16 is 8 below the 24 in use", "hint": ""}
    ]
    sent: list[str] = []
    api = noting(sent, **plan(reductions=reductions, revision=5))
    arguments = ["apply", "-f", document, "-y", "--reason"]
    done = run(api, *arguments, "short")
    assert (done.code, len(sent)) == (Exit.USAGE, 1)
    assert "16 is 8 below the 24" in done.err
    assert "--reason" in done.err
    assert run(api, *arguments, "team-b needs them").code == 0


@pytest.mark.parametrize(
    ("handler", "code", "printed"),
    [
        (answer(200, **plan(changes=[])), 0, False),
        (answer(200, **plan()), 1, True),
        (answer(422, detail="wrong"), 2, False),
        (answer(409, detail="theirs"), Exit.CONFLICT, False),
    ],
)
def test_diff_has_the_exit_codes_of_kubectl(
    handler: Handler, code: int, printed: bool, document: str
) -> None:
    done = run(handler, "diff", "-f", document)
    assert (done.code, bool(done.out), bool(done.err)) == (code, printed, code > 1)


def test_apply_without_differences_does_not_write(document: str) -> None:
    sent: list[str] = []
    done = run(noting(sent, **plan(changes=[])), "apply", "-f", document, "-y")
    assert (done.code, len(sent), "no differences" in done.err) == (0, 1, True)


def test_a_queue_is_resumed_by_one_request_with_a_reason_and_a_key() -> None:
    """`why` tells an admin to do so. Other fields are not sent: they would revert an edit made meanwhile."""
    sent: list[httpx2.Request] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json=plan(revision=5))

    done = run(api, "queue", "resume", "root.a", "-y", "--reason", "upgrade")
    assert (done.code, "revision 5" in done.err) == (0, True)
    (request,) = sent
    assert (request.method, request.url.path) == ("POST", "/api/v1/queues/root.a:resume")
    assert json.loads(request.content) == {"reason": "upgrade"}
    assert request.headers["idempotency-key"]


@pytest.mark.parametrize(("same", "expected"), [(True, 0), (False, Exit.FAILURE)])
def test_a_replay_that_differs_fails(same: bool, expected: int) -> None:
    body = {"cycle": 7, "same": same, "difference": "" if same else "order: a, b", "seconds": 0.1}
    done = run(answer(200, **body), "cycles", "replay", "7")
    assert (done.code, "the same plan" in done.err) == (expected, same)
